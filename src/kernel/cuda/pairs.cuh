// Data that passes between two ranks, whatever others do: what moves among ranks as it is (exchange), and
// what is combined on arrival (combine).
//
// Every ordered pair of ranks is a queue. A message goes
//   by packets, if it is short: words that carry their flag (flagged.cuh), in a slot that two messages use in
//   turn; the flag is the message's number.
//   by bundles, if it is not so short: words of which eight carry seven of data (bundle.cuh), in another such
//   slot, which the receiver empties.
//   by chunks otherwise, dealt in turn to a number of streams. A stream is one warp of the sender, one of the
//   receiver, and a ring of slots on the receiver. The sender writes a chunk and raises `ready`; the receiver
//   takes it and raises `taken`, which frees the slot.
// Which of them, and how it is cut, follows from the message's length, which both ranks know. The counts go
// on through all launches, so a launch may begin whatever the peer is at. Only a pair that moves bytes takes
// part, and no pair waits for another: what a user may do with sends and receives works.
//
// Packets and bundles are acknowledged a launch later: when a launch receives a message, it says that those
// before it have been taken, which needs no waiting, since the kernels that took them have ended. A sender
// writes message m when m - 2 has been taken. It is behind only if the receiver is, and the receiver says so
// at the latest when it begins to wait for m - 1.
//
// In place works where a rank's input and output are the same block of data: nobody reads what a peer has not
// sent to it.
#pragma once

#include "kernel/cuda/bundle.cuh"
#include "kernel/cuda/call.cuh"
#include "kernel/cuda/flagged.cuh"

namespace onehop::cuda {

/// As in chunked.cuh: hundreds of warps may wait for long.
inline constexpr int kPairPolls = 1 << 14;

/// Bytes of the user's, of any alignment.
template <int kBytes>
__device__ __forceinline__ Packet<kBytes> load_bytes(const std::byte* data, std::size_t at,
                                                     std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data + at);
  if (at + kBytes <= bytes) {
    if (address % kBytes == 0) return load_whole<kBytes>(data + at);
    if (address % 4 == 0) {
      Packet<kBytes> packet;
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        packet.words[i] = reinterpret_cast<const std::uint32_t*>(data + at)[i];
      }
      return packet;
    }
  }
  return load_ragged<std::uint8_t, kBytes>(data, at, bytes);
}
template <int kBytes>
__device__ __forceinline__ void store_bytes(std::byte* data, std::size_t at, std::size_t bytes,
                                            const Packet<kBytes>& packet) {
  const auto address = reinterpret_cast<std::uintptr_t>(data + at);
  if (at + kBytes <= bytes) {
    if (address % kBytes == 0) return store_whole(data + at, packet);
    if (address % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        reinterpret_cast<std::uint32_t*>(data + at)[i] = packet.words[i];
      }
      return;
    }
  }
  store_ragged<std::uint8_t, kBytes>(data, at, bytes, packet);
}

/// Frees a slot, by one thread, behind a barrier of those who have read it. Relaxed: pairs with the acquire
/// in PairStream::send(), on the peer. There is nothing to publish, only loads that must come first; and they
/// have, since what they loaded has been used. A release would wait for this rank's stores.
__device__ __forceinline__ void tell_taken(std::uint64_t* count, std::uint64_t chunks) {
  device::store_relaxed(count, chunks);
}

/// Waits until a count that `peer` raises is at least `wanted`. acquire.sys: pairs with the release of
/// whoever raises it. By one thread; others follow it through a barrier.
__device__ __forceinline__ bool await_count(const PairParams& p, int peer, const std::uint64_t* count,
                                            std::uint64_t wanted) {
  return device::wait_until<kPairPolls>(p.guard, peer, p.phase,
                                        [=] { return device::load_relaxed(count) >= wanted; }) &&
         device::load_acquire(count) >= wanted;
}

/// A message by packets or bundles, by all threads of the row's blocks.
class PairMessage {
 public:
  __device__ __forceinline__ PairMessage(const PairParams& p, const PairParams::Pair& pair, int peer)
      : p_(p),
        pair_(pair),
        peer_(peer),
        first_(blockIdx.x * blockDim.x + threadIdx.x),
        stride_(gridDim.x * blockDim.x),
        sends_(at_once(pair.to)),
        receives_(at_once(pair.from)) {}

  [[nodiscard]] __device__ __forceinline__ bool idle() const { return !sends_ && !receives_; }

