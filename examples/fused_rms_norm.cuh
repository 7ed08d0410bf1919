// SPDX-License-Identifier: Apache-2.0
// All-reduce, residual and RMSNorm in one kernel, which 17_cuda_fused_rms_norm.cu launches, checks and times.
//
//   h = sum over ranks of x + residual, in f32 and in rank order, rounded to bf16
//   out = h / sqrt(mean(h * h) + epsilon) * weight, for each row
//
// Every rank has its own x, and the same residual and weight. Every rank gets bitwise the same out and h,
// with each of the three algorithms:
//
// - Packets: every rank sends its rows to all ranks in LL packets, and sums what it receives.
// - One-shot: like packets, but through Lamport buffers, which need no flags.
// - Two-shot: every rank sums its share of the elements, adds the residual and sends the result to all ranks.
//   Then every rank normalizes all rows, since sending normalized rows as well would take twice the bytes.
#pragma once

#include <cooperative_groups.h>

#include <onehop/device/channel.cuh>
#include <onehop/device/element.cuh>
#include <onehop/device/reduce.cuh>

namespace example {

using Bf16 = __nv_bfloat16;

constexpr int kElements = onehop::device::kPerVector<Bf16>;  // one thread's load and store: 16 bytes
constexpr unsigned kMostThreads = 512;                       // per block; at least 64
constexpr unsigned kMostWarps = 32;                          // that share a row

/// The arguments of a kernel. Outputs must not overlap inputs.
struct NormParams {
  const uint4* x = nullptr;
  const uint4* residual = nullptr;
  const uint4* weight = nullptr;  ///< one row
  uint4* out = nullptr;
  uint4* h = nullptr;
  unsigned tokens = 0;     ///< rows
  unsigned vectors = 0;    ///< per row, 16 bytes each: kVectors per thread of the blocks that share it
  unsigned log_parts = 0;  ///< 2^log_parts blocks share a row
  float mean = 0;          ///< factor that turns a row's sum into its mean
  float epsilon = 0;
};

/// Waits until the previous kernel has ended: with programmatic dependent launch, this one may have started
/// earlier.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
/// Lets the next kernel start from now on.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// The blocks that share a row, and the sum that they compute together. This spreads few rows over many SMs.
/// It needs compute capability 9.0, where a block can write to its neighbors' shared memory.
///
/// A row's partial sums carry a flag, as packets do. A barrier would first wait for everything that this
/// block has sent to other GPUs.
class RowBlocks {
 public:
  /// Call before wait_for_previous(): it takes a while, and touches nothing that the previous kernel uses.
  __device__ __forceinline__ explicit RowBlocks(unsigned log_parts)
      : log_parts_(log_parts), part_(blockIdx.x & (parts() - 1)), partials_(shared()) {
    if (threadIdx.x < 2 * kMostWarps) (&partials_[0][0])[threadIdx.x] = 0;
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (log_parts_ != 0) cooperative_groups::this_cluster().sync();
#endif
  }

  /// The first row of this block, how many rows run at a time, and this thread's position in a row.
  [[nodiscard]] __device__ __forceinline__ unsigned first_row() const {
    return blockIdx.x >> log_parts_;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned rows_at_a_time() const {
    return gridDim.x >> log_parts_;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned column(int v) const {
    return ((static_cast<unsigned>(v) << log_parts_) | part_) * blockDim.x + threadIdx.x;
  }

  /// Sums over the row in one fixed order. All threads must call it. Returns false on all threads if one of
  /// them was not complete.
  [[nodiscard]] __device__ __forceinline__ bool sum(float& value, bool complete) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = (part_ * blockDim.x + threadIdx.x) / 32;
    const unsigned warps = (blockDim.x << log_parts_) / 32;
    ++rows_;
    auto& partials = partials_[rows_ & 1];
    value = sum_over_warp(value);
    Partial partial = static_cast<Partial>(rows_) << 33 | __float_as_uint(value);
    if (__all_sync(~0u, complete ? 1 : 0) != 0) partial |= kComplete;
    // Sends one word, which arrives whole, to each block. The buffers of consecutive rows are separate. A
    // block that has all partials of this row knows that all blocks have read those of the previous row.
    // After the last row, a block that has all partials is written to no more.
    if (lane < parts()) *of_block(&partials[warp], lane) = partial;
    if (lane < warps) {
      do {
        partial = partials[lane];
      } while (partial >> 33 != rows_);
    } else {
      partial = kComplete;
    }
    value = sum_over_warp(__uint_as_float(static_cast<std::uint32_t>(partial)));
    return __all_sync(~0u, (partial & kComplete) != 0 ? 1 : 0) != 0;
  }

 private:
  /// Row number << 33 | kComplete | a float.
  using Partial = unsigned long long;
  static constexpr Partial kComplete = 1ull << 32;
  using Partials = volatile Partial[2][kMostWarps];

  [[nodiscard]] __device__ __forceinline__ unsigned parts() const {
    return 1u << log_parts_;
  }
  static __device__ __forceinline__ Partials& shared() {
    __shared__ Partials partials;
    return partials;
  }
  __device__ __forceinline__ volatile Partial* of_block(volatile Partial* own, unsigned block) const {
#if __CUDA_ARCH__ >= 900
    return cooperative_groups::this_cluster().map_shared_rank(const_cast<Partial*>(own), block);
#else
    (void)block;
    return own;
#endif
  }
  static __device__ __forceinline__ float sum_over_warp(float value) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
    return value;
  }

