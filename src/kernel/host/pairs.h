// SPDX-License-Identifier: Apache-2.0
// Data that one host rank hands another, as it is: what send and recv are made of. Unlike Team's steps
// (team.h) this concerns two ranks and nobody else.
//
// Protocol. From every rank to every other one there is a ring of slots and two counts that only grow. The
// sender puts a chunk into the next slot and counts it as sent; the receiver takes it out and counts it as
// taken. A slot is used again when what it held was taken: the sender is never more than kSlots chunks ahead.
// Nothing else is needed, whatever is sent when: a pair's chunks arrive in the order in which they were sent,
// and pairs do not know of each other.
//
// Ring and count of sent chunks lie in the sender's segment, the count of taken ones in the receiver's: a
// rank writes only to its own memory, and one that was stopped and left behind cannot damage the others when
// it wakes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/host/copy.h"
#include "os/doorbell.h"

namespace onehop::host {

/// What sender and receiver of a message must name alike.
struct Message {
  std::uint64_t count = 0;
  std::uint8_t dtype = 0;

  bool operator==(const Message&) const = default;
};

class Pairs {
 public:
  /// Per ordered pair: one is written, one is read, and there are some for whoever loses the core meanwhile.
  static constexpr std::size_t kSlots = 4;

  struct Member {
    os::Doorbell* bell = nullptr;
    std::byte* area = nullptr;  ///< area_bytes(), zero when the group starts
  };

  /// All slots that a rank sends from have a quarter of its scratch memory, within bounds: chunks should stay
  /// in the second-level caches, and still be worth their counting.
  [[nodiscard]] static std::size_t slot_bytes(int ranks, std::size_t scratch_bytes) {
    const std::size_t share = scratch_bytes / 4 / (static_cast<std::size_t>(std::max(ranks - 1, 1)) * kSlots);
    return std::clamp<std::size_t>(share / 64 * 64, 1 << 10, 64 << 10);
  }
  [[nodiscard]] static std::size_t area_bytes(int ranks, std::size_t scratch_bytes) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(Lines) + (n - 1) * kSlots * slot_bytes(ranks, scratch_bytes);
  }

  Pairs() = default;
  Pairs(int rank, const std::vector<Member>& members, std::size_t scratch_bytes)
      : slot_bytes_(slot_bytes(static_cast<int>(members.size()), scratch_bytes)), peers_(members.size()) {
    const int ranks = static_cast<int>(members.size());
    const auto lines = [&](int of, int with) {
      return reinterpret_cast<Lines*>(members[static_cast<std::size_t>(of)].area) + with;
    };
    const auto ring = [&](int from, int to) {
      const auto place = static_cast<std::size_t>(to < from ? to : to - 1);  // among the others
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

  /// The most that a chunk holds.
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }

  /// Whether there is a free slot for rank r.
  [[nodiscard]] bool has_room(int r) {
    Peer& peer = at(r);
    if (peer.sent - peer.credit < kSlots) return true;
    // acquire: pairs with the exchange in take(); the receiver has read what the slot held. seq_cst for
    // wait_on().
    peer.credit = peer.theirs->taken.chunks.load(std::memory_order_seq_cst);
    return peer.sent - peer.credit < kSlots;
  }
  /// Sends rank r a chunk of a message. Only while has_room(r).
  void put(int r, const Message& message, const std::byte* data, std::size_t bytes) {
    Peer& peer = at(r);
    const std::size_t slot = peer.sent % kSlots;
    copy(peer.outbox + slot * slot_bytes_, data, bytes);
    SentLine& line = peer.own->sent;
    line.counts[slot] = message.count;
    line.dtypes[slot] = message.dtype;
    // release: pairs with the load in has_chunk(); publishes the chunk and its message. seq_cst and a
    // read-modify-write because ring() needs it.
    line.chunks.exchange(++peer.sent, std::memory_order_seq_cst);
    os::ring(*peer.bell);
  }

  /// Whether a chunk from rank r waits to be taken.
  [[nodiscard]] bool has_chunk(int r) {
    Peer& peer = at(r);
    if (peer.arrived != peer.taken) return true;
    // acquire: pairs with the exchange in put(). seq_cst for wait_on().
    peer.arrived = peer.theirs->sent.chunks.load(std::memory_order_seq_cst);
    return peer.arrived != peer.taken;
  }
  /// The message that the next chunk from rank r is part of. Only while has_chunk(r).
  [[nodiscard]] Message message(int r) const {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    const std::size_t slot = peer.taken % kSlots;
    return {.count = peer.theirs->sent.counts[slot], .dtype = peer.theirs->sent.dtypes[slot]};
  }
  /// Takes the next chunk from rank r. Only while has_chunk(r).
  void take(int r, std::byte* data, std::size_t bytes) {
    Peer& peer = at(r);
    copy(data, peer.inbox + peer.taken % kSlots * slot_bytes_, bytes);
    // release: pairs with the load in has_room(); the chunk and its message have been read. seq_cst and a
    // read-modify-write because ring() needs it.
    peer.own->taken.chunks.exchange(++peer.taken, std::memory_order_seq_cst);
    os::ring(*peer.bell);
  }

 private:
  /// 128 bytes apart: neighbouring lines are fetched in pairs.
  struct alignas(128) SentLine {
    std::atomic<std::uint64_t> chunks{0};
    // Of the message that each slot's chunk is part of: they travel in the line that says that it is there.
    std::array<std::uint64_t, kSlots> counts{};
    std::array<std::uint8_t, kSlots> dtypes{};
  };
  static_assert(sizeof(std::uint64_t) * (1 + kSlots) + kSlots <= 64, "they share one cache line");
  struct alignas(128) TakenLine {
    std::atomic<std::uint64_t> chunks{0};
  };
  /// At the start of a rank's area, one for each rank; the rings follow.
  struct Lines {
    SentLine sent;    ///< to that rank
    TakenLine taken;  ///< from that rank
  };

  /// What this rank knows of its traffic with another one.
  struct Peer {
    os::Doorbell* bell = nullptr;
    Lines* own = nullptr;
    const Lines* theirs = nullptr;
    std::byte* outbox = nullptr;
    const std::byte* inbox = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t credit = 0;  ///< how many of those had been taken at the last look
    std::uint64_t taken = 0;
    std::uint64_t arrived = 0;  ///< how many had been sent at the last look
  };
  [[nodiscard]] Peer& at(int r) { return peers_[static_cast<std::size_t>(r)]; }

  std::size_t slot_bytes_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace onehop::host