  /// First the data, which needs no number.
  __device__ __forceinline__ bool send() {
    const bool bundled = pair_.to.shape.bundles;
    Packet<8> packet{};
    Bundle bundle{};
    if (sends_ && bundled) {
      if (data_at(warp()) < pair_.to.bytes) bundle = load_bundle(warp());
    } else if (sends_ && place(first_) < pair_.to.bytes) {
      packet = load_bytes<8>(pair_.to.data, place(first_), pair_.to.bytes);
    }
    std::uint64_t taken = 0;
    if (sends_) {
      sent_ = load(pair_.to.messages) + 1;
      taken = device::load_relaxed(pair_.to.taken);
    }
    if (receives_) received_ = load(pair_.from.messages) + 1;
    // Relaxed: pairs with the loads of `taken` here, on the peer. What it frees was read, and cleared, by
    // kernels that have ended.
    if (receives_ && first_ == 0) device::store_relaxed(pair_.from.taken, received_ - 1);
    if (!sends_) return true;
    if (taken + 2 < sent_ && !device::wait_until<kPairPolls>(p_.guard, peer_, p_.phase, [&] {
          return device::load_relaxed(pair_.to.taken) + 2 >= sent_;
        })) {
      return false;
    }
    if (bundled) {
      send_bundles(bundle);
    } else {
      send_packets(packet);
    }
    return true;
  }

  __device__ __forceinline__ void receive() const {
    if (!receives_) return;
    if (pair_.from.shape.bundles) {
      receive_bundles();
    } else {
      receive_packets();
    }
  }

  /// By all threads, when they know the numbers: the last block of the row moves them on.
  __device__ __forceinline__ void settle() const {
    __syncthreads();
    if (threadIdx.x != blockDim.x - 1) return;
    if (gridDim.x > 1) {
      if (atomicAdd(pair_.arrivals, 1u) != gridDim.x - 1) return;
      *pair_.arrivals = 0;
    }
    if (sends_) *pair_.to.messages = sent_;
    if (receives_) *pair_.from.messages = received_;
  }

 private:
  using Slot = Flagged<Native<std::uint8_t>>;

  [[nodiscard]] static __device__ __forceinline__ bool at_once(const PairEnd& end) {
    return end.bytes != 0 && end.shape.streams == 0;
  }
  [[nodiscard]] static __device__ __forceinline__ std::uint64_t load(const std::uint64_t* count) {
    std::uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(count) : "memory");
    return value;
  }

  // Packets.

  __device__ __forceinline__ void send_packets(const Packet<8>& first) const {
    const Slot slot(sent_);
    std::byte* const to = pair_.to.packets + packet_side(sent_);
    if (place(first_) < pair_.to.bytes) Slot::send(to + offset(first_), slot.wire(first));
    for (unsigned i = first_ + stride_; place(i) < pair_.to.bytes; i += stride_) {
      Slot::send(to + offset(i), slot.wire(load_bytes<8>(pair_.to.data, place(i), pair_.to.bytes)));
    }
    if (static_cast<std::uint32_t>(sent_) % kScrubPeriod < 2) scrub(sent_, to, pair_.to.bytes);
  }
  __device__ __forceinline__ void receive_packets() const {
    const Slot slot(received_);
    const std::byte* const from = pair_.from.packets + packet_side(received_);
    for (unsigned i = first_; place(i) < pair_.from.bytes; i += stride_) {
      Slot::Wire wire;
      if (!device::wait_until<kPairPolls>(p_.guard, peer_, p_.phase, [&] {
            wire = Slot::peek(from + offset(i));
            return slot.arrived(wire);
          })) {
        return;
      }
      store_bytes<8>(pair_.from.data, place(i), pair_.from.bytes, Slot::data(wire));
    }
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(unsigned i) { return std::size_t{i} * 8; }
  [[nodiscard]] static __device__ __forceinline__ std::size_t offset(unsigned i) {
    return std::size_t{i} * Slot::kStride;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t packet_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.packet_parity : 0;
  }
  /// Gives every flag of the slot behind the message this number: none is ever 2^32 messages old.
  static __device__ __noinline__ void scrub(std::uint64_t number, std::byte* to, std::size_t bytes) {
    const Slot slot(number);
    const unsigned stride = gridDim.x * blockDim.x;
    unsigned i = static_cast<unsigned>((bytes + 7) / 8) + blockIdx.x * blockDim.x + threadIdx.x;
    for (; place(i) < kPairPacketBytes; i += stride) {
      Slot::send(to + offset(i), slot.wire({}));
    }
  }

  // Bundles: 32 of them are a warp's.

  __device__ __forceinline__ void send_bundles(Bundle bundle) const {
    std::byte* const to = pair_.to.bundles + bundle_side(sent_);
    for (unsigned i = warp(); data_at(i) < pair_.to.bytes; i += warps()) {
      if (i != warp()) bundle = load_bundle(i);
      Bundle::send(to + slot_at(i), lane(), bundle.wire());
    }
  }
  __device__ __forceinline__ void receive_bundles() const {
    std::byte* const from = pair_.from.bundles + bundle_side(received_);
    for (unsigned i = warp(); data_at(i) < pair_.from.bytes; i += warps()) {
      Bundle::Wire wire;
      if (!device::wait_until<kPairPolls>(p_.guard, peer_, p_.phase, [&] {
            wire = Bundle::peek(from + slot_at(i), lane());
            return Bundle::arrived(wire);
          })) {
        return;
      }
      Bundle::clear(from + slot_at(i), lane());
      store_bundle(i, Bundle::of(wire));
    }
  }
  /// Word w of the lanes is 256 bytes in a row.
  [[nodiscard]] __device__ __forceinline__ std::size_t word_at(unsigned i, int w) const {
    return data_at(i) + static_cast<unsigned>(w) * std::size_t{256} + lane() * std::size_t{8};
  }
  [[nodiscard]] __device__ __forceinline__ bool whole(const PairEnd& end, unsigned i) const {
    return reinterpret_cast<std::uintptr_t>(end.data) % 8 == 0 && data_at(i + 1) <= end.bytes;
  }
  [[nodiscard]] __device__ __forceinline__ Bundle load_bundle(unsigned i) const {
    Bundle bundle{};
    if (whole(pair_.to, i)) {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) bundle.words[w] = load_whole<8>(pair_.to.data + word_at(i, w));
    } else {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) {
        const std::size_t at = word_at(i, w);
        if (at < pair_.to.bytes) bundle.words[w] = load_bytes<8>(pair_.to.data, at, pair_.to.bytes);
      }
    }
    return bundle;
  }
  __device__ __forceinline__ void store_bundle(unsigned i, const Bundle& bundle) const {
    if (whole(pair_.from, i)) {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) store_whole(pair_.from.data + word_at(i, w), bundle.words[w]);
      return;
    }
