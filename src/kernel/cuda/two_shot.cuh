// Two-shot all-reduce by pushing: a reduce-scatter, then an all-gather, with the fewest bytes on the links.
//
// Protocol, per pass. The pass's data is cut into one piece per rank. Block b of every rank works on the same
// part of each piece, and with block b of its peers alone:
//   1. It writes its part of piece r to rank r's slot (phase 0, source), raises its flag there, and waits for
//   the
//      flags of its peers.
//   2. It adds up its part of its own piece from the slots and its own input, writes the sums to its output
//   and to
//      every peer's slot (phase 1, owner), raises its second flag, and waits for those of its peers.
//   3. It copies its part of the other pieces to its output.
// Flags carry the epoch, in 64 bits, and only rise. By the rule of call.cuh slots of the epoch's parity are
// free. In place works: a part of the input is read, by the same block, before its flag is raised, and only
// then written.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

template <class E, Op kOp, int kMaxRanks>
class TwoShot {
 public:
  __device__ __forceinline__ explicit TwoShot(const AllReduceParams& p) : p_(p) {}

  __device__ __forceinline__ void run() {
    Control& control = reinterpret_cast<SegmentHead*>(p_.segments[p_.rank])->control;
    enter();
    const Start start = read_start(control);
    for (std::uint32_t pass = 0; pass < p_.passes; ++pass) {
      begin_pass(pass, start.epoch + pass);
      scatter();
      __syncthreads();
      if (pass == 0 && threadIdx.x == blockDim.x - 1) advance(control, start, p_.passes);
      if (!exchange(0, start.failed)) return;
      reduce();
      __syncthreads();
      if (!exchange(1, false)) return;
      gather();
    }
  }

 private:
  static constexpr std::size_t kWidth = 16;
  using Data = Packet<16>;

  __device__ __forceinline__ void begin_pass(std::uint32_t pass, std::uint64_t epoch) {
    epoch_ = epoch;
    parity_ = static_cast<unsigned>(epoch & 1);
    base_ = pass * p_.pass_bytes;
    const std::size_t left = p_.bytes - base_;
    const std::size_t bytes = left < p_.pass_bytes ? left : p_.pass_bytes;
    const std::size_t ranks = static_cast<std::size_t>(p_.size);
    piece_ = ((bytes + ranks - 1) / ranks + kWidth - 1) / kWidth * kWidth;
    end_ = base_ + bytes;
    // The same whole number of packets for every block, but the last.
    const std::size_t packets = piece_ / kWidth;
    const std::size_t each = (packets + gridDim.x - 1) / gridDim.x;
    begin_ = each * blockIdx.x * kWidth;
    const std::size_t stop = begin_ + each * kWidth;
    stop_ = stop < piece_ ? stop : piece_;
  }

  /// Where byte `at` of rank r's piece lies in the message.
  [[nodiscard]] __device__ __forceinline__ std::size_t place(int r, std::size_t at) const {
    return base_ + static_cast<std::size_t>(r) * piece_ + at;
  }
  [[nodiscard]] __device__ __forceinline__ int right(int step) const {
    return p_.rank + step < p_.size ? p_.rank + step : p_.rank + step - p_.size;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* slot(int on, unsigned phase, int of) const {
    return p_.segments[on] + p_.layout.piece_slot(parity_, phase, of);
  }
  [[nodiscard]] __device__ __forceinline__ Data load(std::size_t at) const {
    return load_packet<typename E::Stored, 16>(p_.in, at, end_, p_.aligned);
  }
  __device__ __forceinline__ void store(std::size_t at, const Data& data) const {
    store_packet<typename E::Stored, 16>(p_.out, at, end_, p_.aligned, data);
  }
  template <class F>
  __device__ __forceinline__ void for_part(F&& f) const {
    for (std::size_t at = begin_ + threadIdx.x * kWidth; at < stop_; at += blockDim.x * kWidth) f(at);
  }

  __device__ __forceinline__ void scatter() const {
    for_part([&](std::size_t at) {
      Data data[kMaxRanks];
#pragma unroll
      for (int step = 1; step < kMaxRanks; ++step) {
        if (step < p_.size) data[step] = load(place(right(step), at));
      }
#pragma unroll
      for (int step = 1; step < kMaxRanks; ++step) {
        if (step < p_.size) store_whole(slot(right(step), 0, p_.rank) + at, data[step]);
      }
    });
  }

  __device__ __forceinline__ void reduce() const {
    for_part([&](std::size_t at) {
      Data data[kMaxRanks];
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size) {
          data[r] = r == p_.rank ? load(place(r, at)) : load_whole<16>(slot(p_.rank, 0, r) + at);
        }
      }
      Accumulator<E, kOp, 16> total(data[0]);
#pragma unroll
      for (int r = 1; r < kMaxRanks; ++r) {
        if (r < p_.size) total.add(data[r]);
      }
      const Data sum = total.result(p_.size);
#pragma unroll
      for (int step = 1; step < kMaxRanks; ++step) {
        if (step < p_.size) store_whole(slot(right(step), 1, p_.rank) + at, sum);
      }
      store(place(p_.rank, at), sum);
    });
  }

  __device__ __forceinline__ void gather() const {
    for_part([&](std::size_t at) {
      Data data[kMaxRanks];
#pragma unroll
      for (int step = 1; step < kMaxRanks; ++step) {
        if (step < p_.size) data[step] = load_whole<16>(slot(p_.rank, 1, right(step)) + at);
      }
#pragma unroll
      for (int step = 1; step < kMaxRanks; ++step) {
        if (step < p_.size) store(place(right(step), at), data[step]);
      }
    });
  }

  /// Tells every peer's block that this one's part of the phase is there, and waits for theirs.
  __device__ __forceinline__ bool exchange(unsigned phase, bool failed) const {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < p_.size && peer != p_.rank && !failed) {
      const auto flag = [&](int on, int of) {
        return &reinterpret_cast<SegmentHead*>(p_.segments[on])->flags[phase][blockIdx.x][of];
      };
      // release.sys: pairs with the acquire below, in the peer's block; with the barrier before it, it
      // publishes what all threads of this block wrote to the peer.
      device::store_release(flag(peer, p_.rank), epoch_);
      const std::uint64_t* const theirs = flag(p_.rank, peer);
      failed = !device::wait_until(p_.guard, peer, DeviceFault::all_reduce,
                                   [&] { return device::load_acquire(theirs) >= epoch_; });
    }
    return __syncthreads_or(failed ? 1 : 0) == 0;
  }

  const AllReduceParams& p_;
  std::uint64_t epoch_ = 0;
  unsigned parity_ = 0;
  std::size_t base_ = 0;   ///< of the pass in the message
  std::size_t end_ = 0;    ///< of the pass in the message
  std::size_t piece_ = 0;  ///< bytes
  std::size_t begin_ = 0;  ///< this block's part of every piece
  std::size_t stop_ = 0;
};

}  // namespace onehop::cuda
