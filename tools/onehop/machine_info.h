// SPDX-License-Identifier: Apache-2.0
// The machine and the build, as reports name them.
#pragma once

#include <string>

namespace onehop::cli {

struct MachineInfo {
  std::string cpu;     ///< model name
  int cpus = 0;        ///< processors this process may run on
  std::string kernel;  ///< "Linux 6.1.0"
};
/// As it was when first asked for: before a rank is bound to few of the processors.
[[nodiscard]] const MachineInfo& machine_info();

/// `git describe` of the sources when they were configured; empty outside a repository.
[[nodiscard]] std::string build_commit();

}  // namespace onehop::cli
