// SPDX-License-Identifier: Apache-2.0
// The classic example of peer access: one process, all GPUs. Enables access between all pairs and prints how
// each pair is connected. Then a kernel on each device writes directly into the memory of the next one.
//
//   ./cuda_ring_p2p
#include <onehop/onehop.h>

#include <cstdint>
#include <vector>

#include "cuda_example.h"

namespace {

using onehop::DeviceId;

constexpr std::size_t kCount = 1 << 20;

__host__ __device__ std::uint32_t value(int writer, std::size_t i) {
  return static_cast<std::uint32_t>(writer + 1) << 24 | static_cast<std::uint32_t>(i);
}

__global__ void fill(std::uint32_t* to, int writer) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < kCount; i += step)
    to[i] = value(writer, i);
}

void enable_all_pairs(int gpus) {
  const onehop::Topology topology = onehop::Topology::probe();
  onehop::PeerAccess& access = onehop::PeerAccess::of_process();
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      const bool enabled = access.can_access(DeviceId{from}, DeviceId{to});
      const onehop::PairAttributes pair = access.pair_attributes(DeviceId{from}, DeviceId{to});
      const int links = topology.pair(DeviceId{from}, DeviceId{to}).nvlinks;
      std::printf("GPU %d -> GPU %d: access %s, performance rank %d, native atomics %s, %s\n", from, to,
                  enabled ? "enabled" : "none", pair.performance_rank, pair.native_atomics ? "yes" : "no",
                  links > 0    ? ("NVLink x" + std::to_string(links)).c_str()
                  : links == 0 ? "PCIe"
                               : "links not known");
    }
  }
}

}  // namespace

int main() {
  using example::check;
  if (example::skipped()) return 0;
  const int gpus = example::gpus();
  enable_all_pairs(gpus);
  std::vector<std::uint32_t*> memory(gpus);
  for (int device = 0; device < gpus; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    memory[device] = example::allocate<std::uint32_t>(kCount);
    example::finish("clearing");
  }
  for (int device = 0; device < gpus; ++device) {
    const int next = (device + 1) % gpus;
    if (!onehop::PeerAccess::of_process().can_access(DeviceId{device}, DeviceId{next}))
      throw std::runtime_error("no ring without peer access between neighbors");
    check(cudaSetDevice(device), "cudaSetDevice");
    fill<<<64, 256>>>(memory[next], device);  // with peer access, the pointer is valid on both devices
    check(cudaGetLastError(), "launching fill");
  }
  // A kernel's stores are in the peer's memory once the kernel has ended.
  std::size_t wrong = 0;
  std::vector<std::uint32_t> got(kCount);
  for (int device = 0; device < gpus; ++device) {
    const int writer = (device + gpus - 1) % gpus;
    check(cudaSetDevice(writer), "cudaSetDevice");
    example::finish("fill");
    check(cudaMemcpy(got.data(), memory[device], kCount * sizeof got[0], cudaMemcpyDefault), "cudaMemcpy");
    for (std::size_t i = 0; i < kCount; ++i) wrong += got[i] == value(writer, i) ? 0 : 1;
  }
  for (std::uint32_t* each : memory) check(cudaFree(each), "cudaFree");
  std::printf("%d GPUs wrote %zu MiB each into the next one's memory, %zu elements are wrong\n", gpus,
              kCount * sizeof(std::uint32_t) >> 20, wrong);
  return wrong == 0 ? 0 : 1;
}
