// SPDX-License-Identifier: Apache-2.0
// Memory for a chosen peer only. cudaDeviceEnablePeerAccess gives access to everything a device has.
// DeviceMemory is accessible only from the devices that it was granted to.
//
//   ./cuda_vmm_selective
#include <onehop/onehop.h>

#include <cstdint>

#include "cuda_example.h"

namespace {

constexpr std::uint32_t kCount = 1 << 20;

__global__ void fill(std::uint32_t* to) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x)
    to[i] = i;
}

__global__ void add_up(const std::uint32_t* from, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x)
    mine += from[i];
  atomicAdd(sum, mine);
}

// A kernel without access would fault, and lose all of the process's work on that device. So this asks the
// driver instead.
bool as_expected(const onehop::DeviceMemory& memory, const char* when, int chosen) {
  bool right = true;
  for (int device = 0; device < example::gpus(); ++device) {
    const bool may = memory.granted(onehop::DeviceId{device});
    std::printf("%s: GPU %d %s read and write GPU 0's memory\n", when, device, may ? "may" : "may not");
    right = right && may == (device == 0 || device == chosen);
  }
  return right;
}

}  // namespace

int main() {
  using example::check;
  if (example::skipped()) return 0;
  constexpr int kChosen = 1;

  check(cudaSetDevice(0), "cudaSetDevice");
  const onehop::DeviceMemory memory =
      onehop::DeviceMemory::create(onehop::DeviceId{0}, kCount * sizeof(std::uint32_t));
  auto* const data = reinterpret_cast<std::uint32_t*>(memory.data());  // the same address on every device
  fill<<<64, 256>>>(data);
  example::finish("fill");

  bool right = as_expected(memory, "before", -1);
  memory.grant(onehop::DeviceId{kChosen});
  right = as_expected(memory, "after", kChosen) && right;

  check(cudaSetDevice(kChosen), "cudaSetDevice");
  unsigned long long* sum = nullptr;
  check(cudaMalloc(&sum, sizeof *sum), "cudaMalloc");
  check(cudaMemset(sum, 0, sizeof *sum), "cudaMemset");
  add_up<<<64, 256>>>(data, sum);
  example::finish("add_up");
  unsigned long long got = 0;
  check(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaFree(sum), "cudaFree");

  constexpr unsigned long long kSum = (kCount - 1ULL) * kCount / 2;
  std::printf("GPU %d added up GPU 0's memory: %llu, which is %s\n", kChosen, got,
              got == kSum ? "right" : "wrong");
  return right && got == kSum ? 0 : 1;
}
