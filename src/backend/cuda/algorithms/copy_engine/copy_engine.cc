// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/copy_engine/copy_engine.h"

#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/algorithms/streaming/streaming.h"

namespace onehop::cuda {
namespace {

// Unit of the pieces of an all-reduce; suits any type and any kernel.
constexpr std::size_t kCopyUnit = 512;

constexpr PlainKernel kWindowBarrier{"window_barrier"};
constexpr ReductionKernel kReducePiece{"reduce_piece"};
constexpr ScratchRegion kScratch{[](const GroupShape&) { return align_scratch(sizeof(CopyEngineHead)); }};

Barrier describe_barrier(const Launcher& launcher, const CollectiveCall& call,
                         BarrierWords CopyEngineHead::*words) {
  const auto words_of = [&](int r) { return &(launcher.head<CopyEngineHead>(kScratch, r)->*words); };
  BarrierWords* const own = words_of(launcher.rank());
  Barrier barrier{.rank = launcher.rank(),
                  .size = launcher.size(),
                  .phase = DeviceFault::phase_of(call.collective),
                  .counter = &own->counter,
                  .own_flags = own->flags,
                  .guard = launcher.call_guard()};
  for (int r = 0; r < launcher.size(); ++r) barrier.peer_flags[r] = words_of(r)->flags + launcher.rank();
  return barrier;
}

enum class Position : std::uint8_t { before_copies, after_all_copies };

/// Queues a barrier of all ranks. It fails unless all ranks name the same window.
void pass_barrier(Launcher& launcher, const CollectiveCall& call, std::uint64_t window, Position position) {
  WindowBarrierParams params;
  params.barrier = describe_barrier(launcher, call, &CopyEngineHead::window);
  params.window = window;
  params.own_windows = launcher.head<CopyEngineHead>(kScratch, launcher.rank())->windows[0];
  for (int r = 0; r < launcher.size(); ++r) {
    params.peer_windows[r] = &launcher.head<CopyEngineHead>(kScratch, r)->windows[0][launcher.rank()];
  }
  if (position == Position::after_all_copies && launcher.poisons(call.type)) {
    const auto add = [](WindowBarrierParams::Received& to, std::span<std::byte> block) {
      if (block.empty()) return;
      if (to.data == nullptr) to.data = block.data();
      to.bytes = static_cast<std::size_t>(block.data() + block.size() - to.data);
    };
    // The own block of the output lies between the others.
    for (int r = 0; r < launcher.size(); ++r) {
      if (r != launcher.rank()) add(params.received[r < launcher.rank() ? 0 : 1], call.block_from(r));
    }
  }
  launcher.launch(kWindowBarrier, {.block = 32, .waits_for_previous = false}, params);
}

/// Calls that move blocks.
void run_exchange(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
                  const SymmetricOutput* output) {
  const std::span<const std::byte> own = call.block_to(launcher.rank());
  const std::span<std::byte> kept = call.block_from(launcher.rank());
  const bool keeps = !own.empty() && own.data() != kept.data();
  pass_barrier(launcher, call, output->window, Position::before_copies);
  if (keeps) {
    // Orders the copy after the barrier, though the copy does not need it. Otherwise a graph might execute
    // the barrier after the copy, which would delay the peers.
    launcher.record(Mark::first, Lane::caller);
    launcher.wait_for(Mark::first, Lane::side);
    launcher.copy(kept.data(), own.data(), own.size(), Lane::side);
    launcher.record(Mark::second, Lane::side);
  }
  // Copies to one peer after the other. Each rank begins with its neighbor, so that no two copy to the same
  // rank.
  for (int step = 1; step < launcher.size(); ++step) {
    const int peer = launcher.right(step);
    const std::span<const std::byte> block = call.block_to(peer);
    if (block.empty()) continue;
    launcher.copy(output->outs[static_cast<std::size_t>(peer)] + call.out_offset(launcher.rank()),
                  block.data(), block.size(), Lane::caller);
  }
  if (keeps) launcher.wait_for(Mark::second, Lane::caller);
  pass_barrier(launcher, call, output->window, Position::after_all_copies);
}

/// The part of an all-reduce whose length is a multiple of kCopyUnit bytes per rank.
void run_pieces(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                const SymmetricOutput& output) {
  const std::size_t bytes = call.block_bytes();
  const std::size_t piece = bytes / static_cast<std::size_t>(launcher.size());
  const std::size_t own = static_cast<std::size_t>(launcher.rank()) * piece;
  const std::size_t middle = ceil_div(ceil_div(piece, 2), kCopyUnit) * kCopyUnit;
  struct Half {
    std::size_t begin = 0;  ///< offset in every piece
    std::size_t bytes = 0;
    Mark scattered{};
  };
  const std::array<Half, 2> halves = {{{0, middle, Mark::second}, {middle, piece - middle, Mark::third}}};
  /// Copies to every peer's output, where this rank's piece of it begins. Each rank begins with its
  /// neighbor, so that no two copy to the same rank.
  const auto send = [&](const Half& half, auto&& from) {
    for (int step = 1; step < launcher.size(); ++step) {
      const auto peer = static_cast<std::size_t>(launcher.right(step));
      launcher.copy(output.outs[peer] + own + half.begin, from(peer) + half.begin, half.bytes, Lane::side);
    }
  };
  const auto blocks = static_cast<std::size_t>(
      std::min(limits.blocks.value_or(launcher.shape().blocks), launcher.shape().blocks));
  const auto threads = static_cast<unsigned>(max_threads(kernel_ranks(launcher.size(), is_sum(call.op))));
  const LaunchShape shape{.grid = static_cast<unsigned>(std::clamp(
                              ceil_div(middle, std::size_t{16} * threads), std::size_t{1}, blocks)),
                          .block = threads,
                          .waits_for_previous = false};

  // The order is described in window_barrier.cuh.
  pass_barrier(launcher, call, output.window, Position::before_copies);
  launcher.record(Mark::first, Lane::caller);
  launcher.wait_for(Mark::first, Lane::side);
  for (const Half& half : halves) {
    send(half, [&](std::size_t peer) { return call.in_at(peer * piece); });
    launcher.record(half.scattered, Lane::side);
  }
  for (const Half& half : halves) {
    launcher.wait_for(half.scattered, Lane::caller);
    ReducePieceParams params;
    params.barrier = describe_barrier(launcher, call, &CopyEngineHead::reduce);
    params.in = call.in_at();
    params.out = call.out_at();
    params.bytes = bytes;
    params.piece = piece;
    params.begin = half.begin;
    params.length = half.bytes;
    params.aligned = is_aligned(call.in_at());
    params.inbox = call.out_at(half.begin);
    params.rank_stride = piece;
    params.scale = call.scale();
    launcher.launch(kReducePiece, call, shape, params);
    pass_barrier(launcher, call, output.window, Position::before_copies);
    launcher.record(Mark::first, Lane::caller);
    launcher.wait_for(Mark::first, Lane::side);
    send(half, [&](std::size_t) { return call.out_at(own); });
  }
  launcher.record(Mark::second, Lane::side);
  launcher.wait_for(Mark::second, Lane::caller);
  pass_barrier(launcher, call, output.window, Position::after_all_copies);
}

void run_all_reduce(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                    const SymmetricOutput* output) {
  const std::size_t unit = kCopyUnit * static_cast<std::size_t>(launcher.size());
  const std::size_t bytes = call.block_bytes() / unit * unit;
  if (bytes < 2 * unit)
    return kLLOneShot.run(launcher, call, {}, nullptr);  // half a piece is at least a unit
  const DeviceAlgorithm& otherwise = launcher.size() == 2 ? kStreamingOneShot : kStreamingTwoShot;
  // Mappings are page-aligned, so all ranks see the same alignment and make the same choice.
  const auto misaligned = [](const std::byte* out) { return !is_aligned(out); };
  if (std::ranges::any_of(output->outs, misaligned)) return otherwise.run(launcher, call, limits, nullptr);
  if (call.in_at() == call.out_at()) {
    // In place, peers would overwrite data that is still to be sent. Ranks that are not in place expect a
    // barrier with the window; this one tells them that it differs.
    pass_barrier(launcher, call, output->in_place_window(), Position::before_copies);
    return otherwise.run(launcher, call, limits, nullptr);
  }
  run_pieces(launcher, call.first(bytes), limits, *output);
  if (bytes != call.block_bytes()) kLLOneShot.run(launcher, call.from(bytes), {}, nullptr);
}

constexpr std::array kKernels{&kReducePiece};
constexpr std::array kPlainKernels{&kWindowBarrier};
constexpr std::array kRegions{&kScratch};

}  // namespace

const DeviceAlgorithm kCopyEngine{
    {.name = "copy_engine", .kind = Algorithm::one_shot, .moves_blocks = true, .buffers = Buffers::symmetric},
    run_exchange,
    {},
    kPlainKernels,
    kRegions};
const DeviceAlgorithm kCopyEngineTwoShot{{.name = "copy_engine_two_shot",
                                          .kind = Algorithm::two_shot,
                                          .collectives = {Collective::all_reduce},
                                          .buffers = Buffers::symmetric,
                                          .takes_blocks = true},
                                         run_all_reduce,
                                         kKernels,
                                         kPlainKernels,
                                         kRegions};

}  // namespace onehop::cuda
