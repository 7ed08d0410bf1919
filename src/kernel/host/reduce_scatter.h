// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter among host ranks, over Team's step protocol (team.h). It is the first half of a two-shot
// all-reduce, with whole blocks as parts. The arithmetic is that of all_reduce.h, so the bits are the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "onehop/types.h"

#include "kernel/host/copy.h"
#include "kernel/host/reduce.h"
#include "kernel/host/staging.h"
#include "kernel/host/team.h"

namespace onehop::host {

/// Bytes that a rank stages per step, for all other ranks together.
inline constexpr std::size_t kReduceScatterChunk = 256 << 10;

/// A call's data: `in` has a block for every rank; this rank's block of the sums goes to `out`.
struct ReduceScatter {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t block = 0;  ///< bytes
  DType type{};
  ReduceOp op{};
  Scale scale;
  /// Every rank's input if those are in symmetric memory, else nullptr. If set, the ranks have already
  /// synchronized.
  const std::byte* const* in_peers = nullptr;
};

/// `begin` and `wait` are as in all_reduce.h.
template <class Begin, class Wait>
void reduce_scatter(Team& team, const ReduceScatter& call, Begin&& begin, Wait&& wait) {
  const ReduceFn reduce = reduce_function(call.type, call.op);
  const std::size_t element = size_of(call.type);
  const int n = team.size();
  const int me = team.rank();
  const std::size_t own = static_cast<std::size_t>(me) * call.block;
  std::array<const void*, kMaxHostRanks> sources;  // entries 0..n-1 are set before use

  if (call.in_peers != nullptr) {
    for (int r = 0; r < n; ++r) sources[static_cast<std::size_t>(r)] = call.in_peers[r] + own;
    reduce(call.out, sources.data(), n, call.block / element, call.scale);
    begin();  // Peers read this rank's input. It must not return to the caller before they are done.
    return;
  }

  // A slot has a lane of whole cache lines for every rank. The lane holds the data for that rank from this
  // step's section of the blocks.
  const StagingLayout layout(team.staging_bytes());
  const auto lanes = static_cast<std::size_t>(n);
  const std::size_t widest = std::min(kReduceScatterChunk, layout.input_bytes) / lanes / 64 * 64;
  const std::size_t lane = std::min(widest, (call.block + 63) / 64 * 64);
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(lane, call.block - offset);
    const std::size_t slot = layout.input_offset(team.next_parity());
    for (int r = 0; r < n; ++r) {
      const auto to = static_cast<std::size_t>(r);
      if (r != me) copy(team.staging(me) + slot + to * lane, call.in + to * call.block + offset, length);
    }
    if (offset == 0) {
      begin();
    } else {
      team.publish();
    }
    for (int r = 0; r < n; ++r) {
      if (r != me) wait(r);
      sources[static_cast<std::size_t>(r)] =
          r == me ? call.in + own + offset : team.staging(r) + slot + static_cast<std::size_t>(me) * lane;
    }
    reduce(call.out + offset, sources.data(), n, length / element, call.scale);
    offset += length;
  } while (offset < call.block);
  if (lanes * lane <= kClaimBytes) {
    claim_for_writing(team.staging(me) + layout.input_offset(team.next_parity()), lanes * lane);
  }
}

}  // namespace onehop::host
