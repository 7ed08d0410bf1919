// SPDX-License-Identifier: Apache-2.0
// Measures one size on GPUs: verifies it, captures it, verifies the graph, and times all implementations in turns.
#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "base/check.h"
#include "base/units.h"
#include "bench/cuda_clock.h"
#include "bench/cuda_context.h"
#include "bench/cuda_isolated.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "bench/statistics.h"
#include "bench/verify.h"

namespace onehop::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStretch = 16 << 20;

/// An implementation with its graph and its results at this size.
struct ImplementationRun {
  Implementation* implementation = nullptr;
  GpuGraph graph;
  std::optional<IsolatedCalls> isolated;
  std::vector<double> samples;
  std::vector<double> host_ns;
  Algorithm algorithm = Algorithm::none;
  std::uint64_t expected = 0;  ///< hash of the verified result
  bool checked = false;
  bool dropped = false;
};

class GpuMeasurement {
 public:
  GpuMeasurement(GpuContext& context, std::uint64_t bytes)
      : context_(context),
        options_(context.options),
        rank_(context.group.rank()),
        shape_(shape_of(options_, rank_, bytes)),
        calls_(choose_calls(options_, bytes)),
        samples_(choose_samples(options_, bytes)),
        warmup_(options_.warmup == 0 ? 0 : std::max(2, (options_.warmup + calls_ - 1) / calls_)),
        slots_(choose_slots(options_, bytes, context.cache_bytes)),
        feeds_back_(feeds_back(options_)),
        data_(check_data_of(options_, shape_)) {
    for (const auto& each : context.implementations.all()) runs_.emplace_back().implementation = each.get();
  }

  ~GpuMeasurement() {
    if (std::uncaught_exceptions() > exceptions_) context_.implementations.abort();
  }
  GpuMeasurement(const GpuMeasurement&) = delete;
  GpuMeasurement& operator=(const GpuMeasurement&) = delete;

  BenchRow measure() {
    upload();
    for (ImplementationRun& run : runs_) prepare(run);
    progress("timing");
    // In turns, so that a disturbance of the machine affects all implementations.
    for (int i = 0; i < warmup_ + samples_; ++i) {
      for (ImplementationRun& run : runs_) {
        guarded(run, [&] { sample(run, i >= warmup_); });
      }
    }
    if (options_.mode == BenchMode::isolated) measure_floor();
    for (ImplementationRun& run : runs_) {
      if (options_.check) check_bits(run, "after timing");
    }
    return row();
  }

 private:
  void progress(const char* what) {
    context_.listener.progress(fmt::format("{}: {}", format_size(shape_.bytes), what));
  }

  /// Runs a step that all ranks take. A failure of onehop ends the run on all ranks; a failure of a peer drops
  /// the peer on all ranks. The step of a peer must not synchronize with other ranks on the host.
  template <class Step>
  void guarded(ImplementationRun& run, const Step& step) {
    if (run.implementation->ours()) return step();
    if (run.dropped) return;
    std::string complaint;
    try {
      step();
    } catch (const Error& error) {
      complaint = error.message();
    }
    const std::string first = first_complaint(context_.group, complaint);
    if (first.empty()) return;
    run.dropped = true;
    context_.note(fmt::format("{} at {} bytes: {}", run.implementation->name(), shape_.bytes, first));
  }

  // --- buffers ---

  [[nodiscard]] std::byte* slot(const ImplementationRun& run, int number) const {
    return run.implementation->memory() + static_cast<std::size_t>(number) * shape_.slot_bytes;
  }
  [[nodiscard]] std::byte* in(const ImplementationRun& run, int number) const {
    return slot(run, number) + shape_.in;
  }
  [[nodiscard]] std::byte* out(const ImplementationRun& run, int number) const {
    return slot(run, number) + shape_.out;
  }
  /// Whether the input of a call is the output of the call before.
  [[nodiscard]] bool swaps(int index) const {
    return options_.mode == BenchMode::dependent && index % 2 == 1;
  }
  /// The result of the last call of a sample.
  [[nodiscard]] std::byte* last_out(const ImplementationRun& run) const {
    return swaps(calls_ - 1) ? in(run, 0) : out(run, 0);
  }

  void upload() {
    progress("filling");
    // Without verification, one stretch of data is repeated: generating all of it takes seconds.
    const std::size_t made =
        options_.check ? shape_.in_count : std::min(shape_.in_count, kStretch / size_of(options_.type));
    fill_input(data_, rank_.value, context_.host.get(), made, context_.host_threads);
    std::size_t filled = made * size_of(options_.type);
    check(cudaMemcpy(context_.pristine.get(), context_.host.get(), filled, cudaMemcpyHostToDevice),
          "cudaMemcpy");
    while (filled < shape_.in_bytes) {
      const std::size_t more = std::min(filled, shape_.in_bytes - filled);
      check(cudaMemcpy(context_.pristine.get() + filled, context_.pristine.get(), more,
                       cudaMemcpyDeviceToDevice),
            "cudaMemcpy");
      filled += more;
    }
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    if (options_.check) return;  // check_first() fills the slots
    for (const ImplementationRun& run : runs_) refill(run);
  }

