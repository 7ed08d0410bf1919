// SPDX-License-Identifier: Apache-2.0
// One size on GPUs: verified, captured, verified again as captured, and timed in turns.
#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "base/check.h"
#include "base/units.h"
#include "bench/cuda_clock.h"
#include "bench/cuda_isolated.h"
#include "bench/cuda_rig.h"
#include "bench/exchange.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "bench/statistics.h"
#include "bench/verify.h"

namespace onehop::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStretch = 16 << 20;

/// A contender and what is known of it at this size.
struct Lane {
  Contender* contender = nullptr;
  GpuGraph graph;
  std::optional<IsolatedCalls> isolated;
  std::vector<double> samples;
  std::vector<double> host_ns;
  Algorithm algorithm = Algorithm::none;
  std::uint64_t expected = 0;  ///< hash of the verified result
  bool checked = false;
  bool dropped = false;
};

class Measurement {
 public:
  Measurement(Rig& rig, std::uint64_t bytes)
      : rig_(rig),
        options_(rig.options),
        rank_(rig.group.rank()),
        shape_(shape_of(options_, rank_, bytes)),
        calls_(choose_calls(options_, bytes)),
        samples_(choose_samples(options_, bytes)),
        warmup_(options_.warmup == 0 ? 0 : std::max(2, (options_.warmup + calls_ - 1) / calls_)),
        slots_(choose_slots(options_, bytes, rig.cache_bytes)),
        feeds_back_(feeds_back(options_)),
        data_(check_data_of(options_, shape_)) {
    for (const auto& contender : rig.contenders.all()) lanes_.emplace_back().contender = contender.get();
  }

