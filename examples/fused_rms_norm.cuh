// All-reduce, residual and RMSNorm in one kernel: what 17_cuda_fused_rms_norm.cu launches, checks and times.
//
//   h = sum over ranks of x + residual, in f32 and in the order of ranks, rounded to bf16
//   out = h / sqrt(mean(h * h) + epsilon) * weight, for each row
//
// Every rank has its own x, and the same residual and weight; every rank gets the same out and h, to the bit,
// and whichever of the three ways it is done:
//
// - Packets: every rank sends its rows to all and adds up all that came. A row is the work of several blocks:
//   each sends a share of it and writes that share of the results, but takes the whole row, since it needs
//   the whole row's sum of squares. Packets may be read often; so few rows still use many multiprocessors.
// - One-shot: the same over mail, a block per row.
// - Two-shot: every rank adds up its share of the elements, adds the residual and sends the result to all.
// Then
//   every rank normalises all rows: sending normalised rows as well would take twice the bytes.
#pragma once

#include <onehop/device/channel.cuh>
#include <onehop/device/tile.cuh>

namespace example {

using Bf16 = __nv_bfloat16;

constexpr unsigned kThreads = 512;  // of every block
constexpr unsigned kWarps = kThreads / 32;
constexpr int kElements = onehop::device::kPerVector<Bf16>;  // a thread's load and store: 16 bytes

/// Blocks for which a multiprocessor has registers: the next kernel's beside this one's, unless what a thread
/// takes at a time needs them all.
template <class Use, int kRanks, int kVectors>
constexpr int kBlocks = kRanks > 4 || Use::Channel::kWidening* kRanks* kVectors > 8 ? 1 : 2;

/// What a kernel works on: `tokens` rows of kVectors * kThreads vectors. Results are apart from inputs.
struct NormParams {
  const uint4* x = nullptr;
  const uint4* residual = nullptr;
  const uint4* weight = nullptr;  ///< one row
  uint4* out = nullptr;
  uint4* h = nullptr;
  unsigned tokens = 0;
  float epsilon = 0;
};

/// This kernel may have been set up while the one before it was running: it waits for its end.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
/// The next kernel may be set up from now on.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Kernels are made for exactly kRanks ranks, or, with kMaxDevices, for any number.
template <int kRanks>
__device__ __forceinline__ bool exists(int rank, int ranks) {
  return kRanks < onehop::kMaxDevices || rank < ranks;
}

__device__ __forceinline__ void add(float (&sums)[kElements], const uint4& vector) {
  float more[kElements];
  onehop::device::widen<Bf16>(vector, more);
#pragma unroll
  for (int e = 0; e < kElements; ++e) sums[e] += more[e];
}

/// The sum over ranks and the residual, rounded.
template <int kRanks>
__device__ __forceinline__ uint4 add_up(const uint4 (&parts)[kRanks], int ranks, const uint4& residual) {
  float sums[kElements];
  onehop::device::widen<Bf16>(parts[0], sums);
#pragma unroll
  for (int r = 1; r < kRanks; ++r) {
    if (exists<kRanks>(r, ranks)) add(sums, parts[r]);
  }
  add(sums, residual);
  return onehop::device::narrow<Bf16>(sums);
}

/// This thread's v-th vector of a row that a block works on.
template <int kVectors>
__device__ __forceinline__ unsigned vector_of(unsigned row, int v) {
  return (row * kVectors + static_cast<unsigned>(v)) * kThreads + threadIdx.x;
}

/// Normalises rows, of which each thread of a block has its kVectors vectors.
template <int kVectors>
class RowNorm {
 public:
  __device__ __forceinline__ explicit RowNorm(const NormParams& p) : p_(p) {}

  /// By all threads; writes the results of those that are to. False, for all: some thread has not got its
  /// vectors.
  __device__ __forceinline__ bool finish(unsigned row, const uint4 (&h)[kVectors], bool complete,
                                         bool writes) {
    uint4 weights[kVectors];  // on their way while the squares are added up
#pragma unroll
    for (int v = 0; v < kVectors; ++v) weights[v] = p_.weight[vector_of<kVectors>(0, v)];
    float elements[kVectors][kElements];
    float squares = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      onehop::device::widen<Bf16>(h[v], elements[v]);
#pragma unroll
      for (int e = 0; e < kElements; ++e) squares = fmaf(elements[v][e], elements[v][e], squares);
    }
    if (!sum_over_block(squares, complete)) return false;
    const float scale = rsqrtf(fmaf(squares, 1.0f / (kVectors * kThreads * kElements), p_.epsilon));
    if (!writes) return true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float weight[kElements];
      onehop::device::widen<Bf16>(weights[v], weight);
#pragma unroll
      for (int e = 0; e < kElements; ++e) elements[v][e] *= scale * weight[e];
      const unsigned at = vector_of<kVectors>(row, v);
      p_.out[at] = onehop::device::narrow<Bf16>(elements[v]);
      p_.h[at] = h[v];
    }
    return true;
  }

 private:
  /// In one order, whatever the grid. One barrier per row: the next row's sums go elsewhere, and with the
  /// barrier of that row everyone has read this one's.
  __device__ __forceinline__ bool sum_over_block(float& value, bool complete) {
    __shared__ float4 sums[2][kWarps / 4];
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
    float4* const here = sums[turn_];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(here)[threadIdx.x / 32] = value;
    if (__syncthreads_and(complete ? 1 : 0) == 0) return false;
    value = 0;
#pragma unroll
    for (unsigned i = 0; i < kWarps / 4; ++i) {
      const float4 four = here[i];
      value += (four.x + four.y) + (four.z + four.w);
    }
    return true;
  }

  const NormParams& p_;
  unsigned turn_ = 0;
};

