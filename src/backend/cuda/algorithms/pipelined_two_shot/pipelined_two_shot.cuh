// SPDX-License-Identifier: Apache-2.0
// Pipelined two-shot all-reduce: a reduce-scatter and an all-gather that push data. It sends the fewest
// possible bytes over the links, and one launch handles any length.
//
// The message is cut into one piece per rank, and every piece into chunks. Chunk c of all pieces is processed
// by one block on every rank, which communicates only with its counterparts. Its warps have four roles:
//   senders      write chunk c of piece r to a slot on rank r (phase 0, by source);
//   reducers     wait for the peers' chunks c of the own piece, add them to the own input, and write the sums
//                to the output and to a slot on every peer (phase 1, by owner);
//   gatherers    wait for the peers' sums and copy them to the output;
//   signallers   signal the peers, chunk by chunk, that all senders (reducers) of this block are done with it.
//                A release waits until earlier stores are performed, which takes microseconds on a busy link.
//                Warps of their own keep that wait away from the others and let several releases overlap.
//
// Slots. Every block has a ring of kPipelineDepth slots of each kind, and counts chunks through all calls (the
// counts are in the scratch memory). Chunk g may overwrite chunk h = g - kPipelineDepth:
//   in phase 0, once the receiver has reduced chunk h, which is known when its sums of that chunk have arrived.
//   A sender waits until the gatherers of its own block have seen those of all peers;
//   in phase 1, once the receiver has copied chunk h. It sends chunk g only after that (see phase 0), and a
//   reducer waits for every rank's chunk g anyway.
// So no rank waits for credits from another one, and a call may begin whatever state the peers are in.
//
// Flags carry g + 1 in 64 bits and only increase. In-place calls work: a part of the output is written only
// after the input there has been sent or added.
#pragma once

#include "backend/cuda/algorithms/pipelined_two_shot/pipelined_two_shot.h"
#include "backend/cuda/packet.cuh"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/sync/progress.cuh"

namespace onehop::cuda {

/// kRanks: the number of ranks, or kMaxDevices for any number up to that.
template <class E, Ops kOps, int kRanks>
class PipelinedTwoShot {
 public:
  /// Number of chunks that each warp of this block has processed in this launch.
  struct Progress {
    std::uint32_t sent[warp_roles(kRanks).senders];
    std::uint32_t reduced[warp_roles(kRanks).reducers];
    std::uint32_t gathered[warp_roles(kRanks).gatherers];
  };

  __device__ __forceinline__ PipelinedTwoShot(const PipelineParams& p, Progress& progress)
      : p_(p), progress_(progress), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x < sizeof(Progress) / sizeof(std::uint32_t)) {
      reinterpret_cast<std::uint32_t*>(&progress_)[threadIdx.x] = 0;
    }
    wait_for_previous();
    std::uint64_t& count = p_.heads[p_.rank]->chunks[blockIdx.x];
    first_ = count;
    const bool failed = device::has_failed(p_.guard);
    __syncthreads();

