// SPDX-License-Identifier: Apache-2.0
// Point-to-point data between host ranks, moved unchanged: the basis of send and recv. Unlike the steps
// of step_barrier.h it involves only two ranks.
//
// Protocol. Every ordered pair of ranks has a ring of slots and two counts that only grow. The sender writes
// a chunk to the next slot and increments the count of sent chunks. The receiver reads it and increments the
// count of taken chunks. A slot is reused once its chunk was taken, so the sender is never more than kSlots
// chunks ahead. Nothing else is needed, whatever the timing: a pair's chunks arrive in the order in which
// they were sent, and pairs are independent.
//
// A message may also be one chunk that holds only the address of its data, in memory that the receiver can read
// (peer_memory.h). It is taken when the receiver has read all of the data, and the sender waits for that.
//
// The ring and the count of sent chunks lie in the sender's segment, the count of taken chunks in the
// receiver's. A rank writes only to its own memory. So a rank that was stopped and left behind cannot damage
// the others when it wakes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/host/copy.h"
#include "os/doorbell.h"
#include "os/untrusted.h"

namespace onehop::host {

/// The properties of a message on which sender and receiver must agree.
struct Message {
  std::uint64_t count = 0;
  std::uint8_t dtype = 0;

  bool operator==(const Message&) const = default;
};

class PointToPoint {
 public:
  /// Slots per ordered pair: one is being written, one is being read, and the others bridge the time for
  /// which a rank loses its core.
  static constexpr std::size_t kSlots = 4;

  struct Member {
    os::Doorbell* bell = nullptr;
    std::byte* area = nullptr;  ///< area_bytes() in size, zero when the group starts
  };

  /// All slots from which a rank sends share a quarter of its scratch memory, within bounds. Chunks should
  /// fit the second-level caches and yet be large enough to justify the cost of counting.
  [[nodiscard]] static std::size_t slot_bytes(int ranks, std::size_t scratch_bytes) {
    const std::size_t share = scratch_bytes / 4 / (static_cast<std::size_t>(std::max(ranks - 1, 1)) * kSlots);
    return std::clamp<std::size_t>(share / 64 * 64, 1 << 10, 64 << 10);
  }
  [[nodiscard]] static std::size_t area_bytes(int ranks, std::size_t scratch_bytes) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(Lines) + (n - 1) * kSlots * slot_bytes(ranks, scratch_bytes);
  }

  PointToPoint() = default;
  PointToPoint(int rank, const std::vector<Member>& members, std::size_t scratch_bytes)
      : slot_bytes_(slot_bytes(static_cast<int>(members.size()), scratch_bytes)), peers_(members.size()) {
    const int ranks = static_cast<int>(members.size());
    const auto lines = [&](int of, int with) {
      return reinterpret_cast<Lines*>(members[static_cast<std::size_t>(of)].area) + with;
    };
    const auto ring = [&](int from, int to) {
      const auto place = static_cast<std::size_t>(to < from ? to : to - 1);  // index among the others
      return reinterpret_cast<std::byte*>(lines(from, ranks)) + place * kSlots * slot_bytes_;
    };
    for (int r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      Peer& peer = peers_[static_cast<std::size_t>(r)];
      peer.bell = members[static_cast<std::size_t>(r)].bell;
      peer.own = lines(rank, r);
      peer.theirs = lines(r, rank);
      peer.outbox = ring(rank, r);
      peer.inbox = ring(r, rank);
    }
  }

  /// Capacity of a chunk.
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  /// Capacity of a ring. The sender of a longer message waits for its receiver in any case.
  [[nodiscard]] std::size_t ring_bytes() const { return kSlots * slot_bytes_; }

