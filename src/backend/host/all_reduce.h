// SPDX-License-Identifier: Apache-2.0
// All-reduce, reduce and reduce-scatter among host ranks: inner loops over the step protocol of step_barrier.h.
//
// `step()` performs the next step: it publishes and waits for all ranks. The first step of a call also
// publishes the call, and throws if the ranks do not agree on it. So the first chunk is staged before that
// step, and `out` is written only after it.
//
// Every element is combined in rank order 0..n-1, so all algorithms give the same bits on all ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "onehop/types.h"

#include "backend/host/copy.h"
#include "backend/host/reduce.h"
#include "backend/host/staging.h"
#include "backend/host/step_barrier.h"

namespace onehop::host {

/// A call's data. `in_peers` and `out_peers` are every rank's input and output if this rank maps them
/// (PeerData::mapped), else empty. If one is set, the first step has been performed.
struct Reduction {
  static constexpr int kAll = -1;

  int root = kAll;  ///< rank that receives the result; `out` is unused on the others
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;  ///< of the result
  DType type{};
  ReduceOp op{};
  Scale scale;
  std::size_t chunk = 0;  ///< bytes per step; a multiple of 64; unused by reduce_scatter
  PeerData in_peers{};
  PeerData out_peers{};
};

/// What this rank combines in one step.
struct Slice {
  std::size_t from;    ///< offset in every rank's input
  std::size_t staged;  ///< offset in every other rank's input slot
  std::size_t bytes;
  std::byte* out;             ///< nullptr: this rank only passes on its own data
  std::byte* out2 = nullptr;  ///< a second copy of the result; nullptr: none
};

/// One step of a reduction: the ranks pass each other their data, and this rank combines its slice.
/// `stage(slot)` copies what the others need from this rank to its input slot, at most `slot_bytes`. It is not
/// called if they read it in place.
template <class Stage, class Step>
void reduce_slice(const StepBarrier& barrier, const Reduction& call, const Slice& slice,
                  std::size_t slot_bytes, Stage&& stage, Step&& step) {
  const std::size_t slot =
      StagingLayout(barrier.staging_bytes()).input_offset(barrier.next_step(), slot_bytes);
  const int n = barrier.size();
  const int me = barrier.rank();
  if (!call.in_peers) stage(barrier.staging(me) + slot);
  step();
  if (slice.out == nullptr) return;

  std::array<const void*, kMaxHostRanks> sources;  // entries 0..n-1 are set before use
  for (int r = 0; r < n; ++r) {
    const std::byte* source = call.in + slice.from;
    if (r != me)
      source = call.in_peers ? call.in_peers.at(r, slice.from, slice.bytes)
                             : barrier.staging(r) + slot + slice.staged;
    sources[static_cast<std::size_t>(r)] = source;
  }
  const std::size_t count = slice.bytes / size_of(call.type);
  const auto reading = call.in_peers.reading();
  if (slice.out2 == nullptr) {
    reduce_function(call.type, call.op)(slice.out, sources.data(), n, count, call.scale);
  } else {
    reduce2_function(call.type, call.op)(slice.out, slice.out2, sources.data(), n, count, call.scale);
  }
}

/// Every rank stages its whole input, and each rank that receives the result combines everything. That moves
/// n - 1 times the bytes, with one step per chunk. No rank reads the input of a root.
template <class Step>
void one_shot(const StepBarrier& barrier, const Reduction& call, Step&& step) {
  const bool wanted = call.root == Reduction::kAll || call.root == barrier.rank();
  const std::size_t slot_bytes = std::min(call.chunk, call.bytes);
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const Slice all{
        .from = offset, .staged = 0, .bytes = length, .out = wanted ? call.out + offset : nullptr};
    const auto stage = [&](std::byte* slot) {
      if (call.root != barrier.rank()) copy(slot, call.in + offset, length);
    };
    reduce_slice(barrier, call, all, slot_bytes, stage, step);
    offset += length;
  } while (offset < call.bytes);
  claim_next_slot(barrier, call.bytes);
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
template <class Step>
void two_shot(const StepBarrier& barrier, const Reduction& call, Step&& step) {
  const StagingLayout layout(barrier.staging_bytes());
  const int n = barrier.size();
  const int me = barrier.rank();
  const bool wanted = call.root == Reduction::kAll || call.root == me;
  const bool shared = !call.out_peers && call.root != me;  // other ranks read results from staging
  const std::size_t slot_bytes = std::min(call.chunk, call.bytes);
  const std::size_t result_bytes = Part(slot_bytes, n, 0).bytes;

  // Copies the others' parts of the chunk at `offset`, which were combined in the previous step, to `out`.
  const auto collect = [&](std::size_t offset) {
    if (!wanted) return;
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const std::size_t slot = layout.result_offset(barrier.step() - 1, result_bytes);
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;  // each rank starts at a different peer
      const Part part(length, n, r);
      std::byte* const to = call.out + offset + part.offset;
      if (call.out_peers) {
        call.out_peers.read(r, offset + part.offset, to, part.bytes);
      } else {
        host::copy(to, barrier.staging(r) + slot, part.bytes);
      }
    }
  };

