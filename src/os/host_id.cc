// SPDX-License-Identifier: Apache-2.0
#include "os/host_id.h"

#include <unistd.h>

#include "base/check.h"
#include "os/text_file.h"

namespace onehop::os {

std::string boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::string text;
  try {
    text = read_text_file(kPath, kPath, 256);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_resources) throw;
    fail(ErrorCode::unsupported,
         "cannot read {}, which tells whether ranks share a machine; mount /proc ({})", kPath,
         error.message());
  }
  std::string id = text.substr(0, text.find('\n'));
  if (id.empty()) fail(ErrorCode::unsupported, "{} is empty; it tells whether ranks share a machine", kPath);
  return id;
}

std::string hostname() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace onehop::os
