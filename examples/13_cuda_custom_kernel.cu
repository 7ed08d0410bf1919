// SPDX-License-Identifier: Apache-2.0
// Your own kernel over symmetric memory. It pushes a tile into its right neighbor's memory, waits for the
// left neighbor's tile and processes it. Then it adds up the results of all ranks, without leaving the GPU.
//
//   onehop launch -n 2 -- ./cuda_custom_kernel
#include <onehop/onehop.h>

#include <onehop/device/signal.cuh>
#include <vector>

#include "cuda_example.h"

namespace {

constexpr int kBlocks = 8;  // each has its own channel; all must be resident at once, since they wait
constexpr std::uint32_t kTile = 1 << 16;  // words per block

__host__ __device__ std::uint32_t value(int rank, int round, std::uint32_t i) {
  return static_cast<std::uint32_t>(rank + 1) * 1000003 + static_cast<std::uint32_t>(round) * 7919 + i;
}

__global__ void push_and_add(onehop::DeviceView view, int round, std::uint32_t* out) {
  const auto channel = static_cast<int>(blockIdx.x);
  const std::uint32_t begin = blockIdx.x * kTile + threadIdx.x;
  const std::uint32_t end = (blockIdx.x + 1) * kTile;
  const auto words_of = [&](int r) { return reinterpret_cast<std::uint32_t*>(view.peers[r]); };
  const int right = (view.rank + 1) % view.size;
  const int left = (view.rank + view.size - 1) % view.size;

  for (std::uint32_t i = begin; i < end; i += blockDim.x) words_of(right)[i] = value(view.rank, round, i);
  __syncthreads();  // the whole block has written before one thread signals
  bool came = true;
  if (threadIdx.x == 0) {
    onehop::device::put_signal(view, right, channel);
    came = onehop::device::wait_signal(view, left, channel);
  }
  if (__syncthreads_and(came ? 1 : 0) == 0) return;  // the host gets the reason

  for (std::uint32_t i = begin; i < end; i += blockDim.x) words_of(view.rank)[i] *= 3;
  if (!onehop::device::barrier(view, channel)) return;
  for (std::uint32_t i = begin; i < end; i += blockDim.x) {
    std::uint32_t sum = 0;
    for (int r = 0; r < view.size; ++r) sum += words_of(r)[i];
    out[i] = sum;
  }
  (void)onehop::device::barrier(view, channel);  // the next launch writes where peers may still read
}

}  // namespace

int main() {
  using example::check;
  const onehop::JobInfo job = example::job();
  if (example::skipped(job.size)) return 0;
  onehop::Group group = onehop::Group::from_env({.device = onehop::DeviceId{job.rank.value}});
  check(cudaSetDevice(job.rank.value), "cudaSetDevice");
  constexpr std::size_t kCount = std::size_t{kBlocks} * kTile;
  const onehop::SymmetricBuffer buffer =
      group.allocate(kCount * sizeof(std::uint32_t), {.channels = kBlocks});
  auto* const out = example::allocate<std::uint32_t>(kCount);

  constexpr int kRounds = 5;
  std::size_t wrong = 0;
  std::vector<std::uint32_t> got(kCount);
  for (int round = 0; round < kRounds; ++round) {
    push_and_add<<<kBlocks, 256>>>(buffer.device_view(std::chrono::seconds{10}), round, out);
    check(cudaGetLastError(), "launching push_and_add");
    group.synchronize({});  // throws if a wait in the kernel failed, naming the rank it waited for
    check(cudaMemcpy(got.data(), out, buffer.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::uint32_t sum = 0;
      for (int r = 0; r < group.size(); ++r) sum += 3 * value(r, round, i);
      wrong += got[i] == sum ? 0 : 1;
    }
  }
  check(cudaFree(out), "cudaFree");
  std::printf("rank %d: %d kernels pushed, signalled and added %zu words of %d ranks, %zu are wrong\n",
              job.rank.value, kRounds, kCount, group.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
