// One-shot all-reduce with the flag in the data: everyone sends its input to everyone, and each adds up what
// it has received.
//
// Protocol. Data travels in packets of 8 bytes, each as two words of 8 bytes that carry 4 bytes of data and
// the epoch: {d0, e, d1, e}. An aligned word of 8 bytes arrives whole, so a receiver that finds the epoch has
// the data: no fence, no barrier, one trip. A rank writes packet i of its input to slot (parity of the epoch,
// own rank), packet i, on every peer; on each rank the same thread handles packet i. By the rule of call.cuh
// the slot is free: its last reader read it two epochs ago. Flags in a slot are older epochs of the same
// parity; they are never cleared. The 32 bits of an epoch in a flag come round after 2^32 passes: every
// kScrubPeriod passes, two passes in a row (one per parity) rewrite their slots to the end, so that no flag
// grows that old.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

/// Two words of 4 bytes of data and the flag each.
__device__ __forceinline__ void send_packet(std::byte* to, const Packet<8>& packet, std::uint32_t flag) {
  const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
  // relaxed.sys: each word by itself pairs with its load in receive; nothing else is ordered by it.
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(high | packet.words[0]),
               "l"(high | packet.words[1])
               : "memory");
}

struct Words {
  std::uint64_t low;
  std::uint64_t high;
};
__device__ __forceinline__ Words peek_packet(const std::byte* from) {
  Words words;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(words.low), "=l"(words.high)
               : "l"(from)
               : "memory");
  return words;
}
__device__ __forceinline__ bool carries(const Words& words, std::uint32_t flag) {
  return static_cast<std::uint32_t>(words.low >> 32) == flag &&
         static_cast<std::uint32_t>(words.high >> 32) == flag;
}

template <class E, Op kOp, int kMaxRanks>
class OneShot {
 public:
  __device__ __forceinline__ explicit OneShot(const AllReduceParams& p) : p_(p) {}

  __device__ __forceinline__ void run() {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned threads = gridDim.x * blockDim.x;
    Control& control = reinterpret_cast<SegmentHead*>(p_.segments[p_.rank])->control;

    enter();
    // The first packet and the epoch are read at the same time.
    Packet<8> own = load(0, thread);
    const Start start = read_start(control);
    for (std::uint32_t pass = 0; pass < p_.passes; ++pass) {
      begin_pass(start.epoch + pass);
      const unsigned packets = packets_of(pass);
      for (unsigned i = thread; i < packets || (pass == 0 && i == thread); i += threads) {
        const bool present = i < packets;
        if (present) {
          if (pass != 0 || i != thread) own = load(pass, i);
          send(i, own);
        }
        if (pass == 0 && i == thread) {
          // Everyone has read the epoch: it may move on, while the data is on its way.
          if (__syncthreads_or(start.failed ? 1 : 0) != 0) return;
          if (threadIdx.x == blockDim.x - 1) advance(control, start, p_.passes);
        }
        if (present && !receive(pass, i, own)) return;
      }
      if (flag_ % kScrubPeriod < 2) {
        for (unsigned i = packets + thread; i < kPacketSlotBytes / 8; i += threads) send(i, {});
      }
    }
  }

 private:
  __device__ __forceinline__ unsigned packets_of(std::uint32_t pass) const {
    const std::size_t left = p_.bytes - pass * p_.pass_bytes;
    return static_cast<unsigned>(((left < p_.pass_bytes ? left : p_.pass_bytes) + 7) / 8);
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t place(std::uint32_t pass, unsigned i) const {
    return pass * p_.pass_bytes + std::size_t{i} * 8;
  }
  [[nodiscard]] __device__ __forceinline__ Packet<8> load(std::uint32_t pass, unsigned i) const {
    return load_packet<typename E::Stored, 8>(p_.in, place(pass, i), p_.bytes, p_.aligned);
  }

  __device__ __forceinline__ void begin_pass(std::uint64_t epoch) {
    flag_ = static_cast<std::uint32_t>(epoch);
    parity_ = flag_ & 1;
  }

  __device__ __forceinline__ void send(unsigned i, const Packet<8>& packet) const {
    const std::size_t at = p_.layout.packet_slot(parity_, p_.rank) + std::size_t{i} * 16;
#pragma unroll
    for (int step = 1; step < kMaxRanks; ++step) {
      // Each rank begins with its right neighbour, so that no link is everyone's first.
      if (step >= p_.size) break;
      const int to = p_.rank + step < p_.size ? p_.rank + step : p_.rank + step - p_.size;
      send_packet(p_.segments[to] + at, packet, flag_);
    }
  }

  __device__ __forceinline__ bool receive(std::uint32_t pass, unsigned i, const Packet<8>& own) const {
    const std::byte* const slots = p_.segments[p_.rank] + std::size_t{i} * 16;
    Words words[kMaxRanks];
    unsigned missing = 0;
    const auto look = [&] {
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size && r != p_.rank) words[r] = peek_packet(slots + p_.layout.packet_slot(parity_, r));
      }
      missing = 0;
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size && r != p_.rank && !carries(words[r], flag_)) missing |= 1u << r;
      }
      return missing == 0;
    };
    const auto awaited = [&] { return __ffs(static_cast<int>(missing)) - 1; };
    std::uint64_t deadline = 0;
    for (int polls = 1; !look(); ++polls) {
      if (polls % device::kPollsPerLook != 0) continue;
      deadline = device::consult(p_.guard, awaited(), DeviceFault::all_reduce, deadline);
      if (deadline == device::kHopeless) return false;
      if (deadline != device::kLookOnceMore) continue;
      deadline = 0;
      const int gone = awaited();
      if (look()) break;
      if ((missing >> gone & 1u) == 0) continue;  // it came; another one is missing still
      device::record_fault(p_.guard, DeviceFault::left, gone, DeviceFault::all_reduce);
      return false;
    }
    const auto packet_of = [&](int r) {
      return r == p_.rank ? own
                          : Packet<8>{static_cast<std::uint32_t>(words[r].low),
                                      static_cast<std::uint32_t>(words[r].high)};
    };
    Accumulator<E, kOp, 8> total(packet_of(0));
#pragma unroll
    for (int r = 1; r < kMaxRanks; ++r) {
      if (r < p_.size) total.add(packet_of(r));
    }
    store_packet<typename E::Stored, 8>(p_.out, place(pass, i), p_.bytes, p_.aligned, total.result(p_.size));
    return true;
  }

  const AllReduceParams& p_;
  std::uint32_t flag_ = 0;
  unsigned parity_ = 0;
};

}  // namespace onehop::cuda
