// SPDX-License-Identifier: Apache-2.0
// Data that moves among host ranks as it is, over Team's step protocol (team.h): all that broadcast, gather,
// scatter, all-gather and all-to-all do.
//
// What a rank has for others is one stream of bytes: the pieces of its input that others want, one after
// another, each once. Every rank stages its stream in chunks, one per step, and takes from each chunk of the
// others' streams what is meant for it. All ranks take as many steps as the longest stream needs, also those
// that have nothing to say any more: every pair meets in every step, and that is what lets slots be used
// again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "onehop/types.h"

#include "kernel/host/copy.h"
#include "kernel/host/staging.h"
#include "kernel/host/team.h"

namespace onehop::host {

/// Bytes per step: what one rank writes and others read should stay in the second-level caches.
inline constexpr std::size_t kExchangeChunk = 128 << 10;

/// A call's data, as one rank sees it. Offsets and lengths are bytes.
struct Exchange {
  /// Of this rank's stream.
  struct Piece {
    std::size_t from;  ///< in this rank's input
    std::size_t bytes;
  };
  /// What rank r has for this rank.
  struct Arrival {
    std::size_t from;   ///< in r's input
    std::size_t at;     ///< in r's stream; of no meaning for what a rank has for itself, which is in none
    std::size_t bytes;  ///< 0: nothing
    std::size_t to;     ///< in this rank's output
  };

  void send(std::size_t from, std::size_t bytes) {
    pieces[piece_count++] = {from, bytes};
    stream += bytes;
  }
  [[nodiscard]] Arrival& arrival(int r) { return arrivals[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Arrival& arrival(int r) const { return arrivals[static_cast<std::size_t>(r)]; }

  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t stream = 0;   ///< length of this rank's
  std::size_t longest = 0;  ///< of any rank's
  /// Every rank's input where those are symmetric memory, else nullptr. The ranks have met then.
  const std::byte* const* in_peers = nullptr;
  std::size_t piece_count = 0;
  std::array<Piece, kMaxHostRanks> pieces;      // the first piece_count are set
  std::array<Arrival, kMaxHostRanks> arrivals;  // those of all ranks are set before use
};

/// Rank `rank`'s place in the order in which rank `of` sends to each of the others: everyone starts with the
/// rank after it, so that all receive at any time.
[[nodiscard]] inline int position_in_stream(int rank, int of, int ranks) {
  return (rank - of - 1 + ranks) % ranks;
}

/// Copies this rank's stream into its slots, from where it stopped.
class StreamWriter {
 public:
  explicit StreamWriter(const Exchange& call) : call_(call) {}

  void fill(std::byte* slot, std::size_t room) {
    while (room > 0 && piece_ < call_.piece_count) {
      const Exchange::Piece& piece = call_.pieces[piece_];
      const std::size_t length = std::min(room, piece.bytes - done_);
      copy(slot, call_.in + piece.from + done_, length);
      slot += length;
      room -= length;
      done_ += length;
      if (done_ == piece.bytes) {
        ++piece_;
        done_ = 0;
      }
    }
  }

 private:
  const Exchange& call_;
  std::size_t piece_ = 0;
  std::size_t done_ = 0;  ///< bytes of that piece
};

/// `begin` and `wait` as for all_reduce.h.
template <class Begin, class Wait>
void exchange(Team& team, const Exchange& call, Begin&& begin, Wait&& wait) {
  const int n = team.size();
  const int me = team.rank();
  const auto keep_own = [&] {
    const Exchange::Arrival& own = call.arrival(me);
    if (own.bytes != 0) copy(call.out + own.to, call.in + own.from, own.bytes);
  };

  if (call.in_peers != nullptr) {
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;  // everyone starts elsewhere
      const Exchange::Arrival& arrival = call.arrival(r);
      if (arrival.bytes != 0) copy(call.out + arrival.to, call.in_peers[r] + arrival.from, arrival.bytes);
    }
    keep_own();
    begin();  // Peers read this rank's input: it is the caller's again only when they are done.
    return;
  }

  const StagingLayout layout(team.staging_bytes());
  const std::size_t chunk = std::min(kExchangeChunk, layout.input_bytes);
  StreamWriter stream(call);
  std::size_t offset = 0;
  do {
    const std::size_t slot = layout.input_offset(team.next_parity());
    stream.fill(team.staging(me) + slot, chunk);
    if (offset == 0) {
      begin();
    } else {
      team.publish();
    }
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;
      wait(r);
      const Exchange::Arrival& arrival = call.arrival(r);
      const std::size_t first = std::max(arrival.at, offset);
      const std::size_t last = std::min(arrival.at + arrival.bytes, offset + chunk);
      if (first < last) {
        const std::byte* const from = team.staging(r) + slot + (first - offset);
        copy(call.out + arrival.to + (first - arrival.at), from, last - first);
      }
    }
    offset += chunk;
  } while (offset < call.longest);
  keep_own();  // last: nobody waits for it
  if (call.stream <= kClaimBytes) {
    claim_for_writing(team.staging(me) + layout.input_offset(team.next_parity()), call.stream);
  }
}

}  // namespace onehop::host
