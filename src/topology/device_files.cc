// SPDX-License-Identifier: Apache-2.0
#include "topology/device_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "os/unique_fd.h"

namespace onehop {
namespace {

namespace fs = std::filesystem;

/// Matches nvidia0, nvidia1, ..., but not nvidiactl.
bool names_a_gpu(const std::string& name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

}  // namespace

DeviceFiles check_device_files(const std::string& directory) {
  DeviceFiles files;
  files.finding = {kGpuSection, "device files", Health::not_applicable, {}, {}, false};
  std::vector<std::string> needed;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    if (names_a_gpu(entry.path().filename().string())) needed.push_back(entry.path().string());
  }
  files.gpus = static_cast<int>(needed.size());
  if (needed.empty()) {
    files.finding.detail = fmt::format("no NVIDIA GPU in {}", directory);
    return files;
  }
  std::sort(needed.begin(), needed.end());
  for (const char* name : {"nvidiactl", "nvidia-uvm"})
    needed.push_back((fs::path(directory) / name).string());

  std::string trouble;
  for (const std::string& path : needed) {
    // Open the file instead of calling access(2): only open applies the device rules of a container.
    const os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) trouble += fmt::format("{}{}: {}", trouble.empty() ? "" : "; ", path, errno_text(errno));
  }
  if (trouble.empty()) {
    files.finding.health = Health::works;
    files.finding.detail =
        fmt::format("{} GPU{} in {}, all can be opened", files.gpus, files.gpus == 1 ? "" : "s", directory);
  } else {
    files.finding.health = Health::fails;
    files.finding.detail = trouble;
    files.finding.remedy =
        "let this user read and write them; in a container start it with these devices (--gpus all), "
        "'nvidia-modprobe -u' makes missing ones";
  }
  return files;
}

}  // namespace onehop
