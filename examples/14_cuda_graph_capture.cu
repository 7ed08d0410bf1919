// SPDX-License-Identifier: Apache-2.0
// All-reduce in a CUDA graph: captured once, replayed a thousand times, with other calls in between. Kernels
// in the graph check every element of every result.
//
//   onehop launch -n 2 -- ./cuda_graph_capture
#include "cuda_example.h"

namespace {

constexpr unsigned kMost = 1 << 18;

// A replay repeats a graph unchanged: values that change from step to step are in memory.
enum Counter { kStep, kWrong, kCounters };

__host__ __device__ std::uint32_t value(int rank, std::uint32_t step, unsigned i) {
  return static_cast<std::uint32_t>(rank + 1) * 2654435761u + step * 40503u + i;
}

__global__ void fill(std::uint32_t* in, unsigned count, int rank, const std::uint32_t* counters) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    in[i] = value(rank, counters[kStep], i);
}

__global__ void look(const std::uint32_t* out, unsigned count, int ranks, std::uint32_t* counters) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    std::uint32_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, counters[kStep], i);
    if (out[i] != sum) atomicAdd(&counters[kWrong], 1u);
  }
}

__global__ void advance(std::uint32_t* counters) {
  ++counters[kStep];
}

}  // namespace

int main() {
  using example::check;
  const onehop::JobInfo job = example::job();
  if (example::skipped(job.size)) return 0;
  onehop::Group group = onehop::Group::from_env({.device = onehop::DeviceId{job.rank.value}});
  check(cudaSetDevice(job.rank.value), "cudaSetDevice");
  auto* const in = example::allocate<std::uint32_t>(kMost);
  auto* const out = example::allocate<std::uint32_t>(kMost);
  auto* const counters = example::allocate<std::uint32_t>(kCounters);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");

  const auto queue_step = [&](unsigned count) {
    fill<<<32, 256, 0, stream>>>(in, count, job.rank.value, counters);
    (void)onehop::all_reduce(group, in, out, count, onehop::DType::u32, onehop::ReduceOp::sum, {stream});
    look<<<32, 256, 0, stream>>>(out, count, group.size(), counters);
    advance<<<1, 1, 0, stream>>>(counters);
    check(cudaGetLastError(), "queueing a step");
  };
  queue_step(1);  // loads this program's kernels
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (const unsigned count : {1000u, 50'001u, kMost}) queue_step(count);  // recorded, not run
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");

  constexpr unsigned kReplays = 1000;
  for (unsigned i = 0; i < kReplays; ++i) {
    check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
    if (i % 3 == 0) queue_step(1 + i * 97 % kMost);  // eager, on the same group and stream
    if (i % 100 == 99) group.synchronize({stream});  // throws if a call failed, or takes too long
  }
  group.synchronize({stream});
  std::uint32_t got[kCounters] = {};
  check(cudaMemcpy(got, counters, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  const bool all = got[kStep] == 1 + 3 * kReplays + (kReplays + 2) / 3;
  std::printf("rank %d: %u replays of 3 all-reduces, %u all-reduces in all, %u elements are wrong\n",
              job.rank.value, kReplays, got[kStep], got[kWrong]);
  return all && got[kWrong] == 0 ? 0 : 1;
}
