// SPDX-License-Identifier: Apache-2.0
// What the streaming kernels have in common: blocks with slices of the message, rings of Lamport buffers
// (wire/slots.cuh), and credits for what was cleared in them. One launch carries up to 4 GiB.
//
// A block has a slice of the message, and communicates only with its counterparts on the other ranks. The slice is
// cut into chunks of one packet per thread, and a block has rings of p.depth chunks, one per source (and phase).
// Thread i handles packet i of a chunk, from the input to the output. So in-place calls work.
//
// A call that fits the rings needs nothing else: by the rule of two calls (sync/call.cuh) they are empty. In longer
// calls, chunk t overwrites chunk t - depth, which the receiver must have cleared. A clear is a plain store. It may
// be performed later than the data that the same thread sends afterwards, so the arrival of data proves nothing
// about it. Therefore the receiver gives credits:
//   a mover clears its packets and raises the count of its warp               (release.cta)
//   a warp that does nothing else sees the counts of all movers' warps        (acquire.cta)
//     and gives the credit to every peer's block                              (release.sys)
//   a warp of that block receives it from all peers                           (acquire.sys)
//     and raises the count of credits                                         (release.cta)
//   a mover sees that count and overwrites the chunk.                         (acquire.cta)
// Warps of their own do this because a release waits until all stores before it are performed.
//
// No rank is blamed for a credit that it does not owe. The kernels see to it that when all warps of a block have
// cleared c + 2 chunks, the peers have cleared c. Only then does the block wait for that credit, with a deadline. This
// holds fast warps back, but the slowest warp of all ranks always has its credits: a warp clears chunk t before it
// sends chunk t + 2 + kLag, and chunks_per_credit() <= depth - 3 - kLag. It has its data, too, because the others are
// not behind. A rank that only sends waits for its credits right away, since nothing but credits holds it back.
#pragma once

#include <type_traits>

#include "backend/cuda/algorithms/streaming/streaming.h"
#include "backend/cuda/sync/progress.cuh"
#include "backend/cuda/wire/escaped.cuh"
#include "backend/cuda/wire/slots.cuh"

namespace onehop::cuda {

/// How packets of a type travel.
template <class E>
using StreamWire = std::conditional_t<device::kIsFloat<typename E::Wide>, Lamport<E>, Escaped>;

/// kRanks: the number of ranks of which a block moves packets, its own included, or kMaxDevices for any number up to that.
/// kLag: see above. kRows: the grid has several rows, each for other ranks.
template <int kRanks, unsigned kLag, bool kRows = false>
class Stream {
 public:
  /// Numbers of chunks, in shared memory.
  struct Progress {
    std::uint32_t cleared[max_threads(kRanks) / 32];  ///< by each warp of movers
    std::uint32_t credited;                           ///< by all peers
  };

 protected:
  static constexpr int kAllOthers = -1;

  /// `pieces`: the number of packets of the message for each packet of a slice.
  __device__ __forceinline__ Stream(const StreamParams& p, Progress& progress, unsigned pieces)
      : p_(p), progress_(progress) {
    const unsigned begin = blockIdx.x * p.slice;
    begin_ = std::size_t{begin} * pieces * kStreamWidth;
    ring_ = std::size_t{blockIdx.x} * p.block_stride + threadIdx.x * kStreamWidth;
    packets_ = p.packets - begin < p.slice ? p.packets - begin : p.slice;
    if (threadIdx.x < sizeof(Progress) / sizeof(std::uint32_t))
      reinterpret_cast<std::uint32_t*>(&progress_)[threadIdx.x] = 0;
  }

