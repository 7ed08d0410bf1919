// SPDX-License-Identifier: Apache-2.0
#include "bench/plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/element.h"
#include "bench/shape.h"

namespace onehop::cli {
namespace {

// Enough calls that the start and the end of a sample add little to each.
constexpr int kMostCalls = 100;
constexpr int kFewestCalls = 4;
constexpr int kEagerCalls = 50;
constexpr int kIsolatedCalls = 2;  // The first one is timed (IsolatedCalls).
constexpr double kSampleUs = 80000;
// An estimate of the time of a call; only the number of calls depends on it.
constexpr double kLatencyUs = 3;
constexpr double kBytesPerUs = 250e3;

double guess_us(const BenchOptions& options, std::uint64_t bytes) {
  return kLatencyUs +
         static_cast<double>(bytes) * options.collective->bus_factor.of(options.ranks) / kBytesPerUs;
}

/// log2 of the range of a type above 2, the largest input; nullopt for types that wrap.
std::optional<int> headroom(DType type) {
  const std::optional<FloatFormat> format = float_format(type);
  if (!format) return std::nullopt;
  const int largest_exponent = format->has_infinity ? format->bias() : format->bias() + 1;
  return largest_exponent - 1;
}

}  // namespace

std::string_view op_name(const BenchOptions& options) {
  return options.collective->reduces ? to_string(options.op) : "none";
}

std::string type_and_op(const BenchOptions& options) {
  std::string text{to_string(options.type)};
  if (options.collective->reduces) text.append(" ").append(to_string(options.op));
  if (options.op == ReduceOp::premul_sum) text += fmt::format(" by {}", options.factor);
  return text;
}

bool feeds_back(const BenchOptions& options) {
  // Data that is moved in place does not change.
  return options.mode == BenchMode::dependent || (options.in_place && options.collective->reduces);
}

int finite_calls(const BenchOptions& options) {
  const std::optional<int> room = headroom(options.type);
  if (!room) return kMostCalls;
  // After the first call all ranks hold the same value, which every further call multiplies.
  double growth = options.ranks;
  switch (options.op) {
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::avg:
      return kMostCalls;
    case ReduceOp::prod:
      return 1;
    case ReduceOp::sum:
      break;
    case ReduceOp::premul_sum:
      // The sum must also stay within f32, whose range suffices.
      growth *= std::fabs(options.factor);
      break;
  }
  if (growth <= 1) return kMostCalls;
  return static_cast<int>(std::min<double>(*room / std::log2(growth), kMostCalls));
}

int choose_calls(const BenchOptions& options, std::uint64_t bytes) {
  const int most = options.mode == BenchMode::eager ? kEagerCalls : kMostCalls;
  const double wanted = std::clamp<double>(kSampleUs / guess_us(options, bytes), kFewestCalls, most);
  const int calls =
      options.mode == BenchMode::isolated ? kIsolatedCalls : options.calls.value_or(static_cast<int>(wanted));
  if (!feeds_back(options)) return calls;
  if (options.collective->reduces) {
    return std::min(calls, std::max(finite_calls(options), 1));
  }
  // An even number of all-to-alls restores the input, as if none had run.
  return calls % 2 == 0 ? calls - 1 : calls;
}

int choose_samples(const BenchOptions& options, std::uint64_t bytes) {
  if (options.iterations) return *options.iterations;
  if (options.mode == BenchMode::isolated) return guess_us(options, bytes) < 1000 ? 100 : 20;
  const double sample_us = guess_us(options, bytes) * choose_calls(options, bytes);
  return sample_us < 5000 ? 20 : 10;
}

int choose_slots(const BenchOptions& options, std::uint64_t bytes, std::uint64_t cache_bytes) {
  const int calls = choose_calls(options, bytes);
  if (!options.cold || calls == 1) return 1;
  const std::uint64_t touched = std::max<std::uint64_t>(least_touched(options, bytes), 1);
  const std::uint64_t wanted = 2 * cache_bytes / touched + 2;
  return static_cast<int>(std::min<std::uint64_t>(wanted, static_cast<std::uint64_t>(calls)));
}

std::uint64_t head_start_ns(int calls) {
  return 60000 + 1000 * static_cast<std::uint64_t>(std::min(calls, 1000));
}

IsolatedTime isolated_time(const std::vector<IsolatedStamps>& ranks) {
  require(ranks.size() >= 2, "isolated times need two ranks");
  // Subtracts before the conversion: a stamp has more digits than a double.
  const std::uint64_t zero = ranks[0].arrived;
  const auto since = [zero](std::uint64_t stamp) {
    return static_cast<double>(static_cast<std::int64_t>(stamp - zero));
  };
  double last_arrival = 0;
  double last_end = since(ranks[0].done);
  double error = 0;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::vector<std::uint64_t>& asked = ranks[0].asked.at(r);
    const std::vector<std::uint64_t>& answered = ranks[0].answered.at(r);
    const std::vector<std::uint64_t>& heard = ranks[r].asked.at(0);
    double shortest = -1;
    double offset = 0;
    for (std::size_t i = 0; i < heard.size(); ++i) {
      const double trip = since(answered.at(i)) - since(asked.at(i));
      if (shortest >= 0 && trip >= shortest) continue;
      shortest = trip;
      offset = since(heard[i]) - (since(asked[i]) + since(answered[i])) / 2;
    }
    require(shortest >= 0, "rank {} has no clock samples", r);
    last_arrival = std::max(last_arrival, since(ranks[r].arrived) - offset);
    last_end = std::max(last_end, since(ranks[r].done) - offset);
    error = std::max(error, shortest / 2);
  }
  return {(last_end - last_arrival) / 1e3, error / 1e3};
}

}  // namespace onehop::cli
