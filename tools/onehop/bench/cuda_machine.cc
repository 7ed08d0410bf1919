// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda_machine.h"

#include <cuda_runtime.h>

#include <fstream>
#include <sstream>

#include "onehop/topology.h"

#include "bench/cuda_handles.h"
#include "bench/gpu.h"

namespace onehop::cli {
namespace {

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ...": the first word that is a version.
std::string kernel_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) {
      return word;
    }
  }
  return {};
}

/// Of the pair of devices with the fewest; nothing where that is not known, or the topology knows other devices
/// than CUDA.
std::optional<int> fewest_nvlinks(int gpus) {
  const Topology topology = Topology::probe();
  if (gpus < 2 || topology.device_count() != gpus) return std::nullopt;
  int fewest = -1;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      const int links = topology.pair(DeviceId{from}, DeviceId{to}).nvlinks;
      if (links < 0) return std::nullopt;
      if (fewest < 0 || links < fewest) fewest = links;
    }
  }
  return fewest;
}

}  // namespace

GpuCount count_gpus() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    (void)cudaGetLastError();
    return {0, "there is no NVIDIA driver on this machine"};
  }
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    return {0, fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result))};
  }
  return {count, count == 0 ? "the driver shows none to this process" : ""};
}

GpuMachine gpu_machine(Group& group) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, group.device().value), "cudaGetDeviceProperties");
  GpuMachine machine;
  machine.names = group.all_gather(properties.name);
  if (group.rank() != Rank{0}) return machine;
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  machine.cuda = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  machine.driver = kernel_driver();
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  machine.nvlinks = fewest_nvlinks(gpus);
  return machine;
}

}  // namespace onehop::cli
