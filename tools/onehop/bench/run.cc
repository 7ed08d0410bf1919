#include "bench/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "onehop/collectives.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/check_data.h"
#include "bench/exchange.h"
#include "bench/gpu.h"
#include "bench/statistics.h"

namespace onehop::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleUs = 50;      // shorter than this a sample would measure the clock and the alignment
constexpr double kBudgetUs = 200000;  // of all samples of one size
constexpr int kMaxBatch = 1024;
constexpr int kMinSamples = 5;
constexpr int kMaxSamples = 2000;
constexpr int kPoison = 0xA5;

/// Zeroed, so that every page is there before anything is timed.
std::unique_ptr<std::byte[]> allocate(std::size_t bytes) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]());
  if (!memory) {
    fail(ErrorCode::out_of_resources,
         "out of memory for a buffer of {} bytes; use smaller sizes or fewer ranks", bytes);
  }
  return memory;
}

/// Input and output of the largest size, as the options want them.
class Buffers {
 public:
  Buffers(Group& group, const BenchOptions& options, std::size_t bytes) {
    if (options.symmetric) {
      const std::size_t part = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
      shared_ = group.allocate(options.in_place ? part : 2 * part);
      in_ = shared_.local();
      out_ = options.in_place ? in_ : in_ + part;
      return;
    }
    in_owner_ = allocate(bytes);
    if (!options.in_place) out_owner_ = allocate(bytes);
    in_ = in_owner_.get();
    out_ = options.in_place ? in_ : out_owner_.get();
  }
  [[nodiscard]] std::byte* in() const { return in_; }
  [[nodiscard]] std::byte* out() const { return out_; }

 private:
  SymmetricBuffer shared_;
  std::unique_ptr<std::byte[]> in_owner_;
  std::unique_ptr<std::byte[]> out_owner_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

class Measurement {
 public:
  Measurement(Group& group, const BenchOptions& options, const Buffers& buffers, std::uint64_t bytes)
      : group_(group), options_(options), buffers_(buffers) {
    row_.count = bytes / size_of(options.type);
    row_.bytes = row_.count * size_of(options.type);
    call_.algorithm = options.algorithm;
  }

  BenchRow run(const BenchListener& listener) {
    const std::string size = format_size(row_.bytes);
    if (options_.check) {
      listener.progress(size + ": checking");
      verify();
    }
    // Reducing in place again and again would run into infinities, or denormals that slow the processor down;
    // zero stays zero under every op.
    if (options_.in_place) std::memset(buffers_.in(), 0, row_.bytes);
    for (int i = 0; i < options_.warmup; ++i) reduce();
    listener.progress(size + ": timing");
    choose_batch();
    std::vector<double> samples(static_cast<std::size_t>(row_.samples));
    for (double& sample : samples) sample = time_batch() / row_.batch;
    row_.time = bench_time(slowest_rank(gather(group_, samples)));
    row_.algbw = algorithm_bandwidth(row_.bytes, row_.time.median_us);
    row_.busbw = row_.algbw * all_reduce_bus_factor(group_.size());
    return row_;
  }

 private:
  void reduce() {
    row_.algorithm =
        all_reduce(group_, buffers_.in(), buffers_.out(), row_.count, options_.type, options_.op, {}, call_);
  }

  void verify() {
    const CheckData data{options_.type, options_.op, group_.size(), 0x6f6e65686f70 + row_.bytes};
    if (!options_.in_place) std::memset(buffers_.out(), kPoison, row_.bytes);
    fill_input(data, group_.rank().value, buffers_.in(), row_.count);
    reduce();
    const auto wrong = find_wrong(data, buffers_.out(), row_.count);
    std::string complaint;
    if (wrong) {
      complaint = fmt::format("element {} of {} is {}, expected {}", wrong->index, row_.count, wrong->got,
                              wrong->expected);
    }
    const std::string call =
        fmt::format("{} of {} bytes ({} {}, {})", options_.collective, row_.bytes, to_string(options_.type),
                    to_string(options_.op), to_string(row_.algorithm));
    agree_on_result(group_, call, hash_bytes(buffers_.out(), row_.bytes), complaint);
    row_.checked = true;
  }

  /// Microseconds this rank took for `batch` calls that all ranks began together.
  double time_batch() {
    group_.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < row_.batch; ++i) reduce();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  /// All ranks decide from the same gathered figures, hence alike.
  void choose_batch() {
    // The shortest of a few trials: one that the scheduler interrupted would make a batch look long enough.
    constexpr std::size_t kTrials = 5;
    row_.batch = 1;
    double sample_us = 0;
    while (true) {
      std::vector<double> trials(kTrials);
      for (double& trial : trials) trial = time_batch();
      sample_us = summarize(slowest_rank(gather(group_, trials))).min;
      if (sample_us >= kSampleUs || row_.batch == kMaxBatch) break;
      const double wanted = 1.2 * row_.batch * kSampleUs / std::max(sample_us, 0.01);
      row_.batch =
          static_cast<int>(std::min<double>(std::max(std::ceil(wanted), 2.0 * row_.batch), kMaxBatch));
    }
    row_.samples = options_.iterations.value_or(
        static_cast<int>(std::clamp<double>(kBudgetUs / std::max(sample_us, 1.0), kMinSamples, kMaxSamples)));
  }

  Group& group_;
  const BenchOptions& options_;
  const Buffers& buffers_;
  CallOptions call_;
  BenchRow row_;
};

}  // namespace

void run_all_reduce_bench(Group& group, const BenchOptions& options, const BenchListener& listener) {
  if (options.cuda) return run_gpu_all_reduce_bench(group, options, listener);
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const Buffers buffers(group, options, largest);
  for (const std::uint64_t bytes : options.sizes) {
    listener.row(Measurement(group, options, buffers, bytes).run(listener));
  }
}

}  // namespace onehop::cli
