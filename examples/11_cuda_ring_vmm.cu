// SPDX-License-Identifier: Apache-2.0
// Repeats the ring over memory that is allocated for sharing. File descriptors of device memory travel
// through the group's channel, and no CUDA IPC is needed.
//
//   onehop launch -n 4 -- ./cuda_ring_vmm
#include <onehop/onehop.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "cuda_example.h"

namespace {

constexpr std::size_t kCount = 1 << 20;

__host__ __device__ std::uint32_t value(int writer, std::size_t i) {
  return static_cast<std::uint32_t>(writer + 1) << 24 | static_cast<std::uint32_t>(i);
}

__global__ void fill(std::uint32_t* to, int writer) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < kCount; i += step)
    to[i] = value(writer, i);
}

}  // namespace

int main() {
  using example::check;
  if (example::skipped()) return 0;
  onehop::Group group = onehop::Group::from_env();  // on the host: it only transfers the descriptors
  const int rank = group.rank().value;
  const int size = group.size();
  const onehop::DeviceId device{rank % example::gpus()};
  check(cudaSetDevice(device.value), "cudaSetDevice");

  constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);
  const onehop::DeviceMemory mine = onehop::DeviceMemory::create(device, kBytes);  // zeroed

  // The own slot is the own descriptor, all others are new. The memory lives as long as any process has it
  // open.
  const std::vector<int> descriptors = group.channel().all_gather_fds(mine.export_fd());
  const onehop::DeviceMemory right =
      onehop::DeviceMemory::import_fd(descriptors[(rank + 1) % size], kBytes, device);
  for (const int descriptor : descriptors) ::close(descriptor);  // mappings do not need descriptors

  fill<<<64, 256>>>(reinterpret_cast<std::uint32_t*>(right.data()), rank);
  example::finish("fill");
  group.barrier();  // all kernels have ended: the left neighbor's data is here

  std::vector<std::uint32_t> got(kCount);
  check(cudaMemcpy(got.data(), mine.data(), kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const int left = (rank + size - 1) % size;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i) wrong += got[i] == value(left, i) ? 0 : 1;
  std::printf(
      "rank %d on GPU %d: rank %d wrote %zu MiB into my memory through a descriptor, %zu elements are "
      "wrong\n",
      rank, device.value, left, kBytes >> 20, wrong);
  return wrong == 0 ? 0 : 1;
  // No second barrier: physical memory lives until the last process releases it.
}
