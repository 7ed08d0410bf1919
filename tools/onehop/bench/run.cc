// SPDX-License-Identifier: Apache-2.0
#include "bench/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "onehop/buffer.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/other_programs.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "bench/statistics.h"
#include "bench/verify.h"

namespace onehop::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortestSampleUs = 50;  // a shorter sample would measure the clock and the barrier
constexpr double kBudgetUs = 200000;      // of all samples of one size, in all rounds
constexpr int kMaxBatch = 1024;
constexpr int kMinSamples = 5;
constexpr int kMaxSamples = 2000;

/// A zeroed slot of the largest size, of the kind that the options name. Zeroing maps every page before timing.
class Memory {
 public:
  Memory(Group& group, const BenchOptions& options) {
    // More than any machine has; sums of larger byte counts could overflow.
    constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 60;
    const std::uint64_t largest = largest_size(options);
    const std::size_t bytes = largest < kTooMuch ? largest_slot(options) : 0;
    if (bytes != 0 && options.buffers == Buffers::symmetric) {
      shared_ = group.allocate(bytes);
      data_ = shared_.local();
    } else if (bytes != 0) {
      own_.reset(new (std::nothrow) std::byte[bytes]());
      data_ = own_.get();
    }
    if (data_ == nullptr) {
      fail(ErrorCode::out_of_resources,
           "out of memory for input and output of {} bytes; use smaller sizes or fewer ranks", largest);
    }
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  SymmetricBuffer shared_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* data_ = nullptr;
};

class Measurement {
 public:
  Measurement(Group& group, const BenchOptions& options, std::byte* memory, std::uint64_t bytes)
      : group_(group),
        options_(options),
        shape_(shape_of(options, group.rank(), bytes)),
        memory_(memory),
        call_{{.collective = options.collective->collective,
               .in = memory + shape_.in,
               .out = memory + shape_.out,
               .count = shape_.count,
               .type = options.type,
               .op = options.op,
               .root = options.root,
               .options = {.algorithm = options.algorithm, .factor = options.factor}}} {
    row_.count = shape_.count;
    row_.bytes = shape_.bytes;
  }

  /// Everything before the first round.
  void prepare(const BenchListener& listener) {
    if (options_.check) {
      listener.progress(format_size(row_.bytes) + ": checking");
      verify();
    }
    warm_up();
    choose_batch();
  }

  /// One round. The memory may have been used for other sizes since the last one.
  void time_round(int round, const BenchListener& listener) {
    listener.progress(fmt::format("{}: round {} of {}", format_size(row_.bytes), round, options_.repeat));
    warm_up();
    std::vector<double> samples(static_cast<std::size_t>(row_.samples));
    for (double& sample : samples) sample = time_batch() / row_.batch;
    rounds_.push_back(bench_time(slowest_rank(gather(group_, samples))));
  }

  /// The figures of all rounds.
  [[nodiscard]] BenchRow row() {
    row_.rounds.clear();
    std::sort(rounds_.begin(), rounds_.end(),
              [](const BenchTime& a, const BenchTime& b) { return a.median_us < b.median_us; });
    row_.time = rounds_[(rounds_.size() - 1) / 2];
    if (rounds_.size() > 1) {
      for (const BenchTime& round : rounds_) row_.rounds.push_back(round.median_us);
    }
    row_.algbw = algorithm_bandwidth(row_.bytes, row_.time.median_us);
    row_.busbw = row_.algbw * options_.collective->bus_factor.of(group_.size());
    return row_;
  }

 private:
  void warm_up() {
    // Repeated reduction in place would reach infinities, or denormals that slow the processor down. Zero stays
    // zero under every op.
    if (feeds_back(options_)) std::memset(memory_, 0, shape_.slot_bytes);
    for (int i = 0; i < std::max(options_.warmup, 1); ++i) call();
  }

  void call() { row_.algorithm = call_onehop(group_, call_); }

  void verify() {
    const CheckData data = check_data_of(options_, shape_);
    std::memset(memory_, kPoison, shape_.slot_bytes);
    fill_input(data, group_.rank().value, memory_ + shape_.in, shape_.in_count);
    call();
    std::optional<std::uint64_t> hash;
    if (options_.collective->same_everywhere()) hash = hash_bytes(call_.out_at(0), shape_.out_bytes);
    agree_on_result(group_, name_of_call(options_, shape_, row_.algorithm), hash,
                    complaint_about(options_, shape_, data, group_.rank(), call_.out_at(0)));
    row_.checked = true;
  }

  /// Microseconds of this rank for `batch` calls that all ranks began together.
  double time_batch() {
    group_.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < row_.batch; ++i) call();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  /// All ranks decide from the same gathered figures.
  void choose_batch() {
    // The shortest of a few trials: an interruption by the scheduler would make a batch look long enough.
    constexpr std::size_t kTrials = 5;
    row_.batch = 1;
    double sample_us = 0;
    while (true) {
      std::vector<double> trials(kTrials);
      for (double& trial : trials) trial = time_batch();
      sample_us = summarize(slowest_rank(gather(group_, trials))).min;
      if (sample_us >= kShortestSampleUs || row_.batch == kMaxBatch) break;
      const double wanted = 1.2 * row_.batch * kShortestSampleUs / std::max(sample_us, 0.01);
      row_.batch =
          static_cast<int>(std::min<double>(std::max(std::ceil(wanted), 2.0 * row_.batch), kMaxBatch));
    }
    const double budget_us = kBudgetUs / options_.repeat;
    row_.samples = options_.iterations.value_or(
        static_cast<int>(std::clamp<double>(budget_us / std::max(sample_us, 1.0), kMinSamples, kMaxSamples)));
  }

  Group& group_;
  const BenchOptions& options_;
  const Shape shape_;
  std::byte* const memory_;
  const BenchCall call_;
  BenchRow row_;
  std::vector<BenchTime> rounds_;
};

}  // namespace

void run_collective_bench(Group& group, const BenchOptions& options, const BenchListener& listener) {
  if (options.cuda) return run_gpu_bench(group, options, listener);
  const Memory memory(group, options);
  group.barrier();  // all ranks have their memory
  const OtherPrograms others;
  const double used_before = thread_seconds();
  // Rounds over all sizes, since all samples of one moment may be disturbed. The last one completes rows.
  std::vector<Measurement> sizes;
  sizes.reserve(options.sizes.size());
  for (const std::uint64_t bytes : options.sizes) sizes.emplace_back(group, options, memory.data(), bytes);
  for (int round = 1; round <= options.repeat; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (round == 1) sizes[i].prepare(listener);
      sizes[i].time_round(round, listener);
      listener.row(sizes[i].row(), i, round == options.repeat);
    }
  }
  const double used = seconds_of_all(group, used_before);
  if (const std::string busy = describe_others(others.processors(used)); !busy.empty()) listener.note(busy);
}

}  // namespace onehop::cli