  const unsigned log_parts_;
  const unsigned part_;
  Partials& partials_;
  unsigned rows_ = 0;
};

/// Kernels are instantiated for exactly kRanks ranks, or, with kMaxDevices, for any number.
template <int kRanks>
__device__ __forceinline__ bool exists(int rank, int ranks) {
  return kRanks < onehop::kMaxDevices || rank < ranks;
}

/// The sum over ranks and the residual, rounded. The residual is added in f32, by the epilogue of the reduction.
template <int kRanks>
__device__ __forceinline__ uint4 add_up(const uint4 (&parts)[kRanks], int ranks, const uint4& residual) {
  namespace device = onehop::device;
  using Format = device::element::bf16;
  const auto add_residual = [&](device::Elements<Format, 16>& sums) {
    device::combine_into<onehop::ReduceOp::sum>(sums,
                                                device::Elements<Format, 16>(device::packet_of(residual)));
  };
  return device::vector_of(device::reduce<Format, onehop::ReduceOp::sum, 16, kRanks>(
      ranks, [&](int r) { return device::packet_of(parts[r]); }, add_residual));
}

/// Normalizes a row of which this thread has kVectors vectors, and writes both results. All threads must call
/// it. Returns false on all threads if one of them was not complete.
template <int kVectors>
__device__ __forceinline__ bool normalize(const NormParams& p, RowBlocks& row_blocks, unsigned row,
                                          const uint4 (&h)[kVectors], bool complete) {
  uint4 weights[kVectors];  // loaded while the squares are summed
#pragma unroll
  for (int v = 0; v < kVectors; ++v) weights[v] = p.weight[row_blocks.column(v)];
  float elements[kVectors][kElements];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    onehop::device::widen<Bf16>(h[v], elements[v]);
#pragma unroll
    for (int e = 0; e < kElements; ++e) squares = fmaf(elements[v][e], elements[v][e], squares);
  }
  if (!row_blocks.sum(squares, complete)) return false;
  const float scale = rsqrtf(fmaf(squares, p.mean, p.epsilon));
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float weight[kElements];
    onehop::device::widen<Bf16>(weights[v], weight);
#pragma unroll
    for (int e = 0; e < kElements; ++e) elements[v][e] *= scale * weight[e];
    const unsigned at = row * p.vectors + row_blocks.column(v);
    p.out[at] = onehop::device::narrow<Bf16>(elements[v]);
    p.h[at] = h[v];
  }
  return true;
}

/// The step-th rank to the right: every rank begins with its neighbor, so no two write to one receiver at a
/// time.
__device__ __forceinline__ int right_of(const onehop::ChannelSlots& slots, int step) {
  const int rank = slots.rank + step;
  return rank < slots.size ? rank : rank - slots.size;
}

/// The number of resident blocks per SM that registers allow. The next kernel's block fits beside this one's,
/// unless the vectors per thread need its registers.
template <class Use, int kRanks>
constexpr int kBlocks = Use::Channel::kWidening* kRanks > 4 ? 1 : 2;