  /// The two warps besides the movers: the first one gives credits for what the block receives, the second one receives those for
  /// what it sends. `peer`: the only rank with which the block exchanges packets, if it is not all others.
  __device__ __forceinline__ void exchange_credits(int peer = kAllOthers, bool sends = true,
                                                   bool receives = true) {
    wait_for_previous();
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    settle(epoch);
    const unsigned chunks = this->chunks();
    if (failed || chunks <= p_.depth) return;
    const bool gives = threadIdx.x < p_.movers + 32;
    if (!(gives ? receives : sends)) return;
    const unsigned lane = threadIdx.x % 32;
    const bool is_peer = peer == kAllOthers
                             ? lane < static_cast<unsigned>(ranks()) && lane != static_cast<unsigned>(p_.rank)
                             : lane == static_cast<unsigned>(peer);
    const unsigned most = chunks - p_.depth;  // no mover waits for more
    for (unsigned count = 0; count < most;) {
      count =
          most - count < chunks_per_credit(p_.depth, kLag) ? most : count + chunks_per_credit(p_.depth, kLag);
      const std::uint64_t credit = epoch << kCreditBits | count;
      if (receives && !await_raised(p_.guard, progress_.cleared, p_.movers / 32, gives ? count : count + 2))
        return;
      if (gives) {
        // release.sys: pairs with the acquire below, on the peer. Publishes the clears that await_raised() acquired.
        if (is_peer) device::store_release(&p_.credits[lane][blockIdx.x].from[p_.rank], credit);
        continue;
      }
      bool came = true;
      if (is_peer) {
        const std::uint64_t* const word = &p_.credits[p_.rank][blockIdx.x].from[lane];
        // acquire.sys: pairs with the release above. The peer may have given further credits of this call.
        came = device::wait_until(p_.guard, static_cast<int>(lane), p_.phase,
                                  [=] { return device::load_acquire(word) >= credit; });
      }
      if (!__all_sync(0xffffffff, came)) return;
      raise(progress_.credited, count);
    }
  }

  /// Called by all threads of every block once they have used the epoch: counts this call for the next one.
  /// As settle() of sync/call.cuh, but movers and the other warps call it in different lines. __syncthreads() is
  /// barrier.cta.sync.aligned, for which all threads of a block have to execute the same instruction (PTX ISA, barrier).
  __device__ __forceinline__ void settle(std::uint64_t epoch) const {
    asm volatile("barrier.cta.sync 0;" ::: "memory");
    if constexpr (kRows) {
      if (threadIdx.x == blockDim.x - 1)
        device::add_share(*p_.counter, epoch, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    } else {
      device::advance_epoch(*p_.counter, epoch);
    }
  }

  /// A mover waits until it may send chunk t.
  [[nodiscard]] __device__ __forceinline__ bool await_credit(unsigned t) const {
    return t < p_.depth || await_raised(p_.guard, &progress_.credited, 1, t + 1 - p_.depth);
  }
  /// A mover has cleared its packets of this many chunks.
  __device__ __forceinline__ void cleared(unsigned chunks) const {
    if (p_.movers != blockDim.x) raise(progress_.cleared[threadIdx.x / 32], chunks);
  }

  // Escapes are rare, and so out of line. Static, because a call on this object would force its members into memory.
  // `rings`: those of parity 0 that `packet` belongs to.
  static __device__ __noinline__ void send_escapes(const StreamParams& p, std::byte* rings,
                                                   const std::byte* packet, unsigned byte) {
    Escaped::send_byte(escapes_of(p, rings, packet), byte);
  }
  /// Waits for the byte of a packet from this peer. 0: it has not come.
  [[nodiscard]] static __device__ __noinline__ unsigned take_escapes(const StreamParams& p, std::byte* rings,
                                                                     const std::byte* packet, int peer) {
    std::byte* const at = escapes_of(p, rings, packet);
    unsigned byte = 0;
    const bool came = device::wait_until_all(
        p.guard, p.phase, [&] { return (byte = Escaped::peek_byte(at)) != 0; }, [&] { return 1u << peer; });
    if (!came) return 0;
    Escaped::taken_byte(at);
    return byte;
  }

  /// Of the slice. A division, which one-shot's movers do not need.
  [[nodiscard]] __device__ __forceinline__ unsigned chunks() const {
    return (packets_ + p_.movers - 1) / p_.movers;
  }
  [[nodiscard]] __device__ __forceinline__ int ranks() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }

  const StreamParams& p_;
  Progress& progress_;
  std::size_t begin_;  ///< of the slice, in bytes
  std::size_t ring_;   ///< where this thread's first packet lies in a ring of this epoch's parity
  unsigned packets_;   ///< of the slice

 private:
  [[nodiscard]] static __device__ __forceinline__ std::byte* escapes_of(const StreamParams& p,
                                                                        std::byte* rings,
                                                                        const std::byte* packet) {
    auto offset = static_cast<std::size_t>(packet - rings);
    if (offset >= p.parity_stride) {
      offset -= p.parity_stride;
      rings += p.parity_stride;
    }
    return rings + p.escapes + offset / kStreamWidth;
  }
};

}  // namespace onehop::cuda
