// SPDX-License-Identifier: Apache-2.0
#include "kernel/device_team.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/check.h"
#include "driver/capability.h"
#include "driver/device.h"
#include "driver/module.h"
#include "kernel/cuda/call_params.h"
#include "kernel/cuda/copy_engine.h"
#include "kernel/cuda/direct_copies.h"
#include "kernel/cuda/meetings.h"
#include "kernel/cuda/pair_links.h"
#include "kernel/cuda/signal_params.h"

ONEHOP_DEVICE_CODE(reductions_f16);
ONEHOP_DEVICE_CODE(reductions_bf16);
ONEHOP_DEVICE_CODE(reductions_f32);
ONEHOP_DEVICE_CODE(reductions_f64);
ONEHOP_DEVICE_CODE(reductions_e4m3);
ONEHOP_DEVICE_CODE(reductions_e5m2);
ONEHOP_DEVICE_CODE(reductions_i8);
ONEHOP_DEVICE_CODE(reductions_u8);
ONEHOP_DEVICE_CODE(reductions_i32);
ONEHOP_DEVICE_CODE(reductions_u32);
ONEHOP_DEVICE_CODE(reductions_i64);
ONEHOP_DEVICE_CODE(reductions_u64);
ONEHOP_DEVICE_CODE(signal);

namespace onehop {
namespace {

/// Kernels count in nanoseconds, so the conversion of a longer Duration could overflow.
constexpr Duration kLongestWait = std::chrono::hours{24 * 365};

/// Two-shot over mailboxes with more than 2 ranks. Up to this many packets per piece, a rank sends all
/// packets to one peer before the next. Beyond that the ranks would drift apart meanwhile, so a rank sends to
/// all peers at a time. 4 ranks: 1 MB takes 7.1 and 7.8 us, 2 MB 12.3 and 12.5, 4 MB 22.7 and 21.6
/// (bench/results/gpu-kernels.md).
constexpr std::size_t kPacketsByPeer = 32 << 10;

/// The kernels that exist for every type and reduction (reductions.cuh).
enum class Kernel : std::size_t {
  packets,
  packets_list,
  chunks,
  mail_one_shot,
  mail_two_shot,
  copies,
  scatter_packets,
  scatter_mail,
  combine,
};
constexpr std::string_view kKernelNames[] = {"packets",         "packets_list",  "chunks",
                                             "mail_one_shot",   "mail_two_shot", "copies",
                                             "scatter_packets", "scatter_mail",  "combine"};
constexpr std::size_t kKernelCount = std::size(kKernelNames);

constexpr bool is_for_floats_only(Kernel kernel) {
  return kernel == Kernel::mail_one_shot || kernel == Kernel::mail_two_shot || kernel == Kernel::scatter_mail;
}

/// The kernel of an all-reduce.
constexpr Kernel kernel_of(DeviceProtocol protocol) {
  switch (protocol) {
    case DeviceProtocol::packets:
      return Kernel::packets;
    case DeviceProtocol::mail_one_shot:
      return Kernel::mail_one_shot;
    case DeviceProtocol::mail_two_shot:
      return Kernel::mail_two_shot;
    default:
      return Kernel::chunks;
  }
}

/// Indexed by kernel_op().
constexpr std::string_view kOpNames[kKernelOpCount] = {"sum", "prod", "min", "max", "scaled"};

/// The module with the kernels of this DType.
CudaModule& reductions_module(DType type) {
  static auto& modules = *new std::array<CudaModule, kDTypeCount>{
      CudaModule(onehop_code_reductions_f16),  CudaModule(onehop_code_reductions_bf16),
      CudaModule(onehop_code_reductions_f32),  CudaModule(onehop_code_reductions_f64),
      CudaModule(onehop_code_reductions_e4m3), CudaModule(onehop_code_reductions_e5m2),
      CudaModule(onehop_code_reductions_i8),   CudaModule(onehop_code_reductions_u8),
      CudaModule(onehop_code_reductions_i32),  CudaModule(onehop_code_reductions_u32),
      CudaModule(onehop_code_reductions_i64),  CudaModule(onehop_code_reductions_u64)};
  return modules[static_cast<std::size_t>(type)];
}

CudaModule& signal_module() {
  static auto& module = *new CudaModule(onehop_code_signal);
  return module;
}

/// Words in mapped host memory, which kernels access directly.
class MappedWords {
 public:
  struct Words {
    std::atomic<std::uint32_t> notice;
    std::atomic<std::uint64_t> fault;
  };