  void refill(const ImplementationRun& run) {
    for (int number = 0; number < slots_; ++number) {
      check(cudaMemcpyAsync(in(run, number), context_.pristine.get(), shape_.in_bytes,
                            cudaMemcpyDeviceToDevice, context_.stream.get()),
            "cudaMemcpyAsync");
    }
  }
  /// Restores the inputs and fills the rest with poison.
  void reset(const ImplementationRun& run) {
    check(cudaMemsetAsync(slot(run, 0), kPoison, static_cast<std::size_t>(slots_) * shape_.slot_bytes,
                          context_.stream.get()),
          "cudaMemsetAsync");
    refill(run);
  }

  // --- calls ---

  void call(ImplementationRun& run, int index) {
    const int number = index % slots_;
    BenchCall call{{.collective = options_.collective->collective,
                    .in = in(run, number),
                    .out = out(run, number),
                    .count = shape_.count,
                    .type = options_.type,
                    .op = options_.op,
                    .root = options_.root},
                   options_.parts};
    if (swaps(index)) {
      call.in = out(run, number);
      call.out = in(run, number);
    }
    run.algorithm = run.implementation->call(call, context_.stream.get());
  }
  void call_from(ImplementationRun& run, int first) {
    for (int i = first; i < calls_; ++i) call(run, i);
  }
  void call_all(ImplementationRun& run) { call_from(run, 0); }

  void prepare(ImplementationRun& run) {
    if (options_.check) check_first(run);
    if (options_.mode == BenchMode::eager) return;
    guarded(run, [&] {
      if (options_.mode == BenchMode::isolated) {
        run.isolated.emplace(context_, warmup_ + samples_ + 1);  // and the verified one
        run.graph = run.isolated->capture([&] { call(run, 0); }, [&] { call_from(run, 1); });
      } else {
        run.graph = GpuGraph(context_.stream.get(), [&] { call_all(run); });
      }
    });
    if (!options_.check) return;
    guarded(run, [&] {
      reset(run);
      run.graph.launch(context_.stream.get());
      context_.synchronize();
    });
    check_bits(run, "replayed");
  }

  // --- results ---

  void agree(const ImplementationRun& run, std::uint64_t hash, const std::string& complaint) {
    const bool same = options_.collective->same_everywhere();
    agree_on_result(
        context_.group,
        fmt::format("{}, {}", name_of_call(options_, shape_, run.algorithm), to_string(options_.mode)),
        same ? std::optional(hash) : std::nullopt, complaint);
  }

  /// Copies the result to host memory, if this rank has an output.
  const std::byte* download(const std::byte* result) {
    return context_.download(result, has_output(options_, rank_) ? shape_.out_bytes : 0);
  }
  /// The hash of the last download.
  [[nodiscard]] std::uint64_t hash_of_download() const {
    return hash_bytes(context_.host.get(), has_output(options_, rank_) ? shape_.out_bytes : 0);
  }

  /// Compares the result of a single call with the reference; the results of onehop must also have the same
  /// bits on all ranks.
  void check_first(ImplementationRun& run) {
    progress("checking");
    std::string complaint;
    guarded(run, [&] {
      reset(run);
      call(run, 0);
      context_.synchronize();
      complaint = complaint_about(run, out(run, 0));
      if (!run.implementation->ours() && !complaint.empty())
        fail(ErrorCode::mismatch, "wrong: {}", complaint);
      run.expected = hash_of_download();
    });
    if (run.implementation->ours()) agree(run, run.expected, complaint);
    run.checked = !run.dropped;
    if (!feeds_back_) return;
    // The result of a graph of dependent calls must equal that of the same calls queued one by one.
    guarded(run, [&] {
      refill(run);
      call_all(run);
      context_.synchronize();
      download(last_out(run));
      run.expected = hash_of_download();
    });
  }

  /// Downloads a result and compares it with the reference.
  std::string complaint_about(const ImplementationRun& run, const std::byte* result) {
    CheckData data = data_;
    // A ring rounds at every hop, and once more where an average is scaled first.
    if (!run.implementation->ours()) data.roundings = data.ranks + 1;
    return cli::complaint_about(options_, shape_, data, rank_, download(result), context_.host_threads);
  }

  /// Checks that the graph computes the verified result: the same bits. A peer may add in another order in a
  /// graph, so its values are compared with the reference again.
  void check_bits(ImplementationRun& run, const char* when) {
    progress("checking");
    if (!run.implementation->ours()) {
      if (feeds_back_) return;
      guarded(run, [&] {
        const std::string complaint = complaint_about(run, last_out(run));
        if (!complaint.empty()) fail(ErrorCode::mismatch, "{}, wrong: {}", when, complaint);
      });
      run.checked = run.checked && !run.dropped;
      return;
    }
    std::string complaint;
    std::uint64_t hash = 0;
    for (int number = 0; number < slots_; ++number) {
      download(feeds_back_ ? last_out(run) : out(run, number));
      hash = hash_of_download();
      if (hash == run.expected) continue;
      complaint = fmt::format("{}, buffer {} of {} holds other bits than the calls that were verified", when,
                              number, slots_);
      break;
    }
    agree(run, hash, complaint);
  }