    const std::size_t chunks = (p_.piece + p_.chunk - 1) / p_.chunk;
    chunks_ = blockIdx.x < chunks
                  ? static_cast<std::uint32_t>((chunks - blockIdx.x + gridDim.x - 1) / gridDim.x)
                  : 0;
    int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < kRoles.senders) {
      if (!failed) scatter(warp);
      return;
    }
    warp -= kRoles.senders;
    if (warp < kRoles.reducers) return failed ? poison_sums(0, warp) : reduce(warp);
    warp -= kRoles.reducers;
    if (warp < kRoles.gatherers) return failed ? poison_gathered(0, warp) : gather(warp);
    if (failed) return;
    warp -= kRoles.gatherers;
    if (warp == 0 && lane_ == 0) count = first_ + chunks_;  // for the next launch
    if (warp < kRoles.signallers) return signal(0, warp, progress_.sent);
    signal(1, warp - kRoles.signallers, progress_.reduced);
  }

 private:
  static constexpr WarpRoles kRoles = warp_roles(kRanks);
  static constexpr unsigned kWidth = 16;
  using Data = Packet<16>;

  __device__ __forceinline__ void scatter(int warp) const {
    constexpr int kAtOnce = kRanks == 2 ? 4 : kRanks == 4 ? 2 : 1;
    for (std::uint32_t c = 0; c < chunks_; ++c) {
      if (c >= kPipelineDepth && !await_warps(progress_.gathered, c - kPipelineDepth + 1)) return;
      const Chunk chunk(*this, c);
      std::size_t from[kRanks];
      std::byte* to[kRanks];
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        from[step] = offset(chunk, right(step));
        to[step] = p_.outbox[step] + chunk.slot;
      }
      for_packets<kAtOnce>(chunk, warp, kRoles.senders, [&](auto&& each) {
        Data data[kAtOnce][kRanks];
        each([&](int i, unsigned at) {
#pragma unroll
          for (int step = 1; step < kRanks; ++step) {
            if (step < size()) data[i][step] = load(chunk, from[step] + at);
          }
        });
        each([&](int i, unsigned at) {
#pragma unroll
          for (int step = 1; step < kRanks; ++step) {
            if (step < size()) store_whole<16>(to[step] + at, data[i][step]);
          }
        });
      });
      raise(progress_.sent[warp], c + 1);
    }
  }

  __device__ __forceinline__ void reduce(int warp) const {
    constexpr int kAtOnce = kRanks == 2 ? 2 : 1;
    for (std::uint32_t c = 0; c < chunks_; ++c) {
      if (!await_peers(0, c)) return poison_sums(c, warp);
      const Chunk chunk(*this, c);
      const std::size_t own = offset(chunk, p_.rank);
      const std::byte* from[kRanks];
      std::byte* to[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        from[r] = p_.inbox + chunk.slot + static_cast<unsigned>(r) * p_.rank_stride;
        to[r] = p_.outbox[r] + p_.phase_stride + chunk.slot;
      }
      for_packets<kAtOnce>(chunk, warp, kRoles.reducers, [&](auto&& each) {
        Data data[kAtOnce][kRanks];
        each([&](int i, unsigned at) {
#pragma unroll
          for (int r = 0; r < kRanks; ++r) {
            if (r < size()) data[i][r] = r == p_.rank ? load(chunk, own + at) : load_whole<16>(from[r] + at);
          }
        });
        each([&](int i, unsigned at) {
          const Data sum =
              cuda::reduce<E, kOps, 16, kRanks>(size(), p_.scale, [&](int r) { return data[i][r]; });
#pragma unroll
          for (int step = 1; step < kRanks; ++step) {
            if (step < size()) store_whole<16>(to[step] + at, sum);
          }
          store(chunk, own + at, sum);
        });
      });
      raise(progress_.reduced[warp], c + 1);
    }
  }

  __device__ __forceinline__ void gather(int warp) const {
    constexpr int kAtOnce = kRanks == 2 ? 4 : kRanks == 4 ? 2 : 1;
    for (std::uint32_t c = 0; c < chunks_; ++c) {
      // Waits for this block's own warps first, so that a rank that has not sent anything is not blamed for
      // the delay.
      if (!await_warps(progress_.reduced, c + 1) || !await_peers(1, c)) return poison_gathered(c, warp);
      const Chunk chunk(*this, c);
      const std::byte* from[kRanks];
      std::size_t to[kRanks];
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        from[step] =
            p_.inbox + p_.phase_stride + chunk.slot + static_cast<unsigned>(right(step)) * p_.rank_stride;
        to[step] = offset(chunk, right(step));
      }
      for_packets<kAtOnce>(chunk, warp, kRoles.gatherers, [&](auto&& each) {
        Data data[kAtOnce][kRanks];
        each([&](int i, unsigned at) {
#pragma unroll
          for (int step = 1; step < kRanks; ++step) {
            if (step < size()) data[i][step] = load_whole<16>(from[step] + at);
          }
        });
        each([&](int i, unsigned at) {
#pragma unroll
          for (int step = 1; step < kRanks; ++step) {
            if (step < size()) store(chunk, to[step] + at, data[i][step]);
          }
        });
      });
      raise(progress_.gathered[warp], c + 1);
    }
  }

  template <int kWarps>
  __device__ __forceinline__ void signal(int phase, int id, const std::uint32_t (&done)[kWarps]) const {
    for (std::uint32_t c = static_cast<std::uint32_t>(id); c < chunks_; c += kRoles.signallers) {
      if (!await_warps(done, c + 1)) return;
      const std::uint64_t g = first_ + c;
      if (is_peer(lane_)) {
        // release.sys: pairs with the acquire in await_peers() in the peer's block. Publishes the stores of
        // the warps from which this warp has just acquired.
        device::store_release(&p_.heads[lane_]->flags[phase][blockIdx.x][g % kPipelineDepth][p_.rank], g + 1);
      }
    }
  }

  /// Chunk c of this block.
  struct Chunk {
    std::size_t begin;  ///< offset in every piece
    unsigned bytes;     ///< a multiple of 16
    std::size_t slot;   ///< offset from the first slot
    bool whole;         ///< no packet of it, in any piece, is misaligned or extends beyond the message

    __device__ __forceinline__ Chunk(const PipelinedTwoShot& self, std::uint32_t c) {
      const PipelineParams& p = self.p_;
      begin = (std::size_t{c} * gridDim.x + blockIdx.x) * p.chunk;
      const std::size_t rest = p.piece - begin;
      bytes = static_cast<unsigned>(rest < p.chunk ? rest : p.chunk);
      slot = (blockIdx.x * kPipelineDepth + (self.first_ + c) % kPipelineDepth) * p.slot_stride;
      whole = p.aligned && static_cast<unsigned>(self.size() - 1) * p.piece + begin + bytes <= p.bytes;
    }
  };

  /// Visits the packets of a chunk that belong to this warp, kAtOnce at a time. f receives a function, which
  /// calls its argument with each packet's number and its offset in the chunk.
  template <int kAtOnce, class F>
  __device__ __forceinline__ void for_packets(const Chunk& chunk, int warp, int warps, F&& f) const {
    const unsigned stride = static_cast<unsigned>(warps) * 32 * kWidth;
    for (unsigned at = (static_cast<unsigned>(warp) * 32 + lane_) * kWidth; at < chunk.bytes;
         at += kAtOnce * stride) {
      f([&](auto&& g) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (at + static_cast<unsigned>(i) * stride < chunk.bytes) {
            g(i, at + static_cast<unsigned>(i) * stride);
          }
        }
      });
    }
  }
  /// The call has failed: fill what this warp has not written of the output with NaN, from chunk c on.
  __device__ __forceinline__ void poison_sums(std::uint32_t c, int warp) const {
    poison_chunks(p_, c, p_.rank, 1, static_cast<unsigned>(warp), kRoles.reducers);
  }
  __device__ __forceinline__ void poison_gathered(std::uint32_t c, int warp) const {
    poison_chunks(p_, c, right(1), size() - 1, static_cast<unsigned>(warp), kRoles.gatherers);
  }
  /// Of this block's chunks from c on, in the pieces of `pieces` ranks, which begin with rank r: the packets of one of
  /// `warps` warps. Static, because a call would force the members of this object into memory.
  static __device__ __noinline__ void poison_chunks(const PipelineParams& p, std::uint32_t c, int r,
                                                    int pieces, unsigned warp, unsigned warps) {
    if (!p.poison) return;
    const std::size_t stride = std::size_t{gridDim.x} * p.chunk;
    for (std::size_t begin = c * stride + blockIdx.x * p.chunk; begin < p.piece; begin += stride) {
      const std::size_t end = p.piece - begin < p.chunk ? p.piece : begin + p.chunk;
      for (std::size_t at = begin + (warp * 32 + threadIdx.x % 32) * kWidth; at < end;
           at += warps * 32 * kWidth) {
        for (int i = 0; i < pieces; ++i) {
          const int piece = r + i < p.size ? r + i : r + i - p.size;
          store_nan<kWidth>(p.out, static_cast<unsigned>(piece) * p.piece + at, p.bytes);
        }
      }
    }
  }
  /// Offset in the message of a chunk of rank r's piece.
  [[nodiscard]] __device__ __forceinline__ std::size_t offset(const Chunk& chunk, int r) const {
    return static_cast<unsigned>(r) * p_.piece + chunk.begin;
  }
  [[nodiscard]] __device__ __forceinline__ Data load(const Chunk& chunk, std::size_t at) const {
    if (chunk.whole) return load_whole<16>(p_.in + at);
    return load_packet<typename E::Stored, 16>(p_.in, at, p_.bytes, p_.aligned);
  }
  __device__ __forceinline__ void store(const Chunk& chunk, std::size_t at, const Data& data) const {
    if (chunk.whole) return store_whole<16>(p_.out + at, data);
    store_packet<typename E::Stored, 16>(p_.out, at, p_.bytes, p_.aligned, data);
  }
  [[nodiscard]] __device__ __forceinline__ int size() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }
  [[nodiscard]] __device__ __forceinline__ int right(int step) const {
    return p_.rank + step < size() ? p_.rank + step : p_.rank + step - size();
  }
  [[nodiscard]] __device__ __forceinline__ bool is_peer(unsigned r) const {
    return r < static_cast<unsigned>(size()) && r != static_cast<unsigned>(p_.rank);
  }

  /// Waits until all of these warps have done `count` chunks.
  template <int kWarps>
  [[nodiscard]] __device__ __forceinline__ bool await_warps(const std::uint32_t (&done)[kWarps],
                                                            std::uint32_t count) const {
    return await_raised(p_.guard, done, kWarps, count);
  }
  /// Called by all lanes of a warp: waits until chunk c of this phase has arrived from every peer.
  [[nodiscard]] __device__ __forceinline__ bool await_peers(int phase, std::uint32_t c) const {
    constexpr DeviceFault::Phase kFault = DeviceFault::phase_of(Collective::all_reduce);
    const std::uint64_t g = first_ + c;
    bool came = true;
    if (is_peer(lane_)) {
      const std::uint64_t* const flag =
          &p_.heads[p_.rank]->flags[phase][blockIdx.x][g % kPipelineDepth][lane_];
      // acquire.sys: pairs with the release in signal().
      came = device::wait_until(p_.guard, static_cast<int>(lane_), kFault,
                                [=] { return device::load_relaxed(flag) > g; }) &&
             device::load_acquire(flag) > g;
    }
    const bool all = __all_sync(0xffffffff, came) != 0;
    __syncwarp();
    return all;
  }

  const PipelineParams& p_;
  Progress& progress_;
  const unsigned lane_;
  std::uint64_t first_ = 0;   ///< number of this block's first chunk of the launch
  std::uint32_t chunks_ = 0;  ///< chunks of this block in this launch
};

template <class E, Ops kOps, int kRanks>
__device__ __forceinline__ void pipelined_two_shot(const PipelineParams& params) {
  using Kernel = PipelinedTwoShot<E, kOps, kRanks>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
