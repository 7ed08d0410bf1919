// SPDX-License-Identifier: Apache-2.0
// Where a report comes from, so that one that is found later can be understood and made again.
#pragma once

#include <string>

namespace onehop::cli {

/// Once, before anything is reported.
void remember_command_line(int argc, char** argv);

struct Origin {
  std::string date;     ///< when this was first asked for: "2025-03-01T12:00:00Z"
  std::string host;     ///< its name
  std::string command;  ///< "onehop bench all-reduce --sizes 4K", as a shell reads it
};
[[nodiscard]] const Origin& origin();

/// "2025-03-01T12:00:00Z on node7: onehop bench all-reduce --sizes 4K"
[[nodiscard]] std::string describe(const Origin& origin);

/// For JSON documents, which are objects.
template <class Json>
void add_origin(Json& document) {
  document["date"] = origin().date;
  document["host"] = origin().host;
  document["command"] = origin().command;
}

}  // namespace onehop::cli