  ~Measurement() {
    if (std::uncaught_exceptions() > exceptions_) rig_.contenders.abort();
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  BenchRow run() {
    upload();
    for (Lane& lane : lanes_) prepare(lane);
    progress("timing");
    // In turns, so that whatever disturbs the machine disturbs all.
    for (int i = 0; i < warmup_ + samples_; ++i) {
      for (Lane& lane : lanes_) {
        guarded(lane, [&] { sample(lane, i >= warmup_); });
      }
    }
    if (options_.mode == BenchMode::isolated) measure_floor();
    for (Lane& lane : lanes_) {
      if (options_.check) check_bits(lane, "after timing");
    }
    return row();
  }

 private:
  void progress(const char* what) {
    rig_.listener.progress(fmt::format("{}: {}", format_size(shape_.bytes), what));
  }

  /// Of a step that the others take too: ours fails for all; a peer that fails is out of the race on all
  /// ranks. A peer's step must not meet the other ranks on the host.
  template <class Step>
  void guarded(Lane& lane, const Step& step) {
    if (lane.contender->ours()) return step();
    if (lane.dropped) return;
    std::string complaint;
    try {
      step();
    } catch (const Error& error) {
      complaint = error.message();
    }
    const std::string first = first_complaint(rig_.group, complaint);
    if (first.empty()) return;
    lane.dropped = true;
    rig_.note(fmt::format("{} at {} bytes: {}", lane.contender->name(), shape_.bytes, first));
  }

  // --- buffers ---

  [[nodiscard]] std::byte* slot(const Lane& lane, int number) const {
    return lane.contender->memory() + static_cast<std::size_t>(number) * shape_.slot_bytes;
  }
  [[nodiscard]] std::byte* in(const Lane& lane, int number) const { return slot(lane, number) + shape_.in; }
  [[nodiscard]] std::byte* out(const Lane& lane, int number) const { return slot(lane, number) + shape_.out; }
  /// Whether a call takes the input from where the last one left its output.
  [[nodiscard]] bool swaps(int index) const {
    return options_.mode == BenchMode::dependent && index % 2 == 1;
  }
  /// Where the last call of a sample leaves its result.
  [[nodiscard]] std::byte* last_out(const Lane& lane) const {
    return swaps(calls_ - 1) ? in(lane, 0) : out(lane, 0);
  }

  void upload() {
    progress("filling");
    // What nobody verifies is the same stretch over and over: making all of it takes the processor seconds.
    const std::size_t made =
        options_.check ? shape_.in_count : std::min(shape_.in_count, kStretch / size_of(options_.type));
    fill_input(data_, rank_.value, rig_.host.get(), made, rig_.host_threads);
    std::size_t filled = made * size_of(options_.type);
    check(cudaMemcpy(rig_.pristine.get(), rig_.host.get(), filled, cudaMemcpyHostToDevice), "cudaMemcpy");
    while (filled < shape_.in_bytes) {
      const std::size_t more = std::min(filled, shape_.in_bytes - filled);
      check(cudaMemcpy(rig_.pristine.get() + filled, rig_.pristine.get(), more, cudaMemcpyDeviceToDevice),
            "cudaMemcpy");
      filled += more;
    }
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    if (options_.check) return;  // checking begins with filling
    for (const Lane& lane : lanes_) refill(lane);
  }

  void refill(const Lane& lane) {
    for (int number = 0; number < slots_; ++number) {
      check(cudaMemcpyAsync(in(lane, number), rig_.pristine.get(), shape_.in_bytes, cudaMemcpyDeviceToDevice,
                            rig_.stream.get()),
            "cudaMemcpyAsync");
    }
  }
  /// Inputs as they were, and poison wherever a result is to come.
  void reset(const Lane& lane) {
    check(cudaMemsetAsync(slot(lane, 0), kPoison, static_cast<std::size_t>(slots_) * shape_.slot_bytes,
                          rig_.stream.get()),
          "cudaMemsetAsync");
    refill(lane);
  }

  // --- calls ---

  void call(Lane& lane, int index) {
    const int number = index % slots_;
    CollectiveCall call{.in = in(lane, number),
                        .out = out(lane, number),
                        .count = shape_.count,
                        .type = options_.type,
                        .op = options_.op,
                        .root = options_.root,
                        .parts = options_.parts};
    if (swaps(index)) {
      call.in = out(lane, number);
      call.out = in(lane, number);
    }
    lane.algorithm = lane.contender->call(call, rig_.stream.get());
  }
  void call_all(Lane& lane) {
    for (int i = 0; i < calls_; ++i) call(lane, i);
  }

  void prepare(Lane& lane) {
    if (options_.check) check_first(lane);
    if (options_.mode == BenchMode::eager) return;
    guarded(lane, [&] {
      if (options_.mode == BenchMode::isolated) {
        lane.isolated.emplace(rig_, warmup_ + samples_ + 1);  // and the one that is verified
        lane.graph = lane.isolated->capture([&] { call_all(lane); });
      } else {
        lane.graph = GpuGraph(rig_.stream.get(), [&] { call_all(lane); });
      }
    });
    if (!options_.check) return;
    guarded(lane, [&] {
      reset(lane);
      lane.graph.launch(rig_.stream.get());
      rig_.synchronize();
    });
    check_bits(lane, "replayed");
  }

  // --- results ---

  void agree(const Lane& lane, std::uint64_t hash, const std::string& complaint) {
    const bool same = options_.collective->same_everywhere();
    agree_on_result(
        rig_.group,
        fmt::format("{}, {}", name_of_call(options_, shape_, lane.algorithm), to_string(options_.mode)),
        same ? std::optional(hash) : std::nullopt, complaint);
  }

  /// Copied to host memory, if this rank gets any.
  const std::byte* download(const std::byte* result) {
    return rig_.download(result, has_output(options_, rank_) ? shape_.out_bytes : 0);
  }
  /// Of what was downloaded last.
  [[nodiscard]] std::uint64_t hash_of_download() const {
    return hash_bytes(rig_.host.get(), has_output(options_, rank_) ? shape_.out_bytes : 0);
  }

  /// Compares a single call's result with the reference; for ours all ranks then hold the same bits.
  void check_first(Lane& lane) {
    progress("checking");
    std::string complaint;
    guarded(lane, [&] {
      reset(lane);
      call(lane, 0);
      rig_.synchronize();
      complaint = complaint_about(lane, out(lane, 0));
      if (!lane.contender->ours() && !complaint.empty()) fail(ErrorCode::mismatch, "wrong: {}", complaint);
      lane.expected = hash_of_download();
    });
    if (lane.contender->ours()) agree(lane, lane.expected, complaint);
    lane.checked = !lane.dropped;
    if (!feeds_back_) return;
    // What a chain leaves is compared with the same chain queued call by call.
    guarded(lane, [&] {
      refill(lane);
      call_all(lane);
      rig_.synchronize();
      download(last_out(lane));
      lane.expected = hash_of_download();
    });
  }

  /// Downloads a result and compares it with the reference.
  std::string complaint_about(const Lane& lane, const std::byte* result) {
    CheckData data = data_;
    // Rings round at every hop, and once more where an average is scaled first.
    if (!lane.contender->ours()) data.roundings = data.ranks + 1;
    return cli::complaint_about(options_, shape_, data, rank_, download(result), rig_.host_threads);
  }

  /// That what was captured computes what was verified: the same bits; of a peer, which may add up in another
  /// order in a graph, values within its bounds.
  void check_bits(Lane& lane, const char* when) {
    progress("checking");
    if (!lane.contender->ours()) {
      if (feeds_back_) return;
      guarded(lane, [&] {
        const std::string complaint = complaint_about(lane, last_out(lane));
        if (!complaint.empty()) fail(ErrorCode::mismatch, "{}, wrong: {}", when, complaint);
      });
      lane.checked = lane.checked && !lane.dropped;
      return;
    }
    std::string complaint;
    std::uint64_t hash = 0;
    for (int number = 0; number < slots_; ++number) {
      download(feeds_back_ ? last_out(lane) : out(lane, number));
      hash = hash_of_download();
      if (hash == lane.expected) continue;
      complaint = fmt::format("{}, buffer {} of {} holds other bits than the calls that were verified", when,
                              number, slots_);
      break;
    }
    agree(lane, hash, complaint);
  }

  // --- time ---

  void sample(Lane& lane, bool counts) {
    auto* const stream = rig_.stream.get();
    if (feeds_back_) refill(lane);
    if (options_.cold) {
      check(cudaMemsetAsync(rig_.flush.get(), 0, 2 * rig_.cache_bytes, stream), "cudaMemsetAsync");
    }
    if (options_.mode == BenchMode::isolated) {
      lane.graph.launch(stream);
      rig_.synchronize();
      return;
    }
    double host_ns = 0;
    if (options_.mode == BenchMode::eager) {
      // The calls must not be held back: how fast they can be queued is part of what is measured.
      check(launch_start_together(rig_.view, 0, stream), "launching the start");
      begin_.record(stream);
      const auto start = Clock::now();
      call_all(lane);
      host_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls_;
    } else {
      check(launch_start_together(rig_.view, head_start_ns(calls_), stream), "launching the start");
      begin_.record(stream);
      lane.graph.launch(stream);
    }
    end_.record(stream);
    rig_.synchronize();
    if (!counts) return;
    lane.samples.push_back(end_.us_since(begin_) / calls_);
    lane.host_ns.push_back(host_ns);
  }

  /// What the stamps and the steps between kernels take by themselves, said once per run.
  void measure_floor() {
    if (rig_.floor_measured) return;
    rig_.floor_measured = true;
    IsolatedCalls calls(rig_, samples_);
    const GpuGraph graph = calls.capture([] {});
    for (int i = 0; i < samples_; ++i) {
      graph.launch(rig_.stream.get());
      rig_.synchronize();
    }
    std::vector<double> us;
    std::vector<double> errors;
    for (const IsolatedTime& time : calls.times(0)) {
      us.push_back(time.us);
      errors.push_back(time.clock_error_us);
    }
    rig_.note(
        fmt::format("without any call an isolated sample takes {:.2f} us; clocks of the GPUs are "
                    "compared to within {:.2f} us",
                    summarize(us).median, summarize(errors).median));
  }

  /// Of all ranks; collective.
  [[nodiscard]] BenchTime time_of(const Lane& lane) {
    if (!lane.isolated) return bench_time(slowest_rank(gather(rig_.group, lane.samples)));
    std::vector<double> us;
    for (const IsolatedTime& time : lane.isolated->times(warmup_ + (options_.check ? 1 : 0))) {
      us.push_back(time.us);
    }
    return bench_time(us);
  }

  BenchRow row() {
    BenchRow row;
    row.bytes = shape_.bytes;
    row.count = shape_.count;
    row.samples = samples_;
    row.batch = calls_;
    for (const Lane& lane : lanes_) {
      const BenchTime time = lane.dropped ? BenchTime{} : time_of(lane);
      if (!lane.contender->ours()) {
        row.peers.push_back({lane.contender->name(), time, lane.checked});
        continue;
      }
      row.time = time;
      row.algorithm = lane.algorithm;
      row.checked = lane.checked;
      row.algbw = algorithm_bandwidth(shape_.bytes, time.median_us);
      row.busbw = row.algbw * options_.collective->bus_factor.of(rig_.group.size());
      if (options_.mode == BenchMode::eager) {
        row.host_ns = summarize(slowest_rank(gather(rig_.group, lane.host_ns))).median;
      }
    }
    return row;
  }

  Rig& rig_;
  const BenchOptions& options_;
  const Rank rank_;
  const Shape shape_;
  const int calls_;
  const int samples_;
  const int warmup_;
  const int slots_;
  const bool feeds_back_;
  const CheckData data_;
  std::vector<Lane> lanes_;
  const int exceptions_ = std::uncaught_exceptions();
  GpuEvent begin_;
  GpuEvent end_;
};

}  // namespace

BenchRow measure_on_gpus(Rig& rig, std::uint64_t bytes) {
  const int calls = choose_calls(rig.options, bytes);
  BenchOptions unlimited = rig.options;
  unlimited.in_place = false;
  unlimited.mode = BenchMode::chain;
  if (rig.options.collective->reduces && feeds_back(rig.options) && calls < choose_calls(unlimited, bytes)) {
    rig.note(
        fmt::format("samples have {} calls at most, so that {} {} stays finite; --op avg has no such limit",
                    finite_calls(rig.options), to_string(rig.options.type), to_string(rig.options.op)));
  }
  Measurement measurement(rig, bytes);
  try {
    return measurement.run();
  } catch (const Error& error) {
    rig.listener.failing(error);  // before the measurement gives back what the GPU may still be using
    throw;
  }
}

}  // namespace onehop::cli