  for (std::size_t offset = 0; offset < call.bytes; offset += call.chunk) {
    const std::size_t length = std::min(call.chunk, call.bytes - offset);
    const Part own(length, n, me);
    std::byte* const result = barrier.staging(me) + layout.result_offset(barrier.next_step(), result_bytes);
    const Slice slice{.from = offset + own.offset,
                      .staged = own.offset,
                      .bytes = own.bytes,
                      .out = wanted ? call.out + offset + own.offset : result,
                      .out2 = wanted && shared ? result : nullptr};
    const auto stage = [&](std::byte* slot) {
      copy(slot, call.in + offset, own.offset);
      const std::size_t after = own.offset + own.bytes;
      copy(slot + after, call.in + offset + after, length - after);
    };
    reduce_slice(barrier, call, slice, slot_bytes, stage, [&] {
      step();
      if (offset != 0) collect(offset - call.chunk);
    });
  }
  step();
  collect((call.bytes - 1) / call.chunk * call.chunk);
  // Peers read this rank's `out`. It must not return to the caller before they are done.
  if (call.out_peers) step();
}

/// Bytes that a rank stages per step of reduce_scatter, for all other ranks together.
inline constexpr std::size_t kReduceScatterChunk = 256 << 10;

/// The first half of a two-shot, with whole blocks as parts: `in` has a block for every rank, and this rank's
/// block of the result goes to `out`.
template <class Step>
void reduce_scatter(const StepBarrier& barrier, const Reduction& call, Step&& step) {
  const auto n = static_cast<std::size_t>(barrier.size());
  const auto me = static_cast<std::size_t>(barrier.rank());
  const bool staged = !call.in_peers;
  // A slot has a lane of whole cache lines for every rank. The lane holds the data for that rank from this
  // step's section of the blocks.
  const std::size_t room = std::min(kReduceScatterChunk, StagingLayout(barrier.staging_bytes()).input_bytes);
  const std::size_t lane = std::min(room / n / 64 * 64, (call.bytes + 63) / 64 * 64);
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(staged ? lane : kReadPiece, call.bytes - offset);
    const Slice slice{
        .from = me * call.bytes + offset, .staged = me * lane, .bytes = length, .out = call.out + offset};
    const auto stage = [&](std::byte* slot) {
      for (std::size_t r = 0; r < n; ++r) {
        if (r != me) copy(slot + r * lane, call.in + r * call.bytes + offset, length);
      }
    };
    reduce_slice(barrier, call, slice, n * lane, stage, [&] {
      if (staged) step();
    });
    offset += length;
  } while (offset < call.bytes);
  if (staged) {
    claim_next_slot(barrier, n * lane);
  } else {
    step();  // Peers read this rank's input. It must not return to the caller before they are done.
  }
}

}  // namespace onehop::host
