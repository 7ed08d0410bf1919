// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/call_order.h"
#include "backend/cuda/event.h"
#include "backend/cuda/signal_params.h"
#include "base/check.h"
#include "base/deadline.h"
#include "driver/capability.h"
#include "driver/device.h"
#include "driver/kernel_graphs.h"
#include "driver/module.h"
#include "os/mapping.h"
#include "os/memfd.h"

// One module per element type, in the order of DType; CMake writes the list. A build may leave types out
// (ONEHOP_CUDA_TYPES).
#define ONEHOP_REDUCTION_MODULE(type) ONEHOP_DEVICE_CODE(reductions_##type);
#define ONEHOP_NO_REDUCTION_MODULE(type)
#include "backend/cuda/reduction_modules.inc"
#undef ONEHOP_REDUCTION_MODULE
#undef ONEHOP_NO_REDUCTION_MODULE
ONEHOP_DEVICE_CODE(algorithm_kernels);
ONEHOP_DEVICE_CODE(signal);

namespace onehop {
namespace {

using cuda::LaunchShape;
using cuda::PlainKernel;
using cuda::ReductionKernel;

/// Kernels count in nanoseconds, so the conversion of a longer Duration could overflow.
constexpr Duration kLongestWait = std::chrono::hours{24 * 365};
/// For a capture that forbids to wait for the device.
constexpr Duration kCaptureLimit = std::chrono::seconds{10};

/// The module with the kernels of this DType; nullptr if this build has none.
CudaModule* reductions_module(DType type) {
#define ONEHOP_REDUCTION_MODULE(type) new CudaModule(onehop_code_reductions_##type),
#define ONEHOP_NO_REDUCTION_MODULE(type) nullptr,
  static const std::array<CudaModule*, kDTypeCount> modules{
#include "backend/cuda/reduction_modules.inc"
  };
#undef ONEHOP_REDUCTION_MODULE
#undef ONEHOP_NO_REDUCTION_MODULE
  return modules[static_cast<std::size_t>(type)];
}

CudaModule& algorithms_module() {
  static auto& module = *new CudaModule(onehop_code_algorithm_kernels);
  return module;
}

CudaModule& signal_module() {
  static auto& module = *new CudaModule(onehop_code_signal);
  return module;
}

/// Words in host memory that kernels access directly. A thread looks at them until its group ends, and at the exit of a
/// process whose groups have not ended the driver frees what it has allocated. So the memory is not the driver's; it is only
/// registered. It is shared, because a fork would give memory that is copied on write another page, unknown to the GPU.
class MappedWords {
 public:
  struct Words {
    std::atomic<std::uint32_t> notice;
    std::atomic<std::uint64_t> fault;
  };

  explicit MappedWords(const CudaDriver& driver)
      : driver_(driver),
        memory_(os::Mapping::map_shared(os::create_sealed_memfd("onehop-words", os::page_size()).get(),
                                        os::page_size(), "the words that kernels report to")),
        words_(new (memory_.data()) Words{}) {
    check_cuda(driver.MemHostRegister(words_, memory_.bytes(),
                                      CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE),
               "cuMemHostRegister");
    const CUresult result = driver.MemHostGetDevicePointer(&device_, words_, 0);
    if (result != CUDA_SUCCESS) {
      (void)driver.MemHostUnregister(words_);
      fail_cuda(result, "cuMemHostGetDevicePointer");
    }
  }
  ~MappedWords() { (void)driver_.MemHostUnregister(words_); }
  MappedWords(const MappedWords&) = delete;
  MappedWords& operator=(const MappedWords&) = delete;

  [[nodiscard]] Words& operator*() const { return *words_; }
  [[nodiscard]] const std::uint32_t* device_notice() const {
    return to_pointer<const std::uint32_t>(device_ + offsetof(Words, notice));
  }
  [[nodiscard]] std::uint64_t* device_fault() const {
    return to_pointer<std::uint64_t>(device_ + offsetof(Words, fault));
  }