  // --- time ---

  void sample(ImplementationRun& run, bool counts) {
    auto* const stream = context_.stream.get();
    if (feeds_back_) refill(run);
    if (options_.cold) {
      check(cudaMemsetAsync(context_.flush.get(), 0, 2 * context_.cache_bytes, stream), "cudaMemsetAsync");
    }
    if (options_.mode == BenchMode::isolated) {
      run.graph.launch(stream);
      context_.synchronize();
      return;
    }
    double host_ns = 0;
    if (options_.mode == BenchMode::eager) {
      // No delay before the calls: the time to queue them is part of the measurement.
      check(launch_start_together(context_.view, 0, stream), "launching the start");
      begin_.record(stream);
      const auto start = Clock::now();
      call_all(run);
      host_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls_;
    } else {
      check(launch_start_together(context_.view, head_start_ns(calls_), stream), "launching the start");
      begin_.record(stream);
      run.graph.launch(stream);
    }
    end_.record(stream);
    context_.synchronize();
    if (!counts) return;
    run.samples.push_back(end_.us_since(begin_) / calls_);
    run.host_ns.push_back(host_ns);
  }

  /// Notes, once per run, the time of the stamps and of the steps between kernels alone.
  void measure_floor() {
    if (context_.floor_measured) return;
    context_.floor_measured = true;
    IsolatedCalls calls(context_, samples_);
    const GpuGraph graph = calls.capture([] {}, [] {});
    for (int i = 0; i < samples_; ++i) {
      graph.launch(context_.stream.get());
      context_.synchronize();
    }
    std::vector<double> us;
    std::vector<double> errors;
    for (const IsolatedTime& time : calls.times(0)) {
      us.push_back(time.us);
      errors.push_back(time.clock_error_us);
    }
    context_.note(
        fmt::format("without any call an isolated sample takes {:.2f} us; clocks of the GPUs are "
                    "compared to within {:.2f} us",
                    summarize(us).median, summarize(errors).median));
  }

  /// The time of the slowest ranks. Collective.
  [[nodiscard]] BenchTime time_of(const ImplementationRun& run) {
    if (!run.isolated) return bench_time(slowest_rank(gather(context_.group, run.samples)));
    std::vector<double> us;
    for (const IsolatedTime& time : run.isolated->times(warmup_ + (options_.check ? 1 : 0))) {
      us.push_back(time.us);
    }
    return bench_time(us);
  }

  BenchRow row() {
    BenchRow row;
    row.bytes = shape_.bytes;
    row.count = shape_.count;
    row.samples = samples_;
    row.batch = options_.mode == BenchMode::isolated ? 1 : calls_;
    for (const ImplementationRun& run : runs_) {
      const BenchTime time = run.dropped ? BenchTime{} : time_of(run);
      if (!run.implementation->ours()) {
        row.peers.push_back({run.implementation->name(), time, run.checked});
        continue;
      }
      row.time = time;
      row.algorithm = run.algorithm;
      row.checked = run.checked;
      row.algbw = algorithm_bandwidth(shape_.bytes, time.median_us);
      row.busbw = row.algbw * options_.collective->bus_factor.of(context_.group.size());
      if (options_.mode == BenchMode::eager) {
        row.host_ns = summarize(slowest_rank(gather(context_.group, run.host_ns))).median;
      }
    }
    return row;
  }

  GpuContext& context_;
  const BenchOptions& options_;
  const Rank rank_;
  const Shape shape_;
  const int calls_;
  const int samples_;
  const int warmup_;
  const int slots_;
  const bool feeds_back_;
  const CheckData data_;
  std::vector<ImplementationRun> runs_;
  const int exceptions_ = std::uncaught_exceptions();
  GpuEvent begin_;
  GpuEvent end_;
};

}  // namespace

BenchRow measure_on_gpus(GpuContext& context, std::uint64_t bytes) {
  const int calls = choose_calls(context.options, bytes);
  BenchOptions unlimited = context.options;
  unlimited.in_place = false;
  unlimited.mode = BenchMode::chain;
  if (context.options.collective->reduces && feeds_back(context.options) &&
      calls < choose_calls(unlimited, bytes)) {
    context.note(fmt::format(
        "samples have {} calls at most, so that {} {} stays finite; --op avg has no such limit",
        finite_calls(context.options), to_string(context.options.type), to_string(context.options.op)));
  }
  GpuMeasurement measurement(context, bytes);
  try {
    return measurement.measure();
  } catch (const Error& error) {
    context.listener.failing(error);  // before the measurement frees memory that the GPU may still use
    throw;
  }
}

}  // namespace onehop::cli
