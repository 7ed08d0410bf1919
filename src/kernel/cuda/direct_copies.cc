#include "kernel/cuda/direct_copies.h"

#include "driver/device.h"
#include "driver/module.h"

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
  check_cuda(driver.EventCreate(&begun_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check_cuda(driver.EventCreate(&kept_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

DirectCopies::~DirectCopies() {
  if (kept_ != nullptr) (void)driver_.EventDestroy(kept_);
  if (begun_ != nullptr) (void)driver_.EventDestroy(begun_);
  if (beside_ != nullptr) (void)driver_.StreamDestroy(beside_);
}

void DirectCopies::exchange(const DeviceExchange& call, const DeviceGuard& guard, CUstream queue) {
  const DeviceExchange::Transfer& own = call.transfers[static_cast<std::size_t>(rank_)];
  const bool keeps = own.sent != 0 && own.in != own.out;
  meet(call, guard, queue);
  if (keeps) {
    // Behind the meeting, though it need not be: a graph may have the meeting wait for it otherwise, and the
    // peers with it.
    check_cuda(driver_.EventRecord(begun_, queue), "cuEventRecord");
    check_cuda(driver_.StreamWaitEvent(beside_, begun_, 0), "cuStreamWaitEvent");
    copy(own.out, own.in, own.sent, beside_);
    check_cuda(driver_.EventRecord(kept_, beside_), "cuEventRecord");
  }
  // One after the other, each rank beginning with its neighbour, so that no two copy to the same one.
  for (int step = 1; step < size(); ++step) {
    const auto& transfer = call.transfers[static_cast<std::size_t>((rank_ + step) % size())];
    if (transfer.sent != 0) copy(transfer.there, transfer.in, transfer.sent, queue);
  }
  if (keeps) check_cuda(driver_.StreamWaitEvent(queue, kept_, 0), "cuStreamWaitEvent");
  meet(call, guard, queue);
}

void DirectCopies::meet(const DeviceExchange& call, const DeviceGuard& guard, CUstream queue) {
  const auto head = [&](int r) {
    return reinterpret_cast<cuda::SegmentHead*>(segments_[static_cast<std::size_t>(r)]);
  };
  cuda::SegmentHead& own = *head(rank_);
  cuda::DirectParams params;
  params.meeting = {.rank = rank_,
                    .size = size(),
                    .phase = call.phase,
                    .control = &own.direct,
                    .own_flags = own.direct_flags,
                    .guard = guard};
  params.place = call.place;
  params.own_places = own.direct_places[0];
  for (int r = 0; r < size(); ++r) {
    params.meeting.peer_flags[r] = &head(r)->direct_flags[rank_];
    params.peer_places[r] = &head(r)->direct_places[0][rank_];
  }
  launch_kernel(driver_, meet_, {.block = 32, .stream = queue}, params, "launching meet_at_place");
}

void DirectCopies::copy(std::byte* to, const std::byte* from, std::size_t bytes, CUstream stream) {
  check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                                     bytes, stream),
             "cuMemcpyDtoDAsync");
}

}  // namespace onehop
