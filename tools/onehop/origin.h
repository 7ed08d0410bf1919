// SPDX-License-Identifier: Apache-2.0
// The origin of a report: time, machine, command line and build, so that others can understand and repeat it.
#pragma once

#include <string>

namespace onehop::cli {

/// Once, before the first report.
void remember_command_line(int argc, char** argv);

struct Origin {
  std::string date;     ///< of the first call of origin(): "2025-03-01T12:00:00Z"
  std::string host;     ///< its name
  std::string command;  ///< "onehop bench all-reduce --sizes 4K", quoted for a shell
};
[[nodiscard]] const Origin& origin();

/// "2025-03-01T12:00:00Z on node7: onehop bench all-reduce --sizes 4K"
[[nodiscard]] std::string describe(const Origin& origin);

/// Adds the members "date", "host" and "command" to an object.
template <class Json>
void add_origin(Json& document, const Origin& from = origin()) {
  document["date"] = from.date;
  document["host"] = from.host;
  document["command"] = from.command;
}

/// The text of a document with its origin. File names and texts of drivers may have any encoding; what is not
/// UTF-8 is replaced.
template <class Json>
[[nodiscard]] std::string write_document(Json document, const Origin& from = origin()) {
  add_origin(document, from);
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct MachineInfo {
  std::string cpu;     ///< model name
  int cpus = 0;        ///< processors this process may run on
  std::string kernel;  ///< "Linux 6.1.0"
};
/// As of the first call: before this rank is bound to a few of the processors.
[[nodiscard]] const MachineInfo& machine_info();

/// `git describe` of the sources when they were configured; empty outside a repository.
[[nodiscard]] std::string build_commit();

struct BuildInfo {
  std::string version;  ///< of the library
  std::string commit;   ///< build_commit()
};
[[nodiscard]] BuildInfo build_info();
/// "onehop 0.1.0 (1a2b3c4)"
[[nodiscard]] std::string describe(const BuildInfo& build);

}  // namespace onehop::cli
