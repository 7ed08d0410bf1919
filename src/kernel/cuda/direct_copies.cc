// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/direct_copies.h"

#include "driver/device.h"
#include "driver/module.h"
#include "kernel/cuda/meetings.h"

ONEHOP_DEVICE_CODE(direct);

namespace onehop {
namespace {

CudaModule& direct_module() {
  static auto& module = *new CudaModule(onehop_code_direct);
  return module;
}

}  // namespace

DirectCopies::DirectCopies(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments)
    : driver_(driver), rank_(rank), segments_(segments) {}

DirectCopies::DirectCopies(const CudaDriver& driver, DeviceId device, int rank,
                           const std::vector<std::byte*>& segments)
    : DirectCopies(Plain{}, driver, rank, segments) {
  meet_ = direct_module().function(device, "meet_at_place");
  check_cuda(driver.StreamCreate(&beside_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (CUevent& event : marks_) {
    check_cuda(driver.EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
}

DirectCopies::~DirectCopies() {
  for (CUevent event : marks_) {
    if (event != nullptr) (void)driver_.EventDestroy(event);
  }
  if (beside_ != nullptr) (void)driver_.StreamDestroy(beside_);
}

void DirectCopies::exchange(const CollectiveCall& call, const SymmetricOutput& outputs,
                            const DeviceGuard& guard, CUstream queue) {
  const std::span<const std::byte> own = call.block_to(rank_);
  const std::span<std::byte> kept = call.block_from(rank_);
  const bool keeps = !own.empty() && own.data() != kept.data();
  const DeviceFault::Phase phase = call.traits().phase;
  meet(outputs.window, phase, guard, queue);
  if (keeps) {
    // Orders the copy after the barrier, though the copy does not need it. Otherwise a graph might execute
    // the barrier after the copy, which would delay the peers.
    mark(kMet, queue);
    await(kMet, beside_);
    copy(kept.data(), own.data(), own.size(), beside_);
    mark(kCopied, beside_);
  }
  // Copies to one peer after the other. Each rank begins with its neighbour, so that no two copy to the same
  // rank.
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    const std::span<const std::byte> block = call.block_to(peer);
    if (block.empty()) continue;
    copy(outputs.outs[static_cast<std::size_t>(peer)] + call.out_offset(rank_), block.data(), block.size(),
         queue);
  }
  if (keeps) await(kCopied, queue);
  meet(outputs.window, phase, guard, queue);
}

void DirectCopies::all_reduce(const CollectiveCall& call, const DevicePlan& plan,
                              const SymmetricOutput& outputs, CUfunction add, const DeviceGuard& guard,
                              CUstream queue) {
  const DeviceFault::Phase phase = call.traits().phase;
  const std::size_t bytes = call.block_bytes();
  const std::size_t piece = bytes / static_cast<std::size_t>(size());
  const std::size_t own = static_cast<std::size_t>(rank_) * piece;
  struct Half {
    std::size_t begin = 0;  ///< offset in every piece
    std::size_t bytes = 0;
    Mark scattered{};
  };
  const std::array<Half, 2> halves = {
      {{0, plan.chunk, kCopied}, {plan.chunk, piece - plan.chunk, kCopiedSecond}}};
  /// Copies to every peer's output, where this rank's piece of it begins. Each rank begins with its
  /// neighbour, so that no two copy to the same rank.
  const auto send = [&](const Half& half, auto&& from) {
    for (int step = 1; step < size(); ++step) {
      const auto peer = static_cast<std::size_t>((rank_ + step) % size());
      copy(outputs.outs[peer] + own + half.begin, from(peer) + half.begin, half.bytes, beside_);
    }
  };

  // The order is described in direct.cuh.
  meet(outputs.window, phase, guard, queue);
  mark(kMet, queue);
  await(kMet, beside_);
  for (const Half& half : halves) {
    send(half, [&](std::size_t peer) { return call.in + peer * piece; });
    mark(half.scattered, beside_);
  }
  for (const Half& half : halves) {
    await(half.scattered, queue);
    cuda::RoundParams params;
    params.in = call.in;
    params.out = call.out;
    params.bytes = bytes;
    params.piece = piece;
    params.begin = half.begin;
    params.chunk = half.bytes;
    params.aligned = reinterpret_cast<std::uintptr_t>(call.in) % 16 == 0;
    params.meeting = round_meeting(segments_, rank_, 0, phase, guard);
    params.inbox = call.out + half.begin;
    params.rank_stride = piece;
    params.scale = call.scale();
    launch_kernel(driver_, add, {.grid = plan.shape.grid, .block = plan.shape.block, .stream = queue}, params,
                  "launching copies");
    meet(outputs.window, phase, guard, queue);
    mark(kMet, queue);
    await(kMet, beside_);
    send(half, [&](std::size_t) { return call.out + own; });
  }
  mark(kCopied, beside_);
  await(kCopied, queue);
  meet(outputs.window, phase, guard, queue);
}

void DirectCopies::meet(std::uint64_t window, DeviceFault::Phase phase, const DeviceGuard& guard,
                        CUstream queue) {
  cuda::DirectParams params;
  params.meeting = describe_meeting(segments_, rank_, phase, guard, [](cuda::SegmentHead& head) {
    return Gate{.control = &head.direct, .flags = head.direct_flags};
  });
  params.place = window;
  params.own_places = segment_head(segments_, rank_).direct_places[0];
  for (int r = 0; r < size(); ++r) {
    params.peer_places[r] = &segment_head(segments_, r).direct_places[0][rank_];
  }
  launch_kernel(driver_, meet_, {.block = 32, .stream = queue}, params, "launching meet_at_place");
}

void DirectCopies::mark(Mark mark, CUstream stream) {
  check_cuda(driver_.EventRecord(marks_[mark], stream), "cuEventRecord");
}

void DirectCopies::await(Mark mark, CUstream stream) {
  check_cuda(driver_.StreamWaitEvent(stream, marks_[mark], 0), "cuStreamWaitEvent");
}

void DirectCopies::copy(std::byte* to, const std::byte* from, std::size_t bytes, CUstream stream) {
  check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                                     bytes, stream),
             "cuMemcpyDtoDAsync");
}

}  // namespace onehop