/// The step-th rank to the right: when everyone begins with its neighbour, no two meet at a receiver.
__device__ __forceinline__ int right_of(const onehop::ChannelSlots& slots, int step) {
  const int rank = slots.rank + step;
  return rank < slots.size ? rank : rank - slots.size;
}

/// Packets and one-shot. Each row is the work of `parts` blocks, a power of two not above kWarps; 1 for mail,
/// which is taken once.
template <class Use, int kRanks, int kVectors>
__global__ void __launch_bounds__(kThreads, kBlocks<Use, kRanks, kVectors>)
    one_shot(const __grid_constant__ typename Use::Channel channel, const __grid_constant__ NormParams p,
             const unsigned log_parts) {
  const onehop::ChannelSlots& slots = channel.slots;
  const unsigned first = blockIdx.x >> log_parts;
  const unsigned stride = gridDim.x >> log_parts;
  // Whole warps have a share or none.
  const bool shares = ((threadIdx.x / 32 ^ blockIdx.x) & ((1u << log_parts) - 1)) == 0;

  wait_for_previous();
  // The first row's data is on its way before the count of uses is asked for.
  uint4 own[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) own[v] = p.x[vector_of<kVectors>(first, v)];
  const Use use(channel);
  if (shares) {
    for (unsigned row = first;;) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int step = 1; step < kRanks; ++step) {
          if (exists<kRanks>(step, slots.size))
            use.put(right_of(slots, step), vector_of<kVectors>(row, v), own[v]);
        }
      }
      row += stride;
      if (row >= p.tokens) break;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) own[v] = p.x[vector_of<kVectors>(row, v)];
    }
  }
  let_next_start();
  use.advance(4 * p.tokens * kVectors * kThreads);

  RowNorm<kVectors> norm(p);
  for (unsigned row = first; row < p.tokens; row += stride) {
    uint4 h[kVectors];
    bool complete = true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const unsigned at = vector_of<kVectors>(row, v);
      const uint4 residual = p.residual[at];
      uint4 parts[kRanks];
      complete = use.take_all(at, p.x[at], parts) && complete;
      h[v] = add_up(parts, slots.size, residual);
    }
    if (!norm.finish(row, h, complete, shares)) return;
  }
}

/// The elements are cut into a piece per rank, of `piece` vectors. A slot has the sender's part of the
/// receiver's piece, and behind it the sender's own piece, added up.
template <int kRanks, int kVectors>
__global__ void __launch_bounds__(kThreads, kBlocks<onehop::device::Mail, kRanks, kVectors>)
    two_shot(const __grid_constant__ onehop::MailChannel channel, const __grid_constant__ NormParams p,
             const unsigned piece) {
  const onehop::ChannelSlots& slots = channel.slots;
  const unsigned total = p.tokens * kVectors * kThreads;
  const unsigned first = blockIdx.x * kThreads + threadIdx.x;
  const unsigned stride = gridDim.x * kThreads;
  const auto vectors_of = [&](unsigned begin) { return begin < total ? min(piece, total - begin) : 0; };

  wait_for_previous();
  const onehop::device::Mail mail(channel);
  // All that goes to one peer, then to the next.
#pragma unroll 1
  for (int step = 1; step < slots.size; ++step) {
    const int owner = right_of(slots, step);
    const unsigned begin = static_cast<unsigned>(owner) * piece;
    const unsigned count = vectors_of(begin);
    for (unsigned i = first; i < count; i += stride) mail.put(owner, i, p.x[begin + i]);
  }
  let_next_start();
  mail.advance(2 * piece * 4);

  const unsigned begin = static_cast<unsigned>(slots.rank) * piece;
  const unsigned count = vectors_of(begin);
  for (unsigned i = first; i < count; i += stride) {
    const uint4 own = p.x[begin + i];
    const uint4 residual = p.residual[begin + i];
    uint4 parts[kRanks];
    if (!mail.take_all(i, own, parts)) break;
    const uint4 h = add_up(parts, slots.size, residual);
    // To itself as well: whichever block has the row finds it there.
#pragma unroll
    for (int step = 0; step < kRanks; ++step) {
      if (exists<kRanks>(step, slots.size)) mail.put(right_of(slots, step), piece + i, h);
    }
  }

  RowNorm<kVectors> norm(p);
  for (unsigned row = blockIdx.x; row < p.tokens; row += gridDim.x) {
    uint4 h[kVectors];
    bool complete = true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      unsigned i = vector_of<kVectors>(row, v);
      int owner = 0;
      while (i >= piece) i -= piece, ++owner;
      complete = mail.take(owner, piece + i, h[v]) && complete;
    }
    if (!norm.finish(row, h, complete, true)) return;
  }
}

/// What follows an all-reduce when nothing is fused: p.x is the sum. A block per row.
template <int kVectors>
__global__ void __launch_bounds__(kThreads, 2) add_and_normalise(const __grid_constant__ NormParams p) {
  wait_for_previous();
  let_next_start();
  RowNorm<kVectors> norm(p);
  uint4 h[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const unsigned at = vector_of<kVectors>(blockIdx.x, v);
    const uint4 sum[1] = {p.x[at]};
    h[v] = add_up(sum, 1, p.residual[at]);
  }
  (void)norm.finish(blockIdx.x, h, true, true);
}

}  // namespace example