  explicit MappedWords(const CudaDriver& driver) : driver_(driver) {
    void* memory = nullptr;
    check_cuda(
        driver.MemHostAlloc(&memory, sizeof(Words), CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
        "cuMemHostAlloc");
    words_ = new (memory) Words{};
    const CUresult result = driver.MemHostGetDevicePointer(&device_, memory, 0);
    if (result != CUDA_SUCCESS) {
      (void)driver.MemFreeHost(memory);
      fail_cuda(result, "cuMemHostGetDevicePointer");
    }
  }
  ~MappedWords() { (void)driver_.MemFreeHost(words_); }
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
  Words* words_ = nullptr;
  CUdeviceptr device_ = 0;
};

class CudaTeam final : public DeviceTeam {
 public:
  CudaTeam(Options options, const Deadline& deadline)
      : options_(std::move(options)),
        driver_(cuda_driver()),
        context_(cuda_context(options_.device)),
        layout_(cuda::SegmentLayout::of(size(), options_.staging_bytes, options_.copy_bytes)) {
    const CurrentDevice current(context_);
    words_.emplace(driver_);
    empty_lamport_buffers(deadline);
    // With programmatic dependent launch a waiting kernel occupies multiprocessors that ranks on the same
    // device may need.
    dependent_launch_ =
        options_.alone && cuda_attribute(options_.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9;
    for (int type = 0; type < kDTypeCount; ++type) {
      for (int op = 0; op < kKernelOpCount; ++op) {
        for (std::size_t kernel = 0; kernel < kKernelCount; ++kernel) {
          if (is_for_floats_only(Kernel{kernel}) &&
              !carries(DeviceProtocol::mail_one_shot, static_cast<DType>(type)))
            continue;
          kernels_[kernel_index(Kernel{kernel}, type, op)] = load(kKernelNames[kernel], type, op);
        }
      }
    }
    check_cuda(driver_.EventCreate(&last_call_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    if (layout_.round_bytes != 0) {
      copies_.emplace(driver_, options_.device, options_.rank, options_.segments, layout_);
    }
    pairs_.emplace(driver_, options_.device, options_.rank, options_.segments, layout_, options_.blocks,
                   dependent_launch_);
    direct_.emplace(driver_, options_.device, options_.rank, options_.segments);
    barrier_ = signal_module().function(options_.device, "stream_barrier");
    put_ = signal_module().function(options_.device, "stream_put_signal");
    wait_ = signal_module().function(options_.device, "stream_wait_signal");
  }

  void begin_call(Duration timeout) override { call_timeout_ = timeout; }

  void run(const CollectiveCall& call, const DevicePlan& plan, const SymmetricOutput& outputs) override {
    in_order(call.stream, [&](CUstream queue) {
      const DeviceGuard guard = call_guard();
      if (plan.protocol == DeviceProtocol::direct) {
        if (!call.traits().reduces) return direct_->exchange(call, outputs, guard, queue);
        return direct_->all_reduce(call, plan, outputs, kernel(Kernel::copies, call), guard, queue);
      }
      if (outputs.window != 0) direct_->meet(outputs.window, call.traits().phase, guard, queue);
      switch (plan.protocol) {
        case DeviceProtocol::copies:
          return copies_->all_reduce(call, plan, kernel(Kernel::copies, call), guard, queue);
        case DeviceProtocol::streams:
        case DeviceProtocol::streams_two_shot:
          return run_streams(call, plan.protocol == DeviceProtocol::streams_two_shot, guard, queue);
        default:
          return call.collective == Collective::reduce_scatter ? reduce_scatter(call, plan, queue)
                                                               : all_reduce(call, plan, queue);
      }
    });
  }

  void run_fused(std::span<const CollectiveCall> calls, const LaunchShape& shape) override {
    const CollectiveCall& first = calls.front();
    in_order(first.stream, [&](CUstream queue) {
      cuda::AllReduceListParams params{slots(DeviceProtocol::packets)};
      params.phase = DeviceFault::all_reduce;
      std::fill(std::begin(params.first), std::end(params.first), UINT32_MAX);
      std::size_t i = 0;
      for (const CollectiveCall& call : calls) {
        if (call.count == 0) continue;
        params.first[i] = params.packets;
        params.messages[i++] = {.in = call.in, .out = call.out, .bytes = call.block_bytes()};
        params.packets += static_cast<std::uint32_t>((call.block_bytes() + 7) / 8);
      }
      launch_once(params, first, shape, kernel(Kernel::packets_list, first), queue);
    });
  }

  void transfer(const Transfers& transfers, DeviceFault::Phase phase, Stream stream) override {
    in_order(stream, [&](CUstream queue) { pairs_->exchange(transfers, phase, call_guard(), queue); });
  }

  void barrier(const DeviceView& view, int channel, Stream stream) override {
    launch_signal(barrier_, 32, {.view = view, .channel = channel}, stream, "launching a barrier");
  }
  void put_signal(const DeviceView& view, Rank dst, int channel, Stream stream) override {
    launch_signal(put_, 1, {.view = view, .peer = dst.value, .channel = channel}, stream,
                  "launching put_signal");
  }
  void wait_signal(const DeviceView& view, Rank src, int channel, Stream stream) override {
    launch_signal(wait_, 1, {.view = view, .peer = src.value, .channel = channel}, stream,
                  "launching wait_signal");
  }

  ~CudaTeam() override { (void)driver_.EventDestroy(last_call_); }
  CudaTeam(const CudaTeam&) = delete;
  CudaTeam& operator=(const CudaTeam&) = delete;

  [[nodiscard]] DeviceGuard guard(Duration timeout) const override {
    return {.failed = &head(options_.rank)->failed,
            .notice = words_->device_notice(),
            .fault = words_->device_fault(),
            .timeout_ns = static_cast<std::uint64_t>(
                std::chrono::nanoseconds(std::min(timeout, kLongestWait)).count())};
  }

  [[nodiscard]] std::optional<DeviceFailure> failure() const override {
    // Pairs with the relaxed store in record_fault(). Relaxed suffices: the word carries all information.
    return parse_fault((**words_).fault.load(std::memory_order_relaxed));
  }
  void abort() noexcept override {
    (**words_).notice.fetch_or(DeviceGuard::kAbortNotice, std::memory_order_relaxed);
  }
  void mark_left(Rank r) noexcept override {
    (**words_).notice.fetch_or(1u << r.value, std::memory_order_relaxed);
  }

  [[nodiscard]] bool idle(Stream stream) const override {
    const CurrentDevice current(context_);
    const CUresult result = driver_.StreamQuery(static_cast<CUstream>(stream.handle));
    if (result == CUDA_ERROR_NOT_READY) return false;
    check_cuda(result, "waiting for a stream");
    return true;
  }
  [[nodiscard]] bool quiesce(Duration timeout) noexcept override {
    // The driver's wait has no deadline. A thread makes it, and is left behind if necessary.
    try {
      auto ended = std::make_shared<std::promise<void>>();
      const std::future<void> end = ended->get_future();
      std::thread([ended, context = context_, &driver = driver_] {
        try {
          const CurrentDevice current(context);
          (void)driver.CtxSynchronize();
        } catch (const std::exception&) {
          // The driver has shut down, and with it everything that ran on it.
        }
        ended->set_value();
      }).detach();
      return end.wait_for(timeout) == std::future_status::ready;
    } catch (const std::exception&) {
      return false;  // no memory or no thread for it
    }
  }

 private:
  [[nodiscard]] int size() const { return static_cast<int>(options_.segments.size()); }
  [[nodiscard]] DeviceGuard call_guard() const { return guard(call_timeout_); }
  /// Lamport buffers must be empty when the group begins. No peer writes before all ranks have agreed that it
  /// does. Uses a stream of its own, since the default stream waits for other work of the process.
  void empty_lamport_buffers(const Deadline& deadline) const {
    if (size() == 1) return;  // one rank has no such buffers
    constexpr const char* kWhat = "emptying the Lamport buffers";
    CUstream stream = nullptr;
    check_cuda(driver_.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), kWhat);
    const std::size_t begin = layout_.mail_one_shot().begin;
    CUresult result = driver_.MemsetD8Async(reinterpret_cast<CUdeviceptr>(own_segment() + begin), 0xff,
                                            layout_.copies().begin - begin, stream);
    if (result == CUDA_SUCCESS) {
      while ((result = driver_.StreamQuery(stream)) == CUDA_ERROR_NOT_READY && !deadline.expired())
        std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    (void)driver_.StreamDestroy(stream);  // queued work still completes
    if (result == CUDA_ERROR_NOT_READY) {
      fail(ErrorCode::timeout,
           "joining: device {} did not run a copy within {} ms: do other kernels occupy it?",
           options_.device.value, deadline.timeout().count());
    }
    check_cuda(result, kWhat);
  }
  /// Queues a call by `body(queue)`. Calls of one group share slots and counts, so a call on another stream
  /// waits for the previous call. In a stream under capture, the graph's user orders the call against other
  /// work.
  template <class Body>
  void in_order(Stream stream, Body&& body) {
    auto* const queue = static_cast<CUstream>(stream.handle);
    const CurrentDevice current(context_);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    check_cuda(driver_.StreamIsCapturing(queue, &status), "cuStreamIsCapturing");
    const bool captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!captured) {
      if (called_ && queue != last_stream_) {
        check_cuda(driver_.StreamWaitEvent(queue, last_call_, 0), "cuStreamWaitEvent");
      }
      called_ = true;
      last_stream_ = queue;
    }
    body(queue);
    if (!captured) check_cuda(driver_.EventRecord(last_call_, queue), "cuEventRecord");
  }

  /// Queues an all-reduce, or a reduce. In a reduce the ranks other than the root discard the result.
  void all_reduce(const CollectiveCall& call, const DevicePlan& plan, CUstream queue) {
    cuda::AllReduceParams params = slots(plan.protocol);
    params.chunk = plan.chunk;
    params.phase = call.traits().phase;
    const bool wanted = call.gets_out();
    params.aligned = is_aligned(call.in) && (!wanted || is_aligned(call.out));
    const std::size_t bytes = call.block_bytes();
    auto* const function = kernel(kernel_of(plan.protocol), call);
    for (std::size_t done = 0; done < bytes; done += plan.launch_bytes) {
      params.in = call.in + done;
      params.out = wanted ? call.out + done : own_segment() + layout_.discard();
      params.bytes = std::min(bytes - done, plan.launch_bytes);
      cut(params, plan.protocol);
      launch_once(params, call, plan.shape, function, queue);
    }
  }

  /// Queues a reduce-scatter over packets or mailboxes.
  void reduce_scatter(const CollectiveCall& call, const DevicePlan& plan, CUstream queue) {
    const bool mail = plan.protocol == DeviceProtocol::mail_one_shot;
    const std::size_t block = call.block_bytes();
    const std::size_t width = mail ? 16 : 8;
    cuda::AllReduceParams params = slots(plan.protocol);
    params.piece = block;
    params.phase = call.traits().phase;
    params.aligned = is_aligned(call.in) && is_aligned(call.out) && block % 16 == 0;
    auto* const function = kernel(mail ? Kernel::scatter_mail : Kernel::scatter_packets, call);
    for (std::size_t done = 0; done < block; done += plan.launch_bytes) {
      params.in = call.in + done;
      params.out = call.out + done;
      params.block = std::min(block - done, plan.launch_bytes);
      params.bytes = static_cast<std::size_t>(size() - 1) * block + params.block;
      params.packets = static_cast<std::uint32_t>((params.block + width - 1) / width);
      launch_once(params, call, plan.shape, function, queue);
    }
  }

  /// Queues point-to-point protocols.
  void run_streams(const CollectiveCall& call, bool two_shot, const DeviceGuard& guard, CUstream queue) {
    if (call.collective == Collective::reduce_scatter)
      return pairs_->reduce_scatter(call, kernel(Kernel::combine, call), guard, queue);
    if (call.collective == Collective::reduce)
      return pairs_->reduce(call, two_shot, kernel(Kernel::combine, call), guard, queue);
    if (two_shot) return pairs_->broadcast(call, guard, queue);
    pairs_->exchange(transfers_of(call), call.traits().phase, guard, queue);
  }

  template <class Params>
  void launch_once(Params& params, const CollectiveCall& call, const LaunchShape& shape, CUfunction function,
                   CUstream queue) {
    params.rank = options_.rank;
    params.size = size();
    params.early = shape.early;
    params.scale = call.scale();
    params.guard = call_guard();
    launch_kernel(driver_, function,
                  {.grid = shape.grid, .block = shape.block, .stream = queue, .dependent = dependent_launch_},
                  params, "launching a reduction");
  }
  [[nodiscard]] static bool is_aligned(const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }
  [[nodiscard]] std::byte* segment(int r) const { return options_.segments[static_cast<std::size_t>(r)]; }
  [[nodiscard]] std::byte* own_segment() const { return segment(options_.rank); }
  [[nodiscard]] cuda::SegmentHead* head(int r) const { return &segment_head(options_.segments, r); }

  /// Parameters that describe the memory of a protocol.
  [[nodiscard]] cuda::AllReduceParams slots(DeviceProtocol protocol) const {
    cuda::SegmentHead& own = *head(options_.rank);
    cuda::AllReduceParams params;
    cuda::Slots slots;
    switch (protocol) {
      case DeviceProtocol::packets:
        slots = layout_.packets();
        params.control = &own.packets;
        break;
      case DeviceProtocol::chunks:
        slots = layout_.chunks();
        break;
      case DeviceProtocol::mail_one_shot:
        slots = layout_.mail_one_shot();
        params.control = &own.mail;
        break;
      case DeviceProtocol::mail_two_shot:
        slots = layout_.mail_two_shot();
        params.control = &own.mail;
        break;
      default:
        break;
    }
    params.inbox = own_segment() + slots.begin;
    for (int step = 1; step < size(); ++step) {
      params.outbox[step] = segment((options_.rank + step) % size()) + slots.begin +
                            static_cast<std::size_t>(options_.rank) * slots.rank;
    }
    params.parity_stride = slots.parity;
    params.phase_stride = slots.phase;
    params.rank_stride = slots.rank;
    for (int r = 0; r < size(); ++r) params.heads[r] = head(r);
    return params;
  }

  /// Splits params.bytes into the units that the kernel's threads move.
  void cut(cuda::AllReduceParams& params, DeviceProtocol protocol) const {
    const auto ranks = static_cast<std::size_t>(size());
    params.piece = ((params.bytes + ranks - 1) / ranks + 15) / 16 * 16;
    std::size_t packets = 0;
    switch (protocol) {
      case DeviceProtocol::packets:
        packets = (params.bytes + 7) / 8;
        break;
      case DeviceProtocol::mail_one_shot:
        packets = (params.bytes + 15) / 16;
        break;
      case DeviceProtocol::mail_two_shot:
        packets = params.piece / 16;
        params.by_peer = packets <= kPacketsByPeer;
        break;
      default:
        break;
    }
    params.packets = static_cast<std::uint32_t>(packets);
  }

  [[nodiscard]] static std::size_t kernel_index(Kernel kernel, int type, int op) {
    return static_cast<std::size_t>(type * kKernelOpCount + op) * kKernelCount +
           static_cast<std::size_t>(kernel);
  }
  [[nodiscard]] CUfunction kernel(Kernel kernel, const CollectiveCall& call) const {
    return kernels_[kernel_index(kernel, static_cast<int>(call.type), kernel_op(call.op))];
  }
  [[nodiscard]] CUfunction load(std::string_view kind, int type, int op) const {
    const int ranks = cuda::kernel_ranks(size(), op == kernel_op(ReduceOp::sum));
    return reductions_module(static_cast<DType>(type))
        .function(options_.device,
                  fmt::format("{}_{}_{}_{}", kind, to_string(static_cast<DType>(type)), kOpNames[op], ranks));
  }
  void launch_signal(CUfunction function, unsigned block, const cuda::SignalParams& params, Stream stream,
                     const char* what) {
    const CurrentDevice current(context_);
    launch_kernel(driver_, function, {.block = block, .stream = static_cast<CUstream>(stream.handle)}, params,
                  what);
  }

  const Options options_;
  const CudaDriver& driver_;
  CUcontext context_;
  const cuda::SegmentLayout layout_;
  std::optional<MappedWords> words_;
  std::array<CUfunction, std::size_t{kDTypeCount} * kKernelOpCount * kKernelCount> kernels_{};
  bool dependent_launch_ = false;
  CUevent last_call_ = nullptr;
  CUstream last_stream_ = nullptr;
  bool called_ = false;
  Duration call_timeout_ = kDefaultTimeout;
  std::optional<CopyEngine> copies_;  ///< only in groups that provide memory for them
  std::optional<PairLinks> pairs_;
  std::optional<DirectCopies> direct_;
  CUfunction barrier_ = nullptr;
  CUfunction put_ = nullptr;
  CUfunction wait_ = nullptr;
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

std::unique_ptr<DeviceTeam> DeviceTeam::create(Options options, const Deadline& deadline) {
  return std::make_unique<CudaTeam>(std::move(options), deadline);
}

std::size_t DeviceTeam::segment_bytes(int size, std::size_t staging_bytes, std::size_t copy_bytes) {
  return cuda::SegmentLayout::of(size, staging_bytes, copy_bytes).bytes();
}

}  // namespace onehop
