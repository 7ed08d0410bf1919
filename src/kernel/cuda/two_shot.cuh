// Two-shot all-reduce by pushing: a reduce-scatter, then an all-gather, with the fewest bytes on the links.
//
// Protocol. The message is cut into one piece per rank. Block b of every rank works on the same part of each
// piece, and with block b of its peers alone:
//   1. It writes its part of piece r to rank r's slot (phase 0, source), raises its flag there, and waits for
//      the flags of its peers.
//   2. It adds up its part of its own piece from the slots and its own input, writes the sums to its output
//      and to every peer's slot (phase 1, owner), raises its second flag, and waits for those of its peers.
//   3. It copies its part of the other pieces to its output.
// Flags carry the epoch, in 64 bits, and only rise. By the rule of two calls (call.cuh) slots of the epoch's
// parity are free. In place works: a part of the input is read, by the same block, before its flag is raised,
// and only then written.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

/// kRanks: how many there are, or kMaxDevices: at most so many.
template <class E, Op kOp, int kRanks>
class TwoShot {
 public:
  __device__ __forceinline__ explicit TwoShot(const AllReduceParams& p) : p_(p) {}

  __device__ __forceinline__ void run() {
    wait_for_previous();
    epoch_ = read_epoch(*p_.control);
    // The same whole number of packets for every block, but the last.
    const std::size_t each = (p_.packets + gridDim.x - 1) / gridDim.x;
    begin_ = each * blockIdx.x * kWidth;
    const std::size_t stop = begin_ + each * kWidth;
    stop_ = stop < p_.piece ? stop : p_.piece;

    scatter();
    let_next_start(p_);
    settle(*p_.control, epoch_);  // a barrier, too
    if (!exchange(0)) return;
    reduce();
    __syncthreads();
    if (!exchange(1)) return;
    gather();
  }

 private:
  static constexpr std::size_t kWidth = 16;
  using Data = Packet<16>;

  [[nodiscard]] __device__ __forceinline__ int size() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }
  /// Where byte `at` of rank r's piece lies in the message.
  [[nodiscard]] __device__ __forceinline__ std::size_t place(int r, std::size_t at) const {
    return static_cast<unsigned>(r) * p_.piece + at;
  }
  [[nodiscard]] __device__ __forceinline__ int right(int step) const {
    return p_.rank + step < size() ? p_.rank + step : p_.rank + step - size();
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t parity() const {
    return (epoch_ & 1) != 0 ? p_.parity_stride : 0;
  }
  /// This rank's slot on the step-th rank to the right.
  [[nodiscard]] __device__ __forceinline__ std::byte* outbox(int step, unsigned phase) const {
    return p_.outbox[step] + parity() + phase * p_.phase_stride;
  }
  /// Rank r's slot here.
  [[nodiscard]] __device__ __forceinline__ std::byte* inbox(int r, unsigned phase) const {
    return p_.inbox + parity() + phase * p_.phase_stride + static_cast<unsigned>(r) * p_.rank_stride;
  }
  [[nodiscard]] __device__ __forceinline__ Data load(std::size_t at) const {
    return load_packet<typename E::Stored, 16>(p_.in, at, p_.bytes, p_.aligned);
  }
  __device__ __forceinline__ void store(std::size_t at, const Data& data) const {
    store_packet<typename E::Stored, 16>(p_.out, at, p_.bytes, p_.aligned, data);
  }
  template <class F>
  __device__ __forceinline__ void for_part(F&& f) const {
    for (std::size_t at = begin_ + threadIdx.x * kWidth; at < stop_; at += blockDim.x * kWidth) f(at);
  }

  __device__ __forceinline__ void scatter() const {
    for_part([&](std::size_t at) {
      Data data[kRanks];
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < size()) data[step] = load(place(right(step), at));
      }
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < size()) store_whole<16>(outbox(step, 0) + at, data[step]);
      }
    });
  }

  __device__ __forceinline__ void reduce() const {
    for_part([&](std::size_t at) {
      Data data[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r < size()) {
          data[r] = r == p_.rank ? load(place(r, at)) : load_whole<16>(inbox(r, 0) + at);
        }
      }
      Accumulator<E, kOp, 16> total(data[0]);
#pragma unroll
      for (int r = 1; r < kRanks; ++r) {
        if (r < size()) total.add(data[r]);
      }
      const Data sum = total.result(size());
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < size()) store_whole<16>(outbox(step, 1) + at, sum);
      }
      store(place(p_.rank, at), sum);
    });
  }

  __device__ __forceinline__ void gather() const {
    for_part([&](std::size_t at) {
      Data data[kRanks];
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < size()) data[step] = load_whole<16>(inbox(right(step), 1) + at);
      }
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < size()) store(place(right(step), at), data[step]);
      }
    });
  }

  /// Tells every peer's block that this one's part of the phase is there, and waits for theirs.
  __device__ __forceinline__ bool exchange(unsigned phase) const {
    const int peer = static_cast<int>(threadIdx.x);
    bool came = true;
    if (peer < size() && peer != p_.rank) {
      // release.sys: pairs with the acquire below, in the peer's block; with the barrier before it, it
      // publishes what all threads of this block wrote to the peer.
      device::store_release(&p_.heads[peer]->flags[phase][blockIdx.x][p_.rank], epoch_);
      const std::uint64_t* const theirs = &p_.heads[p_.rank]->flags[phase][blockIdx.x][peer];
      came = device::wait_until(p_.guard, peer, DeviceFault::all_reduce,
                                [&] { return device::load_acquire(theirs) >= epoch_; });
    }
    return __syncthreads_and(came ? 1 : 0) != 0;
  }

  const AllReduceParams& p_;
  std::uint64_t epoch_ = 0;
  std::size_t begin_ = 0;  ///< this block's part of every piece
  std::size_t stop_ = 0;
};

}  // namespace onehop::cuda