/// The kernel of the packet and one-shot algorithms.
template <class Use, int kRanks, int kVectors>
__global__ void __launch_bounds__(kMostThreads, kBlocks<Use, kRanks>)
    one_shot(const __grid_constant__ typename Use::Channel channel, const __grid_constant__ NormParams p) {
  const onehop::ChannelSlots& slots = channel.slots;
  RowBlocks row_blocks(p.log_parts);
  const unsigned first = row_blocks.first_row();
  const unsigned stride = row_blocks.rows_at_a_time();
  const auto load_own = [&](uint4(&own)[kVectors], unsigned row) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) own[v] = p.x[row * p.vectors + row_blocks.column(v)];
  };

  wait_for_previous();
  // Load the first row before waiting for the channel's use count.
  uint4 own[kVectors];
  load_own(own, first);
  const Use use(channel);
  for (unsigned row = first;;) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (exists<kRanks>(step, slots.size))
          use.put(right_of(slots, step), row * p.vectors + row_blocks.column(v), own[v]);
      }
    }
    row += stride;
    if (row >= p.tokens) break;
    load_own(own, row);
  }
  let_next_start();
  use.advance(4 * p.tokens * p.vectors);

  for (unsigned row = first; row < p.tokens; row += stride) {
    uint4 h[kVectors];
    bool complete = true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const unsigned at = row * p.vectors + row_blocks.column(v);
      const uint4 residual = p.residual[at];
      uint4 parts[kRanks];
      complete = use.take_all(at, p.x[at], parts) && complete;
      h[v] = add_up(parts, slots.size, residual);
    }
    if (!normalize(p, row_blocks, row, h, complete)) return;
  }
}

/// The elements are divided into one piece per rank, of `piece` vectors. A slot has the sender's part of the
/// receiver's piece, followed by the sender's own piece, reduced.
template <int kRanks, int kVectors>
__global__ void __launch_bounds__(kMostThreads, kBlocks<onehop::device::LamportBuffers, kRanks>)
    two_shot(const __grid_constant__ onehop::LamportChannel channel, const __grid_constant__ NormParams p,
             const unsigned piece) {
  const onehop::ChannelSlots& slots = channel.slots;
  RowBlocks row_blocks(p.log_parts);
  const unsigned total = p.tokens * p.vectors;
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned stride = gridDim.x * blockDim.x;
  const auto count_from = [&](unsigned begin) { return begin < total ? min(piece, total - begin) : 0; };

  wait_for_previous();
  const onehop::device::LamportBuffers buffers(channel);
  // Send everything to one peer, then to the next.
#pragma unroll 1
  for (int step = 1; step < slots.size; ++step) {
    const int owner = right_of(slots, step);
    const unsigned begin = static_cast<unsigned>(owner) * piece;
    const unsigned count = count_from(begin);
    for (unsigned i = first; i < count; i += stride) buffers.put(owner, i, p.x[begin + i]);
  }
  let_next_start();
  buffers.advance(2 * piece * 4);

  const unsigned begin = static_cast<unsigned>(slots.rank) * piece;
  const unsigned count = count_from(begin);
  for (unsigned i = first; i < count; i += stride) {
    const uint4 residual = p.residual[begin + i];
    uint4 parts[kRanks];
    if (!buffers.take_all(i, p.x[begin + i], parts)) break;
    const uint4 h = add_up(parts, slots.size, residual);
    // Send to itself as well: the block that processes the row finds it there.
#pragma unroll
    for (int step = 0; step < kRanks; ++step) {
      if (exists<kRanks>(step, slots.size)) buffers.put(right_of(slots, step), piece + i, h);
    }
  }

  for (unsigned row = row_blocks.first_row(); row < p.tokens; row += row_blocks.rows_at_a_time()) {
    uint4 h[kVectors];
    bool complete = true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      unsigned i = row * p.vectors + row_blocks.column(v);
      int owner = 0;
      while (i >= piece) i -= piece, ++owner;
      complete = buffers.take(owner, piece + i, h[v]) && complete;
    }
    if (!normalize(p, row_blocks, row, h, complete)) return;
  }
}

/// The second kernel of the unfused algorithm: p.x is the sum. One block per row.
template <int kVectors>
__global__ void __launch_bounds__(kMostThreads, 2) add_and_normalize(const __grid_constant__ NormParams p) {
  RowBlocks row_blocks(0);
  wait_for_previous();
  let_next_start();
  uint4 h[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const unsigned at = blockIdx.x * p.vectors + row_blocks.column(v);
    const uint4 sum[1] = {p.x[at]};
    h[v] = add_up(sum, 1, p.residual[at]);
  }
  (void)normalize(p, row_blocks, blockIdx.x, h, true);
}

}  // namespace example
