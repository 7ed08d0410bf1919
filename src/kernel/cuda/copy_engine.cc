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

void CopyEngine::all_reduce(const DeviceAllReduce& call, CUfunction add, const DeviceGuard& guard,
                            CUstream queue) {
  // The order is that of copies.cuh.
  mark(kKernels, queue);
  await(kKernels, copies_);
  scatter(call, 0);
  const std::size_t rounds = (piece(call) + call.chunk - 1) / call.chunk;
  const auto collect = [&](std::size_t round) {
    await(gathered(round), queue);
    launch(collect_, call, guard, kGather, round, queue);
  };
  for (std::size_t round = 0; round < rounds; ++round) {
    await(kScattered, queue);
    launch(add, call, guard, kScatter, round, queue);
    mark(kKernels, queue);
    if (round > 0) await(kKernels, copies_);  // the slots of round 1 have been free since the call before
    if (round + 1 < rounds) scatter(call, round + 1);
    if (round == 0) await(kKernels, copies_);
    gather(call, round);
    if (round > 0) collect(round - 1);
  }
  collect(rounds - 1);
}

void CopyEngine::scatter(const DeviceAllReduce& call, std::size_t round) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    copy(call.in, call, peer, peer, kScatter, round);
  }
  mark(kScattered, copies_);
}

void CopyEngine::gather(const DeviceAllReduce& call, std::size_t round) {
  for (int step = 1; step < size(); ++step) {
    copy(call.out, call, rank_, (rank_ + step) % size(), kGather, round);
  }
  mark(gathered(round), copies_);
}

void CopyEngine::copy(const std::byte* message, const DeviceAllReduce& call, int of, int to, Phase phase,
                      std::size_t round) {
  const std::size_t start = static_cast<std::size_t>(of) * piece(call);
  const std::size_t begin = start + round * call.chunk;
  const std::size_t end = std::min({start + piece(call), begin + call.chunk, call.bytes});
  if (begin >= end) return;  // the last pieces of a message may be shorter
  std::byte* const slot = slots(to, phase, round) + static_cast<std::size_t>(rank_) * layout_.copies().rank;
  check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(slot),
                                     reinterpret_cast<CUdeviceptr>(message + begin), end - begin, copies_),
             "cuMemcpyDtoDAsync");
}

void CopyEngine::launch(CUfunction kernel, const DeviceAllReduce& call, const DeviceGuard& guard, Phase phase,
                        std::size_t round, CUstream queue) {
  cuda::RoundParams params;
  params.in = call.in;
  params.out = call.out;
  params.bytes = call.bytes;
  params.piece = piece(call);
  params.begin = round * call.chunk;
  params.chunk = std::min(call.chunk, params.piece - params.begin);
  params.aligned = reinterpret_cast<std::uintptr_t>(call.in) % 16 == 0 &&
                   reinterpret_cast<std::uintptr_t>(call.out) % 16 == 0;
  params.meeting = round_meeting(segments_, rank_, phase, call.phase, guard);
  params.inbox = slots(rank_, phase, round);
  params.rank_stride = layout_.copies().rank;
  params.scale = call.scale;
  launch_kernel(driver_, kernel, {.grid = call.shape.grid, .block = call.shape.block, .stream = queue},
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

std::size_t CopyEngine::piece(const DeviceAllReduce& call) const {
  const auto ranks = static_cast<std::size_t>(size());
  return (call.bytes + 16 * ranks - 1) / (16 * ranks) * 16;
}

}  // namespace onehop
