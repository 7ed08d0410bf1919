// SPDX-License-Identifier: Apache-2.0
// Data that moves unchanged among host ranks, over the step protocol of step_barrier.h. It implements broadcast,
// gather, scatter, all-gather and all-to-all.
//
// A rank's data for others forms one stream of bytes: the pieces of its input that others need, one after
// another, each once. Every rank stages its stream in chunks, one per step. From each chunk of the other
// streams it takes the data addressed to it. All ranks take as many steps as the longest stream needs, even
// ranks with nothing left to send. Every pair of ranks synchronizes in every step, which is what allows slots
// to be reused.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "onehop/types.h"

#include "backend/host/algorithm.h"
#include "backend/host/copy.h"
#include "backend/host/staging.h"
#include "os/fault_point.h"

namespace onehop::host {

/// Bytes per step. The data that one rank writes and others read should stay in the second-level caches.
inline constexpr std::size_t kExchangeChunk = 128 << 10;

/// A call's data, as one rank sees it. Offsets and lengths are bytes.
struct Exchange {
  /// A piece of this rank's stream.
  struct Piece {
    std::size_t from;  ///< offset in this rank's input
    std::size_t bytes;
  };
  /// The data from rank r for this rank.
  struct Arrival {
    std::size_t from;   ///< offset in r's input
    std::size_t at;     ///< offset in r's stream; unused for a rank's data for itself, which is in no stream
    std::size_t bytes;  ///< 0: no data
    std::size_t to;     ///< offset in this rank's output
  };

  void send(std::size_t from, std::size_t bytes) {
    pieces[piece_count++] = {from, bytes};
    stream += bytes;
  }
  [[nodiscard]] Arrival& arrival(int r) { return arrivals[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Arrival& arrival(int r) const { return arrivals[static_cast<std::size_t>(r)]; }

  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t stream = 0;   ///< length of this rank's stream
  std::size_t longest = 0;  ///< length of the longest stream
  /// Every rank's input, if all ranks can read it in place. If set, the ranks have already synchronized.
  PeerData in_peers;
  std::size_t piece_count = 0;
  std::array<Piece, kMaxHostRanks> pieces;      // the first piece_count are set
  std::array<Arrival, kMaxHostRanks> arrivals;  // those of all ranks are set before use
};

/// Position of rank `rank` in the order in which rank `of` sends to the others. Each rank starts with the
/// rank after it, so that all ranks receive at any time.
[[nodiscard]] inline int position_in_stream(int rank, int of, int ranks) {
  return (rank - of - 1 + ranks) % ranks;
}

/// Copies this rank's stream into its slots, continuing where it stopped.
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
  std::size_t done_ = 0;  ///< bytes copied of that piece
};

/// If `in_peers` is set, the first step has been performed.
inline void exchange(Steps& steps, const Exchange& call) {
  StepBarrier& barrier = steps.barrier();
  const int n = barrier.size();
  const int me = barrier.rank();
  const auto keep_own = [&] {
    const Exchange::Arrival& own = call.arrival(me);
    if (own.bytes != 0) copy(call.out + own.to, call.in + own.from, own.bytes);
  };

  if (call.in_peers) {
    os::data_fault_point(steps.call().traits().name, me);
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;  // each rank starts at a different peer
      const Exchange::Arrival& arrival = call.arrival(r);
      if (arrival.bytes != 0) call.in_peers.read(r, arrival.from, call.out + arrival.to, arrival.bytes);
    }
    keep_own();
    steps.step();  // Peers read this rank's input. It must not return to the caller before they are done.
    return steps.require_no_failure();
  }

  const StagingLayout layout(barrier.staging_bytes());
  const std::size_t chunk = std::min(kExchangeChunk, layout.input_bytes);
  const std::size_t slot_bytes = std::min(chunk, call.longest);
  StreamWriter stream(call);
  std::size_t offset = 0;
  do {
    const std::size_t slot = layout.input_offset(barrier.next_step(), slot_bytes);
    stream.fill(barrier.staging(me) + slot, chunk);
    if (offset == 0) {
      steps.step();
    } else {
      barrier.publish();
    }
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;
      steps.wait(r);
      const Exchange::Arrival& arrival = call.arrival(r);
      const std::size_t first = std::max(arrival.at, offset);
      const std::size_t last = std::min(arrival.at + arrival.bytes, offset + chunk);
      if (first < last) {
        const std::byte* const from = barrier.staging(r) + slot + (first - offset);
        copy(call.out + arrival.to + (first - arrival.at), from, last - first);
      }
    }
    offset += chunk;
  } while (offset < call.longest);
  keep_own();  // last, because no rank waits for it
  claim_next_slot(barrier, call.stream);
}

}  // namespace onehop::host