#pragma unroll
    for (int w = 0; w < Bundle::kWords; ++w) {
      const std::size_t at = word_at(i, w);
      if (at < pair_.from.bytes) store_bytes<8>(pair_.from.data, at, pair_.from.bytes, bundle.words[w]);
    }
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t data_at(unsigned i) {
    return std::size_t{i} * kBundlesDataBytes;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t slot_at(unsigned i) {
    return std::size_t{i} * kBundlesSlotBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t bundle_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.bundle_parity : 0;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned warp() const {
    return first_ / 32;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned warps() const {
    return stride_ / 32;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned lane() const {
    return first_ % 32;
  }

  const PairParams& p_;
  const PairParams::Pair& pair_;
  const int peer_;
  const unsigned first_;
  const unsigned stride_;
  const bool sends_;
  const bool receives_;
  std::uint64_t sent_ = 0;      ///< number of the message that is sent in this launch
  std::uint64_t received_ = 0;  ///< and of the one that is received
};

/// One warp's stream of chunks.
class PairStream {
 public:
  __device__ __forceinline__ PairStream(const PairParams& p, const PairEnd& end, int peer, unsigned stream)
      : p_(p), end_(end), peer_(peer), stream_(stream), lane_(threadIdx.x % 32) {
    if (stream_ < end_.shape.streams) {
      begin_ = std::size_t{stream_} * end_.shape.chunk;
      count_ = end_.chunks[stream_];
    }
  }

  /// Whether there is a chunk left.
  [[nodiscard]] __device__ __forceinline__ bool more() const {
    return stream_ < end_.shape.streams && begin_ < end_.bytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t begin() const { return begin_; }
  [[nodiscard]] __device__ __forceinline__ unsigned bytes() const {
    const std::size_t rest = end_.bytes - begin_;
    return rest < end_.shape.chunk ? static_cast<unsigned>(rest) : end_.shape.chunk;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* slot() const {
    return end_.slots + (std::size_t{stream_} * kPairDepth + count_ % kPairDepth) * p_.slot;
  }
  __device__ __forceinline__ void next() {
    begin_ += std::size_t{end_.shape.streams} * end_.shape.chunk;
    ++count_;
  }
  /// For the next launch.
  __device__ __forceinline__ void keep() const {
    if (lane_ == 0 && stream_ < end_.shape.streams) end_.chunks[stream_] = count_;
  }

  /// By a warp: all chunks of the stream.
  __device__ __forceinline__ void send() {
    for (; more(); next()) {
      const bool unused = count_ < kPairDepth;
      if (!all(lane_ != 0 || unused || await(end_.chunks_taken, count_ - kPairDepth + 1))) return;
      std::byte* const to = slot();
      copy([&](unsigned at, bool whole) { return load(at, whole); },
           [&](unsigned at, bool, const Packet<16>& packet) { store_whole(to + at, packet); });
      __syncwarp();
      // release.sys: pairs with the acquire in receive() or combine.cuh, on the peer; publishes the chunk.
      if (lane_ == 0) device::store_release(end_.chunks_ready + stream_, count_ + 1);
    }
    keep();
  }
  __device__ __forceinline__ void receive() {
    for (; more(); next()) {
      if (!all(lane_ != 0 || await(end_.chunks_ready, count_ + 1))) return;
      const std::byte* const from = slot();
      copy([&](unsigned at, bool) { return load_whole<16>(from + at); },
           [&](unsigned at, bool whole, const Packet<16>& packet) { store(at, whole, packet); });
      __syncwarp();
      if (lane_ == 0) tell_taken(end_.chunks_taken + stream_, count_ + 1);
    }
    keep();
  }

  /// By a warp: whether it holds for all lanes; orders what they did before.
  [[nodiscard]] static __device__ __forceinline__ bool all(bool mine) {
    const bool every = __all_sync(0xffffffff, mine) != 0;
    __syncwarp();
    return every;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ bool await(const std::uint64_t* counts,
                                                      std::uint64_t wanted) const {
    return await_count(p_, peer_, counts + stream_, wanted);
  }
  [[nodiscard]] __device__ __forceinline__ Packet<16> load(unsigned at, bool whole) const {
    if (whole) return load_whole<16>(end_.data + begin_ + at);
    return load_bytes<16>(end_.data, begin_ + at, end_.bytes);
  }
  __device__ __forceinline__ void store(unsigned at, bool whole, const Packet<16>& packet) const {
    if (whole) return store_whole(end_.data + begin_ + at, packet);
    store_bytes<16>(end_.data, begin_ + at, end_.bytes, packet);
  }
  /// The chunk, four packets of each lane at a time.
  template <class Load, class Store>
  __device__ __forceinline__ void copy(Load&& load, Store&& store) const {
    constexpr unsigned kAtOnce = 4;
    const unsigned length = bytes();
    const bool whole = reinterpret_cast<std::uintptr_t>(end_.data) % 16 == 0 && length % 16 == 0;
    for (unsigned at = lane_ * 16; at < length; at += kAtOnce * 512) {
      Packet<16> packets[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) packets[i] = load(at + i * 512, whole);
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) store(at + i * 512, whole, packets[i]);
      }
    }
  }

  const PairParams& p_;
  const PairEnd& end_;
  const int peer_;
  const unsigned stream_;
  const unsigned lane_;
  std::size_t begin_ = 0;    ///< of the chunk, in the message
  std::uint64_t count_ = 0;  ///< number of the chunk in the stream, from the first launch on
};

/// The stream of its row that a warp has.
__device__ __forceinline__ unsigned stream_of_warp() {
  return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

/// The rank that entry i of PairParams::pairs is about.
__device__ __forceinline__ int pair_peer(const PairParams& p, unsigned i) {
  const int peer = p.rank + 1 + static_cast<int>(i);
  return peer < p.size ? peer : peer - p.size;
}

/// What stays on this rank.
__device__ __forceinline__ void keep_own(const PairParams& p) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * 16;
  for (std::size_t at = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16; at < p.bytes;
       at += 2 * stride) {
    const Packet<16> one = load_bytes<16>(p.in, at, p.bytes);
    const bool two = at + stride < p.bytes;
    const Packet<16> other = two ? load_bytes<16>(p.in, at + stride, p.bytes) : one;
    store_bytes<16>(p.out, at, p.bytes, one);
    if (two) store_bytes<16>(p.out, at + stride, p.bytes, other);
  }
}

/// All of PairParams::pairs at once. Senders have to do with the packets or bundles of both directions, too.
__device__ __forceinline__ void exchange(const PairParams& p) {
  unsigned row = blockIdx.y;
  const unsigned stream = stream_of_warp();
  if (row < p.senders) {
    const PairParams::Pair& pair = p.pairs[row];
    PairMessage message(p, pair, pair_peer(p, row));
    wait_for_previous();
    if (!message.idle() && !message.send()) return;
    let_next_start(p.early);
    if (!message.idle()) message.settle();
    if (pair.to.shape.streams != 0) PairStream(p, pair.to, pair_peer(p, row), stream).send();
    message.receive();
    return;
  }
  wait_for_previous();
  let_next_start(p.early);
  row -= p.senders;
  if (row < p.receivers) return PairStream(p, p.pairs[row].from, pair_peer(p, row), stream).receive();
  if (row == p.receivers) keep_own(p);
}

// Broadcast of long messages. The message is cut into a piece for every rank but the root, which sends each
// its piece; and each relays its piece to the others, chunk by chunk. So no rank sends or receives more than
// the message.

/// By a warp of a rank that is not the root: all chunks of a stream of its piece.
__device__ __forceinline__ void relay_stream(const PairParams& p, unsigned stream) {
  const PairShape shape = p.own_shape;
  const unsigned lane = threadIdx.x % 32;
  if (stream >= shape.streams) return;
  // Lane i minds the peer of entry i, and counts the chunks from it or to it.
  const bool minds = lane + 1 < static_cast<unsigned>(p.size);
  const bool from_root = static_cast<int>(lane) == p.root;
  const PairParams::Pair& mine = p.pairs[minds ? lane : 0];
  const PairEnd& end = from_root ? mine.from : mine.to;
  std::uint64_t count = end.chunks[stream];
  const auto slot = [&](const PairEnd& of, unsigned i) {
    return of.slots +
           (std::size_t{stream} * kPairDepth + __shfl_sync(0xffffffff, count, i) % kPairDepth) * p.slot;
  };
  for (std::size_t begin = std::size_t{stream} * shape.chunk; begin < p.bytes;
       begin += std::size_t{shape.streams} * shape.chunk) {
    bool came = true;
    if (from_root) {
      came = await_count(p, pair_peer(p, lane), end.chunks_ready + stream, count + 1);
    } else if (minds && count >= kPairDepth) {
      came = await_count(p, pair_peer(p, lane), end.chunks_taken + stream, count - kPairDepth + 1);
    }
    if (!PairStream::all(came)) return;
    const std::byte* const from = slot(p.pairs[p.root].from, static_cast<unsigned>(p.root));
    std::byte* to[kMaxDevices - 1];
#pragma unroll
    for (int i = 0; i < kMaxDevices - 1; ++i) {
      if (i + 1 < p.size) to[i] = slot(p.pairs[i].to, static_cast<unsigned>(i));
    }
    const std::size_t rest = p.bytes - begin;
    const unsigned length = rest < shape.chunk ? static_cast<unsigned>(rest) : shape.chunk;
    constexpr unsigned kAtOnce = 4;
    for (unsigned at = lane * 16; at < length; at += kAtOnce * 512) {
      Packet<16> packets[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) packets[i] = load_whole<16>(from + at + i * 512);
      }
#pragma unroll
      for (int r = 0; r < kMaxDevices - 1; ++r) {
        if (r + 1 >= p.size || r == p.root) continue;
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          if (at + i * 512 < length) store_whole(to[r] + at + i * 512, packets[i]);
        }
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) store_bytes<16>(p.out, begin + at + i * 512, p.bytes, packets[i]);
      }
    }
    __syncwarp();
    ++count;
    if (from_root) {
      tell_taken(end.chunks_taken + stream, count);
    } else if (minds) {
      // release.sys: pairs with the acquire in receive(), on the others; publishes what this warp wrote.
      device::store_release(end.chunks_ready + stream, count);
    }
  }
  if (minds) end.chunks[stream] = count;
}

/// The root alone sends; what stays on a rank is relayed, where `root` names the root's entry, and on the
/// root copied.
__device__ __forceinline__ void relay(const PairParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned stream = stream_of_warp();
  if (row < p.senders) return PairStream(p, p.pairs[row].to, pair_peer(p, row), stream).send();
  row -= p.senders;
  if (row < p.receivers) {
    if (static_cast<int>(row) != p.root) {
      PairStream(p, p.pairs[row].from, pair_peer(p, row), stream).receive();
    }
  } else if (row == p.receivers) {
    p.root >= 0 ? relay_stream(p, stream) : keep_own(p);
  }
}

}  // namespace onehop::cuda
