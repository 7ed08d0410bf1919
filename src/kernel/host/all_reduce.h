// SPDX-License-Identifier: Apache-2.0
// All-reduce and reduce among host ranks: inner loops over Team's step protocol (team.h).
//
// `wait(r)` waits for rank r's current step or throws. `begin()` performs the first step: it publishes the
// call, waits for all ranks and throws if they do not agree on the call. So the first chunk is staged before
// begin(), and `out` is written only after it has returned.
//
// reduce_function combines every element in rank order 0..n-1, so one-shot and two-shot give the same bits on
// all ranks.
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

/// A call's data. `in_peers` and `out_peers` are every rank's input and output if those are in symmetric
/// memory, else nullptr.
struct Reduction {
  static constexpr int kAll = -1;

  int root = kAll;  ///< rank that receives the result; `out` is unused on the others
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  DType type{};
  ReduceOp op{};
  Scale scale;
  std::size_t chunk = 0;  ///< bytes per step; a multiple of 64
  const std::byte* const* in_peers = nullptr;
  std::byte* const* out_peers = nullptr;
};

using Sources = std::array<const void*, kMaxHostRanks>;

/// Every rank stages its whole input, and each rank that receives the result combines everything. That moves
/// n - 1 times the bytes, with one step per chunk.
template <class Begin, class Wait>
void one_shot(Team& team, const Reduction& call, Begin&& begin, Wait&& wait) {
  const StagingLayout layout(team.staging_bytes());
  const ReduceFn reduce = reduce_function(call.type, call.op);
  const std::size_t element = size_of(call.type);
  const int n = team.size();
  const int me = team.rank();
  const bool wanted = call.root == Reduction::kAll || call.root == me;
  Sources sources;  // entries 0..n-1 are set before use
  bool first = true;
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const std::size_t slot = layout.input_offset(team.next_parity());
    copy(team.staging(me) + slot, call.in + offset, length);
    if (first) {
      begin();
    } else {
      team.publish();
      for (int r = 0; r < n; ++r) {
        if (r != me) wait(r);
      }
    }
    first = false;
    if (wanted) {
      for (int r = 0; r < n; ++r) {
        sources[static_cast<std::size_t>(r)] = r == me ? call.in + offset : team.staging(r) + slot;
      }
      reduce(call.out + offset, sources.data(), n, length / element, call.scale);
    }
    offset += length;
  } while (offset < call.bytes);
  if (call.bytes <= kClaimBytes) {
    claim_for_writing(team.staging(me) + layout.input_offset(team.next_parity()), call.bytes);
  }
}

/// The part of a chunk that rank r combines. Parts are whole cache lines, so that ranks do not write to
/// shared ones.
struct Part {
  std::size_t offset = 0;
  std::size_t bytes = 0;

  Part(std::size_t chunk_bytes, int ranks, int r) {
    const std::size_t lines = (chunk_bytes + 63) / 64;
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t each = (lines + n - 1) / n * 64;
    offset = std::min(static_cast<std::size_t>(r) * each, chunk_bytes);
    bytes = std::min(each, chunk_bytes - offset);
  }
};

/// Each rank combines its part of every chunk (reduce-scatter). The ranks that receive the result then
/// collect the parts of the others (all-gather or gather). Chunk k is collected in the step that combines
/// chunk k + 1. A rank writes only to its own memory.
template <class Begin, class Wait>
void two_shot(Team& team, const Reduction& call, Begin&& begin, Wait&& wait) {
  const StagingLayout layout(team.staging_bytes());
  const ReduceFn reduce = reduce_function(call.type, call.op);
  const Reduce2Fn reduce_twice = reduce2_function(call.type, call.op);
  const std::size_t element = size_of(call.type);
  const int n = team.size();
  const int me = team.rank();
  const bool wanted = call.root == Reduction::kAll || call.root == me;
  Sources sources;  // entries 0..n-1 are set before use

  const auto next_step = [&] {
    team.publish();
    for (int r = 0; r < n; ++r) {
      if (r != me) wait(r);
    }
  };
  // Copies the others' parts of the chunk at `offset`, which were combined in the previous step, to `out`.
  const auto collect = [&](std::size_t offset) {
    if (!wanted) return;
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const std::size_t slot = layout.result_offset(team.next_parity());  // parity of the previous step
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;  // each rank starts at a different peer
      const Part part(length, n, r);
      const std::byte* const from =
          call.out_peers != nullptr ? call.out_peers[r] + offset + part.offset : team.staging(r) + slot;
      copy(call.out + offset + part.offset, from, part.bytes);
    }
  };

  bool first = true;
  std::size_t offset = 0;
  while (offset < call.bytes) {
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const std::size_t input = layout.input_offset(team.next_parity());
    const std::size_t result = layout.result_offset(team.next_parity());
    const Part own(length, n, me);
    if (call.in_peers == nullptr) {
      std::byte* const stage = team.staging(me) + input;
      copy(stage, call.in + offset, own.offset);
      const std::size_t after = own.offset + own.bytes;
      copy(stage + after, call.in + offset + after, length - after);
    }
    if (first) {
      begin();
    } else {
      next_step();
      collect(offset - call.chunk);
    }
    first = false;

    for (int r = 0; r < n; ++r) {
      const std::byte* source = call.in + offset;
      if (r != me) source = call.in_peers != nullptr ? call.in_peers[r] + offset : team.staging(r) + input;
      sources[static_cast<std::size_t>(r)] = source + own.offset;
    }
    std::byte* const stage = team.staging(me) + result;
    if (!wanted) {
      reduce(stage, sources.data(), n, own.bytes / element, call.scale);
    } else if (call.out_peers != nullptr || call.root == me) {  // no rank reads it from staging
      reduce(call.out + offset + own.offset, sources.data(), n, own.bytes / element, call.scale);
    } else {
      reduce_twice(call.out + offset + own.offset, stage, sources.data(), n, own.bytes / element, call.scale);
    }
    offset += length;
  }
  next_step();
  collect((call.bytes - 1) / call.chunk * call.chunk);
  // Peers read this rank's `out`. It must not return to the caller before they are done.
  if (call.out_peers != nullptr) next_step();
}

}  // namespace onehop::host
