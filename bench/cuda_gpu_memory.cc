// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "base/check.h"
#include "gpu_memory.h"

namespace onehop::bench {
namespace {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail(ErrorCode::system, "{}: {}", what, cudaGetErrorString(result));
}

}  // namespace

int gpu_count() noexcept {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::shared_ptr<void> allocate_on_gpu(DeviceId device, std::size_t bytes) {
  check(cudaSetDevice(device.value), "cudaSetDevice");
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  std::shared_ptr<void> owner(data, [](void* memory) { (void)cudaFree(memory); });
  check(cudaMemset(data, 0, bytes), "cudaMemset");
  return owner;
}

std::uint64_t gpu_bytes_in_use() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total - free;
}

}  // namespace onehop::bench
