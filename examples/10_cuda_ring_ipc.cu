// SPDX-License-Identifier: Apache-2.0
// The ring between processes, over ordinary memory of cudaMalloc. CUDA IPC handles travel through a group on
// the host, and a kernel of each rank writes directly into its right neighbor's memory.
//
//   onehop launch -n 4 -- ./cuda_ring_ipc
#include <onehop/onehop.h>

#include <cstdint>
#include <vector>

#include "cuda_example.h"

namespace {

constexpr std::size_t kCount = 1 << 20;
constexpr std::size_t kOffset = 1 << 10;  // elements: shared memory may start inside an allocation

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
  onehop::Group group = onehop::Group::from_env();  // on the host: it only transfers the handles
  const int rank = group.rank().value;
  const int size = group.size();
  const onehop::DeviceId device{rank % example::gpus()};
  check(cudaSetDevice(device.value), "cudaSetDevice");

  std::uint32_t* memory = nullptr;
  constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);
  check(cudaMalloc(&memory, kOffset * sizeof(std::uint32_t) + kBytes), "cudaMalloc");
  std::uint32_t* const mine = memory + kOffset;
  check(cudaMemset(mine, 0, kBytes), "cudaMemset");
  example::finish("clearing");

  const std::vector<std::string> handles = group.all_gather(onehop::export_ipc(mine, kBytes).to_bytes());
  {
    const onehop::IpcHandle handle = onehop::IpcHandle::from_bytes(handles[(rank + 1) % size]);
    const onehop::IpcMapping right = onehop::IpcMapping::open(handle, device);
    fill<<<64, 256>>>(reinterpret_cast<std::uint32_t*>(right.data()), rank);
    example::finish("fill");  // before the mapping is closed and the others continue
  }
  group.barrier();  // all kernels have ended and all mappings are closed: the left neighbor's data is here

  std::vector<std::uint32_t> got(kCount);
  check(cudaMemcpy(got.data(), mine, kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaFree(memory), "cudaFree");
  const int left = (rank + size - 1) % size;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i) wrong += got[i] == value(left, i) ? 0 : 1;
  std::printf(
      "rank %d on GPU %d: rank %d wrote %zu MiB into my memory through CUDA IPC, %zu elements are wrong\n",
      rank, device.value, left, kBytes >> 20, wrong);
  return wrong == 0 ? 0 : 1;
}