 private:
  const CudaDriver& driver_;
  os::Mapping memory_;
  Words* words_;
  CUdeviceptr device_ = 0;
};

/// Kernels of calls with no more bytes take less time than their direct launch. The others are better launched as dependents
/// of their predecessors (bench/results/gpu-kernels.md).
constexpr std::size_t kShortBytes = 256 << 10;

/// The kernels of one device, for groups of one size.
class Kernels {
 public:
  Kernels(DeviceId device, int ranks) {
    for (const cuda::DeviceAlgorithm* const algorithm : cuda::device_algorithms()) {
      if (!algorithm->takes(ranks)) continue;
      for (const ReductionKernel* const kernel : algorithm->kernels) {
        if (find(reductions_, kernel) == nullptr) reductions_.push_back({kernel});
      }
    }
    // Each type has a module of its own, and the driver loads several at a time. (First group of a process on
    // an H200: 83 ms with one thread, 41 with 2, 33 with 4, 28 with 12; with 4 such processes, 100 ms with one
    // thread each, 52 with 2, 42 with 4, 45 with 12.)
    constexpr int kLoaders = 4;
    std::vector<std::future<void>> loaders;
    for (int i = 0; i < kLoaders; ++i) {
      loaders.push_back(std::async(std::launch::async, [=, this] {
        for (int type = i; type < kDTypeCount; type += kLoaders)
          load(device, ranks, static_cast<DType>(type));
      }));
    }
    for (const cuda::DeviceAlgorithm* const algorithm : cuda::device_algorithms()) {
      if (!algorithm->takes(ranks)) continue;
      for (const PlainKernel* const kernel : algorithm->plain_kernels) {
        if (find(plain_, kernel) == nullptr)
          plain_.push_back({kernel, algorithms_module().function(device, kernel->name)});
      }
    }
    for (std::future<void>& each : loaders) each.get();
  }

  [[nodiscard]] CUfunction get(const ReductionKernel& kernel, const CollectiveCall& call) const {
    if (reductions_module(call.type) == nullptr) {
      fail(ErrorCode::unsupported,
           "this build has no GPU kernels for {}: it was configured with ONEHOP_CUDA_TYPES, which names "
           "others",
           to_string(call.type));
    }
    return find(reductions_, &kernel)->functions[index(call.type, cuda::kernel_of(call.op))];
  }
  [[nodiscard]] CUfunction get(const PlainKernel& kernel) const { return find(plain_, &kernel)->function; }

 private:
  struct Reduction {
    const ReductionKernel* kernel;
    std::array<CUfunction, kDTypeCount * cuda::kKernelOps.size()> functions{};
  };
  struct Plain {
    const PlainKernel* kernel;
    CUfunction function;
  };

  template <class Entry, class Kernel>
  [[nodiscard]] static const Entry* find(const std::vector<Entry>& entries, const Kernel* kernel) {
    const auto found = std::ranges::find(entries, kernel, &Entry::kernel);
    return found == entries.end() ? nullptr : &*found;
  }
  [[nodiscard]] static std::size_t index(DType type, std::size_t op) {
    return static_cast<std::size_t>(type) * cuda::kKernelOps.size() + op;
  }
  void load(DeviceId device, int ranks, DType type) {
    CudaModule* const module = reductions_module(type);
    if (module == nullptr) return;
    for (Reduction& each : reductions_) {
      if (each.kernel->types == TypeClass::floats && type_class(type) != TypeClass::floats) continue;
      for (std::size_t op = 0; op < cuda::kKernelOps.size(); ++op) {
        const int variant = each.kernel->variant(ranks, op == cuda::kernel_of(ReduceOp::sum));
        each.functions[index(type, op)] = module->function(
            device,
            fmt::format("{}_{}_{}_{}", each.kernel->name, to_string(type), cuda::kKernelOps[op], variant));
      }
    }
  }

