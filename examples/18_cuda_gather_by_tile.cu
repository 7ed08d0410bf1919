// SPDX-License-Identifier: Apache-2.0
// An all-gather that feeds its consumer tile by tile. Every rank has some rows of a matrix and multiplies all
// rows of all ranks with a vector. Half of the blocks push the own rows to every rank, with a signal after
// each tile. The others multiply a tile as soon as it has arrived, while later tiles are in transit.
//
//   onehop launch -n 2 -- ./cuda_gather_by_tile
#include <onehop/device/tile.cuh>
#include <vector>

#include "cuda_example.h"

namespace {

constexpr int kChannels = onehop::SymmetricBuffer::kDefaultChannels;
constexpr int kTiles = 4 * kChannels;  // per rank
constexpr unsigned kRows = 16;         // per tile
constexpr unsigned kColumns = 1024;
constexpr unsigned kTileFloats = kRows * kColumns;
constexpr std::size_t kTileBytes = kTileFloats * sizeof(float);
constexpr unsigned kThreads = 256;

/// y = tile * x, one warp per row. Loads bypass the read-only cache, since the tile arrived while this kernel
/// was running.
__device__ void multiply(const float* tile, const float* x, float* y) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned row = threadIdx.x / 32; row < kRows; row += kThreads / 32) {
    float sum = 0;
#pragma unroll
    for (unsigned i = lane; i < kColumns / 4; i += 32) {
      const float4 a = __ldcg(reinterpret_cast<const float4*>(tile + row * kColumns) + i);
      const float4 b = reinterpret_cast<const float4*>(x)[i];
      sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (lane == 0) y[row] = sum;
  }
}

/// In each role, one block per peer and channel. Tile t of a rank uses channel t % kChannels, in order, so
/// that the k-th signal of a channel belongs to its k-th tile. Blocks that push wait for no peer.
__global__ void __launch_bounds__(kThreads)
    gather_and_multiply(const __grid_constant__ onehop::DeviceView view, const float* own, const float* x,
                        float* y) {
  const auto roles = static_cast<unsigned>(view.size * kChannels);
  const bool pushes = blockIdx.x < roles;
  const int peer = static_cast<int>(blockIdx.x % roles) / kChannels;
  const int channel = static_cast<int>(blockIdx.x) % kChannels;
  for (int tile = channel; tile < kTiles; tile += kChannels) {
    const int row = (pushes ? view.rank : peer) * kTiles + tile;  // in tiles, of the gathered matrix
    const std::size_t at = static_cast<std::size_t>(row) * kTileBytes;
    if (pushes) {
      onehop::device::put_tile(view, peer, channel, at, own + tile * kTileFloats, kTileBytes);
    } else {
      if (!onehop::device::wait_tile(view, peer, channel)) return;  // the host gets the reason
      multiply(reinterpret_cast<const float*>(view.peers[view.rank] + at), x, y + row * kRows);
    }
  }
}

// Small integers: every sum is exact, in any order.
float element(int rank, int round, unsigned i) {
  return static_cast<float>((i * 2654435761u + static_cast<unsigned>(rank * 31 + round) * 40503u) >> 28) - 8;
}

template <class Value>
void upload(float* to, std::vector<float>& values, const Value& value) {
  for (unsigned i = 0; i < values.size(); ++i) values[i] = value(i);
  example::check(cudaMemcpy(to, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice),
                 "cudaMemcpy");
}

}  // namespace

int main() {
  using example::check;
  const onehop::JobInfo job = example::job();
  if (example::skipped(job.size)) return 0;
  onehop::Group group = onehop::Group::from_env({.device = onehop::DeviceId{job.rank.value}});
  check(cudaSetDevice(job.rank.value), "cudaSetDevice");
  const auto ranks = static_cast<std::size_t>(group.size());
  const onehop::SymmetricBuffer gathered = group.allocate(ranks * kTiles * kTileBytes);
  std::vector<float> rows(kTiles * kTileFloats), vector(kColumns), y(ranks * kTiles * kRows);
  auto* const own = example::allocate<float>(rows.size());
  auto* const x = example::allocate<float>(vector.size());
  auto* const out = example::allocate<float>(y.size());
  upload(x, vector, [](unsigned i) { return element(-1, 0, i); });

  std::size_t wrong = 0;
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    upload(own, rows, [&](unsigned i) { return element(job.rank.value, round, i); });
    const auto blocks = static_cast<unsigned>(2 * ranks * kChannels);
    gather_and_multiply<<<blocks, kThreads>>>(gathered.device_view(std::chrono::seconds{10}), own, x, out);
    check(cudaGetLastError(), "launching gather_and_multiply");
    gathered.barrier(onehop::Stream{});  // before any rank's next round: all have read their rows
    group.synchronize({});               // throws if a wait failed, naming the rank it waited for
    check(cudaMemcpy(y.data(), out, y.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (unsigned row = 0; row < y.size(); ++row) {
      const auto rank = static_cast<int>(row / (kTiles * kRows));
      const unsigned begin = row % (kTiles * kRows) * kColumns;
      float sum = 0;
      for (unsigned i = 0; i < kColumns; ++i) sum += element(rank, round, begin + i) * vector[i];
      wrong += y[row] == sum ? 0 : 1;
    }
  }
  for (float* each : {own, x, out}) check(cudaFree(each), "cudaFree");
  std::printf("rank %d: %d times %zu rows of %d ranks multiplied as they came, %zu are wrong\n",
              job.rank.value, kRounds, y.size(), group.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
