// The classic ring over peer access: one process, all GPUs. A kernel on each device writes straight into the
// memory of the next one.
//
//   ./cuda_ring_p2p
#include <onehop/onehop.h>

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
  const int gpus = example::gpus();
  std::vector<std::uint32_t*> memory(gpus);
  for (int device = 0; device < gpus; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaMalloc(&memory[device], kCount * sizeof(std::uint32_t)), "cudaMalloc");
    check(cudaMemset(memory[device], 0, kCount * sizeof(std::uint32_t)), "cudaMemset");
    example::finish("clearing");
  }

  std::vector<onehop::IpcMapping> reached;  // as long as kernels use them
  for (int device = 0; device < gpus; ++device) {
    const int next = (device + 1) % gpus;
    // The same two calls that share memory between processes (cuda_ring_ipc). Inside one process they check
    // that the pair can reach each other, enable the access and give the pointer itself.
    const onehop::IpcHandle handle = onehop::export_ipc(memory[next], kCount * sizeof(std::uint32_t));
    reached.push_back(onehop::IpcMapping::open(handle, onehop::DeviceId{device}));
    check(cudaSetDevice(device), "cudaSetDevice");
    fill<<<64, 256>>>(reinterpret_cast<std::uint32_t*>(reached.back().data()), device);
    check(cudaGetLastError(), "launching fill");
  }
  // A kernel's stores are in the peer's memory when the kernel has ended.
  for (int device = 0; device < gpus; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    example::finish("fill");
  }

  std::size_t wrong = 0;
  std::vector<std::uint32_t> got(kCount);
  for (int device = 0; device < gpus; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaMemcpy(got.data(), memory[device], kCount * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (std::size_t i = 0; i < kCount; ++i) wrong += got[i] == value((device + gpus - 1) % gpus, i) ? 0 : 1;
    check(cudaFree(memory[device]), "cudaFree");
  }
  std::printf("%d GPUs wrote %zu MiB each into the next one's memory, %zu elements are wrong\n", gpus,
              kCount * sizeof(std::uint32_t) >> 20, wrong);
  return wrong == 0 ? 0 : 1;
}
