// SPDX-License-Identifier: Apache-2.0
// All-reduce, reduce and reduce-scatter among host ranks.
//
// The first step of a call also publishes the call, and throws if the ranks do not agree on it. So the first
// chunk is staged before that step, and the output is written only after it.
//
// Every element is combined in rank order 0..n-1, so all algorithms give the same bits on all ranks.
#include <algorithm>
#include <array>

#include "backend/host/algorithm.h"
#include "backend/host/chunk.h"
#include "backend/host/copy.h"
#include "backend/host/reduce.h"
#include "backend/host/staging.h"

namespace onehop::host {
namespace {

/// Whether this rank alone receives the result, so that no other rank reads its input.
bool is_root(const CollectiveCall& call) {
  return call.traits().only_root_gets_out && call.rank == call.root.value;
}

/// Reductions read memory that this rank maps, and no other.
PeerData if_mapped(PeerData data) {
  return data.mapped() ? data : PeerData{};
}

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
/// called if they read it in place, which `in_peers` says: then the first step has been performed.
template <class Stage, class Step>
void reduce_slice(const Steps& steps, const PeerData& in_peers, const Slice& slice, std::size_t slot_bytes,
                  Stage&& stage, Step&& step) {
  const CollectiveCall& call = steps.call();
  const StepBarrier& barrier = steps.barrier();
  const std::size_t slot =
      StagingLayout(barrier.staging_bytes()).input_offset(barrier.next_step(), slot_bytes);
  if (!in_peers) stage(barrier.staging(call.rank) + slot);
  step();
  if (slice.out == nullptr) return;

  std::array<const void*, kMaxHostRanks> sources;  // entries 0..n-1 are set before use
  for (int r = 0; r < call.ranks; ++r) {
    const std::byte* source = call.in_at(slice.from);
    if (r != call.rank)
      source = in_peers ? in_peers.at(r, slice.from, slice.bytes) : barrier.staging(r) + slot + slice.staged;
    sources[static_cast<std::size_t>(r)] = source;
  }
  const std::size_t count = slice.bytes / call.element_bytes();
  const auto reading = in_peers.reading();
  if (slice.out2 == nullptr) {
    reduce_function(call.type, call.op)(slice.out, sources.data(), call.ranks, count, call.scale());
  } else {
    reduce2_function(call.type, call.op)(slice.out, slice.out2, sources.data(), call.ranks, count,
                                         call.scale());
  }
}

}  // namespace

/// Every rank stages its whole input, and each rank that receives the result combines everything. That moves
/// n - 1 times the bytes, with one step per chunk. No rank reads the input of a root.
void one_shot(Steps& steps, std::optional<std::size_t> chosen) {
  const CollectiveCall& call = steps.call();
  const std::size_t bytes = call.block_bytes();
  const std::size_t chunk =
      chunk_of(Algorithm::one_shot, chosen, steps.barrier().staging_bytes(), call.ranks);
  const bool wanted = call.gets_out();
  const bool staged = !is_root(call);
  for (std::size_t offset = 0; offset < bytes; offset += chunk) {
    const std::size_t length = std::min(chunk, bytes - offset);
    const Slice all{
        .from = offset, .staged = 0, .bytes = length, .out = wanted ? call.out_at(offset) : nullptr};
    const auto stage = [&](std::byte* slot) {
      if (staged) copy(slot, call.in_at(offset), length);
    };
    reduce_slice(steps, {}, all, std::min(chunk, bytes), stage, [&] { steps.step(); });
  }
  claim_next_slot(steps.barrier(), bytes);
}

/// Each rank combines its part of every chunk (reduce-scatter). The ranks that receive the result then
/// collect the parts of the others (all-gather or gather). Chunk k is collected in the step that combines
/// chunk k + 1. A rank writes only to its own memory.
void two_shot(Steps& steps, std::optional<std::size_t> chosen) {
  const CollectiveCall& call = steps.call();
  const StepBarrier& barrier = steps.barrier();
  const int n = call.ranks;
  const int me = call.rank;
  const std::size_t bytes = call.block_bytes();
  const std::size_t chunk = chunk_of(Algorithm::two_shot, chosen, barrier.staging_bytes(), n);
  // Small calls are announced along with their first data. For others the ranks first learn where the data of
  // all ranks lies.
  PeerData in_peers;
  PeerData out_peers;
  if (steps.shows(bytes)) {
    const bool to_all = !call.traits().only_root_gets_out;
    if (to_all) steps.show_output(call.output());
    in_peers = if_mapped(steps.begin_with(call.input()));
    if (to_all) out_peers = if_mapped(steps.outputs());
  }
  const StagingLayout layout(barrier.staging_bytes());
  const bool wanted = call.gets_out();
  const bool shared = !out_peers && !is_root(call);  // other ranks read results from staging
  const std::size_t slot_bytes = std::min(chunk, bytes);
  const std::size_t result_bytes = Part(slot_bytes, n, 0).bytes;

  // Copies the others' parts of the chunk at `offset`, which were combined in the previous step, to the output.
  const auto collect = [&](std::size_t offset) {
    if (!wanted) return;
    const std::size_t length = std::min(chunk, bytes - offset);
    const std::size_t slot = layout.result_offset(barrier.step() - 1, result_bytes);
    for (int i = 1; i < n; ++i) {
      const int r = (me + i) % n;  // each rank starts at a different peer
      const Part part(length, n, r);
      std::byte* const to = call.out_at(offset + part.offset);
      if (out_peers) {
        out_peers.read(r, offset + part.offset, to, part.bytes);
      } else {
        host::copy(to, barrier.staging(r) + slot, part.bytes);
      }
    }
  };

  for (std::size_t offset = 0; offset < bytes; offset += chunk) {
    const std::size_t length = std::min(chunk, bytes - offset);
    const Part own(length, n, me);
    std::byte* const result = barrier.staging(me) + layout.result_offset(barrier.next_step(), result_bytes);
    const Slice slice{.from = offset + own.offset,
                      .staged = own.offset,
                      .bytes = own.bytes,
                      .out = wanted ? call.out_at(offset + own.offset) : result,
                      .out2 = wanted && shared ? result : nullptr};
    const auto stage = [&](std::byte* slot) {
      copy(slot, call.in_at(offset), own.offset);
      const std::size_t after = own.offset + own.bytes;
      copy(slot + after, call.in_at(offset + after), length - after);
    };
    reduce_slice(steps, in_peers, slice, slot_bytes, stage, [&] {
      steps.step();
      if (offset != 0) collect(offset - chunk);
    });
  }
  steps.step();
  collect((bytes - 1) / chunk * chunk);
  // Peers read this rank's output. It must not return to the caller before they are done.
  if (out_peers) steps.step();
  if (in_peers || out_peers) steps.require_no_failure();
}

/// The first half of a two-shot, with whole blocks as parts: the input has a block for every rank, and this
/// rank's block of the result goes to the output.
void reduce_scatter(Steps& steps, std::optional<std::size_t> /*chosen*/) {
  const CollectiveCall& call = steps.call();
  const std::size_t bytes = call.block_bytes();
  const auto n = static_cast<std::size_t>(call.ranks);
  const auto me = static_cast<std::size_t>(call.rank);
  PeerData in_peers;
  if (steps.shows((n - 1) * bytes)) in_peers = if_mapped(steps.begin_with(call.input()));
  const bool staged = !in_peers;
  // A slot has a lane of whole cache lines for every rank. The lane holds the data for that rank from this
  // step's section of the blocks.
  const std::size_t room =
      std::min(kReduceScatterChunk, StagingLayout(steps.barrier().staging_bytes()).input_bytes);
  const std::size_t lane = std::min(room / n / 64 * 64, (bytes + 63) / 64 * 64);
  const std::size_t section = staged ? lane : kReadPiece;
  for (std::size_t offset = 0; offset < bytes; offset += section) {
    const std::size_t length = std::min(section, bytes - offset);
    const Slice slice{
        .from = me * bytes + offset, .staged = me * lane, .bytes = length, .out = call.out_at(offset)};
    const auto stage = [&](std::byte* slot) {
      for (std::size_t r = 0; r < n; ++r) {
        if (r != me) copy(slot + r * lane, call.in_at(r * bytes + offset), length);
      }
    };
    reduce_slice(steps, in_peers, slice, n * lane, stage, [&] {
      if (staged) steps.step();
    });
  }
  if (staged) {
    claim_next_slot(steps.barrier(), n * lane);
    return;
  }
  steps.step();  // Peers read this rank's input. It must not return to the caller before they are done.
  steps.require_no_failure();
}

}  // namespace onehop::host
