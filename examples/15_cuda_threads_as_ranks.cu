// SPDX-License-Identifier: Apache-2.0
// One process, all GPUs: each is a rank with a thread of its own.
//
//   ./cuda_threads_as_ranks
#include <atomic>
#include <vector>

#include "cuda_example.h"

namespace {

constexpr unsigned kCount = 1'000'003;
constexpr int kRounds = 50;

// Small integers, whose sums are exact.
__device__ float value(int rank, int round, unsigned i) {
  return static_cast<float>((i + static_cast<unsigned>(round)) % 1000) * static_cast<float>(rank + 1);
}

__global__ void fill(float* data, int rank, int round) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x)
    data[i] = value(rank, round, i);
}

__global__ void look(const float* data, int ranks, int round, unsigned long long* wrong) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, round, i);
    if (data[i] != sum) atomicAdd(wrong, 1ULL);
  }
}

// Returns how many elements were wrong.
unsigned long long run_rank(onehop::Group& group) {
  using example::check;
  const int rank = group.rank().value;
  const int size = group.size();
  check(cudaSetDevice(group.device().value), "cudaSetDevice");  // for this thread
  auto* const data = example::allocate<float>(kCount);
  auto* const wrong = example::allocate<unsigned long long>(1);
  fill<<<64, 256>>>(data, rank, 0);
  look<<<64, 256>>>(data, size, 0, wrong);
  check(cudaMemset(wrong, 0, sizeof *wrong), "cudaMemset");
  example::finish("setting up");
  // Allocating, freeing and loading kernels may wait for all kernels of the process, and those of an
  // all-reduce wait for the other ranks. So do these things before or after the collectives, with a barrier
  // in between.
  group.barrier();

  for (int round = 0; round < kRounds; ++round) {
    fill<<<64, 256>>>(data, rank, round);
    (void)onehop::all_reduce(group, data, data, kCount, onehop::DType::f32);
    look<<<64, 256>>>(data, size, round, wrong);
  }
  check(cudaGetLastError(), "queueing");
  group.synchronize({});  // throws if an all-reduce failed, or takes too long
  unsigned long long got = 0;
  check(cudaMemcpy(&got, wrong, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
  group.barrier();
  check(cudaFree(data), "cudaFree");
  check(cudaFree(wrong), "cudaFree");
  return got;
}

}  // namespace

int main() {
  if (example::skipped()) return 0;
  std::vector<onehop::DeviceId> devices;
  for (int i = 0; i < std::min(example::gpus(), onehop::kMaxDevices); ++i) devices.emplace_back(i);
  // To let each thread join by itself, use Group::join with one memory_store().
  std::vector<onehop::Group> groups = onehop::Group::join_local(devices);
  std::atomic<unsigned long long> wrong{0};
  onehop::on_every_rank(groups, [&](onehop::Group& group) { wrong += run_rank(group); });
  std::printf("%zu threads with a GPU each added up %u elements %d times, %llu are wrong\n", groups.size(),
              kCount, kRounds, wrong.load());
  return wrong == 0 ? 0 : 1;
}