  /// Whether a slot for rank r is free.
  [[nodiscard]] bool has_room(int r) {
    Peer& peer = at(r);
    if (peer.sent - peer.credit < kSlots) return true;
    // acquire: pairs with the exchange in take(); the receiver has read the slot. seq_cst for wait_on().
    peer.credit = peer.theirs->taken.chunks.load(std::memory_order_seq_cst);
    return peer.sent - peer.credit < kSlots;
  }
  /// Sends rank r a chunk of a message. Precondition: has_room(r).
  void put(int r, const Message& message, const std::byte* data, std::size_t bytes) {
    put(r, message, data, bytes, false);
  }
  /// Shows rank r the data of a message, which must stay as it is until all_taken(r). Precondition: has_room(r).
  void show(int r, const Message& message, const std::byte* data) {
    put(r, message, reinterpret_cast<const std::byte*>(&data), sizeof data, true);
  }
  /// Whether rank r has taken everything that was sent to it.
  [[nodiscard]] bool all_taken(int r) {
    Peer& peer = at(r);
    // acquire: pairs with the exchange in take(). seq_cst for wait_on().
    peer.credit = peer.theirs->taken.chunks.load(std::memory_order_seq_cst);
    return peer.credit == peer.sent;
  }
  /// Whether a chunk from rank r has arrived and not been taken.
  [[nodiscard]] bool has_chunk(int r) {
    Peer& peer = at(r);
    if (peer.arrived != peer.taken) return true;
    // acquire: pairs with the exchange in put(). seq_cst for wait_on().
    peer.arrived = peer.theirs->sent.chunks.load(std::memory_order_seq_cst);
    return peer.arrived != peer.taken;
  }
  /// The message that contains the next chunk from rank r. Precondition: has_chunk(r).
  [[nodiscard]] Message message(int r) const {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    const std::size_t slot = peer.taken % kSlots;
    return {.count = peer.theirs->sent.counts[slot].read(), .dtype = peer.theirs->sent.dtypes[slot].read()};
  }
  /// Where the data of the next chunk from rank r lies in the memory of its process; nullptr: in the chunk.
  /// Precondition: has_chunk(r).
  [[nodiscard]] const std::byte* shown(int r) const {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    const std::size_t slot = peer.taken % kSlots;
    if (peer.theirs->sent.shown[slot].read() == 0) return nullptr;
    using Address = os::Untrusted<std::uint64_t>;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in the sender's process
    return reinterpret_cast<const std::byte*>(
        reinterpret_cast<const Address*>(peer.inbox + slot * slot_bytes_)->read());
  }
  /// Takes the next chunk from rank r. Precondition: has_chunk(r).
  void take(int r, std::byte* data, std::size_t bytes) {
    Peer& peer = at(r);
    copy(data, peer.inbox + peer.taken % kSlots * slot_bytes_, bytes);
    // release: pairs with the load in has_room(); the chunk and its message have been read. seq_cst and a
    // read-modify-write because ring() needs it.
    peer.own->taken.chunks.exchange(++peer.taken, std::memory_order_seq_cst);
    os::ring(*peer.bell);
  }

 private:
  /// 128 bytes apart, because CPUs prefetch neighboring lines in pairs.
  struct alignas(128) SentLine {
    std::atomic<std::uint64_t> chunks{0};
    // The message of each slot's chunk. It travels in the same cache line as the count that announces the
    // chunk.
    std::array<os::Untrusted<std::uint64_t>, kSlots> counts;
    std::array<os::Untrusted<std::uint8_t>, kSlots> dtypes;
    std::array<os::Untrusted<std::uint8_t>, kSlots> shown;  ///< 1: the chunk is an address
  };
  static_assert(sizeof(std::uint64_t) * (1 + kSlots) + 2 * kSlots <= 64, "they share one cache line");
  struct alignas(128) TakenLine {
    std::atomic<std::uint64_t> chunks{0};
  };
  /// At the start of a rank's area, one for each other rank; the rings follow.
  struct Lines {
    SentLine sent;    ///< to that rank
    TakenLine taken;  ///< from that rank
  };

  /// This rank's state for its traffic with another rank.
  struct Peer {
    os::Doorbell* bell = nullptr;
    Lines* own = nullptr;
    const Lines* theirs = nullptr;
    std::byte* outbox = nullptr;
    const std::byte* inbox = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t credit = 0;  ///< number of those taken, when last checked
    std::uint64_t taken = 0;
    std::uint64_t arrived = 0;  ///< number sent, when last checked
  };
  [[nodiscard]] Peer& at(int r) { return peers_[static_cast<std::size_t>(r)]; }

  void put(int r, const Message& message, const std::byte* data, std::size_t bytes, bool shown) {
    Peer& peer = at(r);
    const std::size_t slot = peer.sent % kSlots;
    copy(peer.outbox + slot * slot_bytes_, data, bytes);
    SentLine& line = peer.own->sent;
    line.counts[slot].write(message.count);
    line.dtypes[slot].write(message.dtype);
    line.shown[slot].write(shown ? 1 : 0);
    // release: pairs with the load in has_chunk(); publishes the chunk and its message. seq_cst and a
    // read-modify-write because ring() needs it.
    line.chunks.exchange(++peer.sent, std::memory_order_seq_cst);
    os::ring(*peer.bell);
  }

  std::size_t slot_bytes_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace onehop::host
