// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/copy_engine.h"

#include <algorithm>
#include <cstdint>

#include "driver/device.h"
#include "driver/module.h"
#include "kernel/cuda/meetings.h"

ONEHOP_DEVICE_CODE(copies);

namespace onehop {
namespace {

CudaModule& copies_module() {
  static auto& module = *new CudaModule(onehop_code_copies);
  return module;
}

}  // namespace

CopyEngine::CopyEngine(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments,
                       const cuda::SegmentLayout& layout)
    : driver_(driver), rank_(rank), segments_(segments), layout_(layout) {}

CopyEngine::CopyEngine(const CudaDriver& driver, DeviceId device, int rank,
                       const std::vector<std::byte*>& segments, const cuda::SegmentLayout& layout)
    : CopyEngine(Plain{}, driver, rank, segments, layout) {
  collect_ = copies_module().function(device, "collect_round");
  check_cuda(driver.StreamCreate(&copies_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (CUevent& event : marks_) {
    check_cuda(driver.EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
}

CopyEngine::~CopyEngine() {
  for (CUevent event : marks_) {
    if (event != nullptr) (void)driver_.EventDestroy(event);
  }
  if (copies_ != nullptr) (void)driver_.StreamDestroy(copies_);
}

void CopyEngine::all_reduce(const CollectiveCall& call, const DevicePlan& plan, CUfunction add,
                            const DeviceGuard& guard, CUstream queue) {
  // The order is described in copies.cuh.
  mark(kKernels, queue);
  await(kKernels, copies_);
  scatter(call, plan, 0);
  const std::size_t rounds = (piece(call) + plan.chunk - 1) / plan.chunk;
  const auto collect = [&](std::size_t round) {
    await(gathered(round), queue);
    launch(collect_, call, plan, guard, kGather, round, queue);
  };
  for (std::size_t round = 0; round < rounds; ++round) {
    await(kScattered, queue);
    launch(add, call, plan, guard, kScatter, round, queue);
    mark(kKernels, queue);
    if (round > 0) await(kKernels, copies_);  // the slots of round 1 are free since the previous call
    if (round + 1 < rounds) scatter(call, plan, round + 1);
    if (round == 0) await(kKernels, copies_);
    gather(call, plan, round);
    if (round > 0) collect(round - 1);
  }
  collect(rounds - 1);
}

void CopyEngine::scatter(const CollectiveCall& call, const DevicePlan& plan, std::size_t round) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    copy(call.in, call, plan, peer, peer, kScatter, round);
  }
  mark(kScattered, copies_);
}

void CopyEngine::gather(const CollectiveCall& call, const DevicePlan& plan, std::size_t round) {
  for (int step = 1; step < size(); ++step) {
    copy(call.out, call, plan, rank_, (rank_ + step) % size(), kGather, round);
  }
  mark(gathered(round), copies_);
}

void CopyEngine::copy(const std::byte* message, const CollectiveCall& call, const DevicePlan& plan, int of,
                      int to, Phase phase, std::size_t round) {
  const std::size_t start = static_cast<std::size_t>(of) * piece(call);
  const std::size_t begin = start + round * plan.chunk;
  const std::size_t end = std::min({start + piece(call), begin + plan.chunk, call.block_bytes()});
  if (begin >= end) return;  // the last pieces of a message may be shorter
  std::byte* const slot = slots(to, phase, round) + static_cast<std::size_t>(rank_) * layout_.copies().rank;
  check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(slot),
                                     reinterpret_cast<CUdeviceptr>(message + begin), end - begin, copies_),
             "cuMemcpyDtoDAsync");
}

void CopyEngine::launch(CUfunction kernel, const CollectiveCall& call, const DevicePlan& plan,
                        const DeviceGuard& guard, Phase phase, std::size_t round, CUstream queue) {
  cuda::RoundParams params;
  params.in = call.in;
  params.out = call.out;
  params.bytes = call.block_bytes();
  params.piece = piece(call);
  params.begin = round * plan.chunk;
  params.chunk = std::min(plan.chunk, params.piece - params.begin);
  params.aligned = reinterpret_cast<std::uintptr_t>(call.in) % 16 == 0 &&
                   reinterpret_cast<std::uintptr_t>(call.out) % 16 == 0;
  params.meeting = round_meeting(segments_, rank_, phase, call.traits().phase, guard);
  params.inbox = slots(rank_, phase, round);
  params.rank_stride = layout_.copies().rank;
  params.scale = call.scale();
  launch_kernel(driver_, kernel, {.grid = plan.shape.grid, .block = plan.shape.block, .stream = queue},
                params, phase == kScatter ? "launching copies" : "launching collect_round");
}

void CopyEngine::mark(Mark mark, CUstream stream) {
  check_cuda(driver_.EventRecord(marks_[mark], stream), "cuEventRecord");
}

void CopyEngine::await(Mark mark, CUstream stream) {
  check_cuda(driver_.StreamWaitEvent(stream, marks_[mark], 0), "cuStreamWaitEvent");
}

std::byte* CopyEngine::slots(int on, Phase phase, std::size_t round) const {
  const cuda::Slots slots = layout_.copies();
  return segments_[static_cast<std::size_t>(on)] + slots.begin + phase * slots.phase +
         round % 2 * slots.parity;
}

std::size_t CopyEngine::piece(const CollectiveCall& call) const {
  const auto ranks = static_cast<std::size_t>(size());
  return (call.block_bytes() + 16 * ranks - 1) / (16 * ranks) * 16;
}

}  // namespace onehop
