// SPDX-License-Identifier: Apache-2.0
#include "machine_info.h"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>

#include "base/check.h"

#ifndef ONEHOP_COMMIT  // by tests
#include "commit.h"
#endif

namespace onehop::cli {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    // x86 says "model name"; Arm kernels say nothing of the kind, some boards have "Hardware".
    if (colon != std::string::npos && (line.starts_with("model name") || line.starts_with("Hardware"))) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

MachineInfo find_machine_info() {
  MachineInfo info;
  info.cpu = cpu_model();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) info.cpus = CPU_COUNT(&allowed);
  utsname names{};
  if (::uname(&names) == 0) info.kernel = fmt::format("{} {}", names.sysname, names.release);
  return info;
}

}  // namespace

const MachineInfo& machine_info() {
  static const MachineInfo info = find_machine_info();
  return info;
}

std::string build_commit() {
  return ONEHOP_COMMIT;
}

}  // namespace onehop::cli
