// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/peer_check_device.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/units.h"
#include "driver/device.h"
#include "driver/module.h"

ONEHOP_DEVICE_CODE(peer_check);

namespace onehop::peer_check {
namespace {

constexpr unsigned char kOverwritten = 0xa5;
constexpr auto kPollInterval = std::chrono::microseconds{20};

CudaModule& module() {
  static auto& instance = *new CudaModule(onehop_code_peer_check);
  return instance;
}

void* address(CUdeviceptr pointer) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's idea of a pointer
  return reinterpret_cast<void*>(pointer);
}

CUdeviceptr allocate(DeviceId device, std::size_t bytes) {
  CUdeviceptr memory = 0;
  const CUresult result = cuda_driver().MemAlloc(&memory, bytes);
  if (result == CUDA_SUCCESS) return memory;
  fail_cuda(result, fmt::format("allocating {} bytes on device {} for the peer check, which needs twice the "
                                "size it checks (cuMemAlloc)",
                                format_size(bytes), device.value));
}

}  // namespace

CheckDevice::CheckDevice(DeviceId device, std::size_t bytes, int most_events)
    : device_(device), context_(cuda_context(device)), bytes_(bytes) {
  const CudaDriver& driver = cuda_driver();
  const CurrentDevice current(context_);
  multiprocessors_ = static_cast<unsigned>(cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  try {
    // Loads the kernels before any of them runs. Loading waits for running kernels, and two ping kernels wait
    // for each other.
    for (const char* kernel : {"onehop_peer_store", "onehop_peer_load", "onehop_peer_verify",
                               "onehop_peer_atomics", "onehop_peer_ping"}) {
      (void)module().function(device, kernel);
    }
    check_cuda(driver.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    inbox_ = allocate(device, bytes);
    outbox_ = allocate(device, bytes);
    scratch_ = allocate(device, sizeof(Scratch));
    void* landing = nullptr;
    check_cuda(driver.MemHostAlloc(&landing, sizeof(Scratch), CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    landing_ = static_cast<Scratch*>(landing);
    for (int i = 0; i < most_events; ++i) {
      check_cuda(driver.EventCreate(&events_.emplace_back(), CU_EVENT_DEFAULT), "cuEventCreate");
    }
  } catch (...) {
    release();
    throw;
  }
}

CheckDevice::~CheckDevice() {
  release();
}

void CheckDevice::release() noexcept {
  const CudaDriver* const driver = find_cuda_driver();
  if (abandoned_ || driver == nullptr) return;
  // Results are ignored: after a kernel's error, all calls into its context fail.
  CUcontext previous = nullptr;
  (void)driver->CtxGetCurrent(&previous);
  (void)driver->CtxSetCurrent(context_);
  for (CUevent event : events_) {
    if (event != nullptr) (void)driver->EventDestroy(event);
  }
  if (landing_ != nullptr) (void)driver->MemFreeHost(landing_);
  for (const CUdeviceptr memory : {scratch_, outbox_, inbox_}) {
    if (memory != 0) (void)driver->MemFree(memory);
  }
  if (stream_ != nullptr) (void)driver->StreamDestroy(stream_);
  (void)driver->CtxSetCurrent(previous);
}

Scratch* CheckDevice::scratch() const {
  return static_cast<Scratch*>(address(scratch_));
}

template <class Parameter>
void CheckDevice::launch(const char* kernel, unsigned grid, unsigned block, const Parameter& parameter) {
  CUfunction function = module().function(device_, kernel);
  const CurrentDevice current(context_);
  const CudaLaunch shape{.grid = grid, .block = block, .stream = stream_};
  launch_kernel(cuda_driver(), function, shape, parameter, kernel);
}

void CheckDevice::launch_wide(const char* kernel, const auto& parameter) {
  const std::uint64_t useful = (units() + kBlock - 1) / kBlock;
  launch(kernel, static_cast<unsigned>(std::min<std::uint64_t>(multiprocessors_, useful)), kBlock, parameter);
}

void CheckDevice::store(CUdeviceptr to, std::uint64_t key) {
  launch_wide("onehop_peer_store", StoreParams{.to = address(to), .units = units(), .key = key});
}

void CheckDevice::load(CUdeviceptr from, CUdeviceptr to) {
  launch_wide("onehop_peer_load", LoadParams{.from = address(from), .to = address(to), .units = units()});
}

void CheckDevice::send(const CheckDevice& to) {
  const CurrentDevice current(context_);
  check_cuda(cuda_driver().MemcpyPeerAsync(to.inbox_, to.context_, outbox_, context_, bytes_, stream_),
             "cuMemcpyPeerAsync");
}

void CheckDevice::overwrite(CUdeviceptr buffer) {
  const CurrentDevice current(context_);
  check_cuda(cuda_driver().MemsetD8Async(buffer, kOverwritten, bytes_, stream_), "cuMemsetD8Async");
}

void CheckDevice::clear_scratch() {
  const CurrentDevice current(context_);
  check_cuda(cuda_driver().MemsetD8Async(scratch_, 0, sizeof(Scratch), stream_), "cuMemsetD8Async");
}

void CheckDevice::add(const CheckDevice& owner) {
  launch("onehop_peer_atomics", kAtomicBlocks, kAtomicBlock,
         AtomicsParams{.counters32 = owner.scratch()->counters32,
                       .counters64 = owner.scratch()->counters64,
                       .ticket_sum = &scratch()->ticket_sum});
}

void CheckDevice::ping(const CheckDevice& peer, bool starts, std::uint32_t warmup, std::uint32_t rounds,
                       std::uint64_t limit_ns) {
  launch("onehop_peer_ping", 1, 1,
         PingParams{.mine = &scratch()->flag,
                    .theirs = &peer.scratch()->flag,
                    .result = &scratch()->ping,
                    .limit_ns = limit_ns,
                    .warmup = warmup,
                    .rounds = rounds,
                    .starts = starts ? 1u : 0u});
}

void CheckDevice::stamp(int event) {
  const CurrentDevice current(context_);
  check_cuda(cuda_driver().EventRecord(events_.at(static_cast<std::size_t>(event)), stream_),
             "cuEventRecord");
}

void CheckDevice::wait(const Deadline& deadline) const {
  const CurrentDevice current(context_);
  while (true) {
    const CUresult result = cuda_driver().StreamQuery(stream_);
    if (result == CUDA_SUCCESS) return;
    if (result != CUDA_ERROR_NOT_READY) fail_cuda(result, fmt::format("GPU {} stopped", device_.value));
    if (deadline.expired()) {
      throw Hung(fmt::format("GPU {} was not done when the {} ms for the whole check were over",
                             device_.value, deadline.timeout().count()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

Verdict CheckDevice::verify(CUdeviceptr buffer, std::uint64_t key, const Deadline& deadline) {
  clear_scratch();
  launch_wide(
      "onehop_peer_verify",
      VerifyParams{.data = address(buffer), .units = units(), .key = key, .verdict = &scratch()->verdict});
  return read_scratch(deadline).verdict;
}

Scratch CheckDevice::read_scratch(const Deadline& deadline) {
  {
    const CurrentDevice current(context_);
    check_cuda(cuda_driver().MemcpyDtoHAsync(landing_, scratch_, sizeof(Scratch), stream_),
               "cuMemcpyDtoHAsync");
  }
  wait(deadline);
  return *landing_;
}

double CheckDevice::milliseconds(int first_event, int second_event) const {
  const CurrentDevice current(context_);
  float elapsed = 0;
  check_cuda(cuda_driver().EventElapsedTime(&elapsed, events_.at(static_cast<std::size_t>(first_event)),
                                            events_.at(static_cast<std::size_t>(second_event))),
             "cuEventElapsedTime");
  return static_cast<double>(elapsed);
}

}  // namespace onehop::peer_check