  std::vector<Reduction> reductions_;
  std::vector<Plain> plain_;
};

/// During its lifetime, a capture of a stream that another thread makes neither forbids this thread's calls nor becomes
/// invalid by them.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { (void)driver_.ThreadExchangeStreamCaptureMode(&mode_); }

  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  ///< after that the thread's previous one
};

class CudaStream {
 public:
  explicit CudaStream(const CudaDriver& driver) : driver_(driver) {
    check_cuda(driver.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~CudaStream() { (void)driver_.StreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] CUstream get() const { return stream_; }

 private:
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
};

class CudaCommunicator final : public Communicator {
 public:
  /// With the device current.
  CudaCommunicator(Options options, CUcontext context)
      : Communicator(options.shape, options.rank, std::move(options.segments), options.poison),
        context_(context),
        // With programmatic dependent launch a waiting kernel occupies multiprocessors that ranks on the same
        // device may need.
        dependent_launch_(options.alone &&
                          cuda_attribute(options.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9),
        words_(driver_),
        kernels_(options.device, options.shape.ranks),
        barrier_(signal_module().function(options.device, "stream_barrier")),
        put_(signal_module().function(options.device, "stream_put_signal")),
        wait_(signal_module().function(options.device, "stream_wait_signal")),
        side_(driver_),
        abort_stream_(driver_),
        graphs_(driver_, GraphPool::of(driver_, context_, barrier_)),
        order_(driver_, abort_stream_.get()),
        marks_{CudaEvent(driver_), CudaEvent(driver_), CudaEvent(driver_)} {
    set_failed(0);  // loads the driver's kernel now: abort() might have to wait for that
    check_cuda(driver_.StreamSynchronize(abort_stream_.get()), "cuStreamSynchronize");
  }

  [[nodiscard]] DeviceGuard call_guard() const override { return guard_for(call_timeout_); }
  void launch(const ReductionKernel& kernel, const CollectiveCall& call, const LaunchShape& shape,
              cuda::KernelParams params) override {
    launch_in_call(kernels_.get(kernel, call), shape, params, kernel.name);
  }
  void launch(const PlainKernel& kernel, const LaunchShape& shape, cuda::KernelParams params) override {
    launch_in_call(kernels_.get(kernel), shape, params, kernel.name);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cuda::Lane lane) override {
    if (bytes == 0) return;
    check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                                       bytes, stream_of(lane)),
               "cuMemcpyDtoDAsync");
  }
  void write(std::byte* to, std::uint32_t word) override {
    check_cuda(
        driver_.MemsetD32Async(reinterpret_cast<CUdeviceptr>(to), word, 1, stream_of(cuda::Lane::caller)),
        "cuMemsetD32Async");
  }
  void record(cuda::Mark mark, cuda::Lane lane) override { event_of(mark).record(stream_of(lane)); }
  void wait_for(cuda::Mark mark, cuda::Lane lane) override { event_of(mark).hold(stream_of(lane)); }

  void barrier(const DeviceView& view, int channel, Stream stream) override {
    launch_signal(barrier_, 32, {.view = view, .channel = channel}, stream, "stream_barrier");
  }
  void put_signal(const DeviceView& view, Rank dst, int channel, Stream stream) override {
    launch_signal(put_, 1, {.view = view, .peer = dst.value, .channel = channel}, stream,
                  "stream_put_signal");
  }
  void wait_signal(const DeviceView& view, Rank src, int channel, Stream stream) override {
    launch_signal(wait_, 1, {.view = view, .peer = src.value, .channel = channel}, stream,
                  "stream_wait_signal");
  }

  [[nodiscard]] DeviceGuard guard(Duration timeout) const override {
    makes_only_calls_.store(false, std::memory_order_relaxed);
    return guard_for(timeout);
  }
  [[nodiscard]] DeviceGuard guard_for(Duration timeout) const {
    return {.failed = &reinterpret_cast<cuda::SegmentHead*>(segment(rank()))->failed,
            .notice = words_.device_notice(),
            .fault = words_.device_fault(),
            .timeout_ns = static_cast<std::uint64_t>(
                std::chrono::nanoseconds(std::min(timeout, kLongestWait)).count())};
  }

  [[nodiscard]] std::optional<DeviceFailure> failure() const override {
    // Pairs with the relaxed store in record_fault(). Relaxed suffices: the word carries all information.
    return parse_fault((*words_).fault.load(std::memory_order_relaxed));
  }
  [[nodiscard]] bool failed() const override {
    return (*words_).fault.load(std::memory_order_relaxed) != 0;  // see failure()
  }
  void abort() noexcept override {
    // Before anything that takes the driver's locks: a thread that holds them may wait for these kernels.
    (*words_).notice.fetch_or(DeviceGuard::kAbortNotice, std::memory_order_relaxed);
    const std::lock_guard lock(abort_mutex_);
    if (aborted_ || segments_released_) return;
    aborted_ = true;
    try {
      const CurrentDevice current(context_);
      set_failed(1);
    } catch (const std::exception&) {
      // The device has failed or the driver has shut down, and with it everything that ran there.
    }
  }
  [[nodiscard]] bool release_segments(Duration timeout) noexcept override {
    const std::lock_guard lock(abort_mutex_);
    segments_released_ = true;
    if (!aborted_) return true;
    try {
      const CurrentDevice current(context_);
      const Deadline deadline = Deadline::after(timeout);
      while (driver_.StreamQuery(abort_stream_.get()) == CUDA_ERROR_NOT_READY) {
        if (deadline.expired()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{20});
      }
    } catch (const std::exception&) {
      // See abort().
    }
    return true;
  }
  void mark_left(Rank r) noexcept override {
    (*words_).notice.fetch_or(1u << r.value, std::memory_order_relaxed);
  }

  void order_streams(Stream before, Stream after) const override {
    const CurrentDevice current(context_);
    const CudaEvent reached(driver_);
    reached.record(static_cast<CUstream>(before.handle));
    reached.hold(static_cast<CUstream>(after.handle));
  }
  [[nodiscard]] bool idle(Stream stream) const override {
    const CurrentDevice current(context_);
    const CUresult result = driver_.StreamQuery(static_cast<CUstream>(stream.handle));
    if (result == CUDA_ERROR_NOT_READY) return false;
    check_cuda(result, "waiting for a stream");
    return true;
  }
  [[nodiscard]] bool finish(Duration timeout) noexcept override {
    if (!makes_only_calls_.load(std::memory_order_relaxed)) return quiesce(timeout);
    try {
      const CurrentDevice current(context_);
      const RelaxedCapture relaxed(driver_);
      const Deadline deadline = Deadline::after(timeout);
      while (order_.pending()) {
        if (deadline.expired()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{20});
      }
    } catch (const std::exception&) {
      // The driver has shut down, and with it everything that ran on it.
    }
    return true;
  }
  [[nodiscard]] bool quiesce(Duration timeout) noexcept override {
    // The driver's wait has no deadline. A thread makes it, and is left behind if necessary.
    try {
      auto ended = std::make_shared<std::promise<bool>>();
      std::future<bool> end = ended->get_future();
      const Duration limit = std::min(timeout, kLongestWait);
      std::thread([ended, limit, context = context_, &driver = driver_] {
        const Deadline deadline = Deadline::after(limit);
        CUresult result = CUDA_SUCCESS;
        try {
          const CurrentDevice current(context);
          const RelaxedCapture relaxed(driver);
          // Not possible while any stream of the device is captured, whatever this thread's mode.
          // The capture may be this thread's own, and then it would never end.
          const Deadline patience = Deadline::after(kCaptureLimit);
          while ((result = driver.CtxSynchronize()) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                 !deadline.expired() && !patience.expired())
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        } catch (const std::exception&) {
          // The driver has shut down, and with it everything that ran on it.
        }
        // After any other error the device has failed, and nothing runs on it any more.
        ended->set_value(result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      }).detach();
      return end.wait_for(limit) == std::future_status::ready && end.get();
    } catch (const std::exception&) {
      return false;  // no memory or no thread for it
    }
  }

 private:
  void begin_call(Stream stream, Duration timeout, std::size_t bytes) override {
    current_.emplace(context_);
    stream_ = static_cast<CUstream>(stream.handle);
    call_timeout_ = timeout;
    is_short_ = bytes <= kShortBytes;
    ended_ = false;
    order_.begin(stream_);
  }
  void end_call() override {
    order_.end();
    ended_ = !order_.captured();
  }
  void leave_call() noexcept override {
    // order_ does not tell whether a graph will be launched, or when what was queued before an error has completed.
    if (!ended_) makes_only_calls_.store(false, std::memory_order_relaxed);
    current_.reset();
  }

  [[nodiscard]] CudaLaunch to_cuda(const LaunchShape& shape) const {
    return {.grid = shape.grid,
            .rows = shape.rows,
            .block = shape.block,
            .stream = stream_,
            .dependent = dependent_launch_ && may_start_early(shape, this->shape().blocks, behind_early_)};
  }
  void launch_in_call(CUfunction function, const LaunchShape& shape, const cuda::KernelParams& params,
                      const char* name) {
    if (is_short_ && !order_.captured()) {
      graphs_.launch(function, to_cuda(shape), params.data, params.bytes, name);
    } else {
      launch_kernel(driver_, function, to_cuda(shape), params.data, name);
    }
    behind_early_ = shape.lets_next_start;
  }
  void launch_signal(CUfunction function, unsigned block, const cuda::SignalParams& params, Stream stream,
                     const char* name) {
    const CurrentDevice current(context_);
    launch_kernel(driver_, function, {.block = block, .stream = static_cast<CUstream>(stream.handle)}, params,
                  name);
  }

  void set_failed(unsigned value) const {
    // Pairs with the load in has_failed().
    check_cuda(driver_.MemsetD32Async(reinterpret_cast<CUdeviceptr>(guard_for(Duration{0}).failed), value, 1,
                                      abort_stream_.get()),
               "cuMemsetD32Async");
  }
  [[nodiscard]] CUstream stream_of(cuda::Lane lane) const {
    return lane == cuda::Lane::caller ? stream_ : side_.get();
  }
  [[nodiscard]] const CudaEvent& event_of(cuda::Mark mark) const {
    return marks_[static_cast<std::size_t>(mark)];
  }

  const CudaDriver& driver_ = cuda_driver();
  CUcontext context_;
  const bool dependent_launch_;
  const MappedWords words_;
  const Kernels kernels_;
  CUfunction barrier_;
  CUfunction put_;
  CUfunction wait_;
  /// When the last call has completed, so has all that uses this group's memory on the device. Relaxed: whoever leaves the group
  /// is ordered after its calls by the caller.
  mutable std::atomic<bool> makes_only_calls_{true};
  const CudaStream side_;
  const CudaStream abort_stream_;
  KernelGraphs graphs_;
  cuda::CallOrder order_;
  std::mutex abort_mutex_;
  bool aborted_ = false;
  bool segments_released_ = false;
  const std::array<CudaEvent, cuda::kMarks> marks_;
  // The call that is being queued.
  std::optional<CurrentDevice> current_;
  CUstream stream_ = nullptr;
  bool ended_ = false;  ///< it was not captured, and all of it is queued
  Duration call_timeout_ = kDefaultTimeout;
  bool is_short_ = false;
  bool behind_early_ = false;  ///< the last kernel lets the next one start as soon as it runs
};

}  // namespace

std::string identify_device(DeviceId device) {
  require_cuda_device(device);
  const int capability = 10 * cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                         cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (capability < kOldestCapability) {
    fail(ErrorCode::unsupported, "device {} has compute capability {}.{}; onehop needs {}.{} or newer",
         device.value, capability / 10, capability % 10, kOldestCapability / 10, kOldestCapability % 10);
  }
  return cuda_uuid(device);
}

std::string device_name(DeviceId device) {
  char name[256] = {};
  check_cuda(cuda_driver().DeviceGetName(name, sizeof name - 1, cuda_device(device)), "cuDeviceGetName");
  return name;
}

int multiprocessors(DeviceId device) {
  return cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

bool has_peer_without_nvlink(DeviceId device, const std::vector<std::string>& identities) {
  for (DeviceId peer{0}; peer.value < cuda_device_count(); ++peer.value) {
    if (peer == device || std::ranges::find(identities, cuda_uuid(peer)) == identities.end()) continue;
    // NVLink carries atomics, PCIe does not.
    int atomics = 0;
    check_cuda(cuda_driver().DeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                                   cuda_device(device), cuda_device(peer)),
               "cuDeviceGetP2PAttribute");
    if (atomics == 0) return true;
  }
  return false;
}

std::unique_ptr<Communicator> Communicator::create(Options options) {
  CUcontext context = cuda_context(options.device);
  const CurrentDevice current(context);
  return std::make_unique<CudaCommunicator>(std::move(options), context);
}

}  // namespace onehop
