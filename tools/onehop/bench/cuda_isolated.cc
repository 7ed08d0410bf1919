// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda_isolated.h"

#include <cstring>
#include <random>

#include "base/check.h"
#include "bench/statistics.h"

namespace onehop::cli {
namespace {

/// The longest random delay of a rank: several times the time of a small call.
constexpr std::uint32_t kLongestDelayNs = 20000;

IsolatedStamps stamps_of(const ClockRecord& record, int ranks) {
  IsolatedStamps stamps{record.arrived, record.done, {}, {}};
  for (int peer = 0; peer < ranks; ++peer) {
    const auto& asked = record.asked[peer];
    const auto& answered = record.answered[peer];
    stamps.asked.emplace_back(std::begin(asked), std::end(asked));
    stamps.answered.emplace_back(std::begin(answered), std::end(answered));
  }
  return stamps;
}

}  // namespace

IsolatedCalls::IsolatedCalls(GpuContext& context, int capacity)
    : context_(context),
      capacity_(capacity),
      records_(static_cast<std::size_t>(capacity) * sizeof(ClockRecord)),
      delays_(static_cast<std::size_t>(capacity) * sizeof(std::uint32_t)),
      next_(sizeof(std::uint32_t)),
      log_{reinterpret_cast<ClockRecord*>(records_.get()),
           reinterpret_cast<const std::uint32_t*>(delays_.get()),
           reinterpret_cast<std::uint32_t*>(next_.get()), static_cast<std::uint32_t>(capacity)} {
  std::minstd_rand random(static_cast<unsigned>(context.group.rank().value + 1));
  std::vector<std::uint32_t> delays(static_cast<std::size_t>(capacity));
  for (std::uint32_t& delay : delays) delay = static_cast<std::uint32_t>(random() % kLongestDelayNs);
  check(
      cudaMemcpy(delays_.get(), delays.data(), delays.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  check(cudaMemset(next_.get(), 0, sizeof(std::uint32_t)), "cudaMemset");
  check(cudaMemset(records_.get(), 0, delays.size() * sizeof(ClockRecord)), "cudaMemset");
  // A memset on the default stream may return before it is complete.
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

std::vector<IsolatedTime> IsolatedCalls::times(int skip) const {
  static_assert(sizeof(ClockRecord) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kWords = sizeof(ClockRecord) / sizeof(std::uint64_t);
  std::uint32_t done = 0;
  check(cudaMemcpy(&done, next_.get(), sizeof done, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<std::uint64_t> words(static_cast<std::size_t>(capacity_) * kWords);
  check(
      cudaMemcpy(words.data(), records_.get(), words.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToHost),
      "cudaMemcpy");
  const std::vector<std::vector<std::uint64_t>> all = gather(context_.group, words);
  std::vector<IsolatedTime> times;
  for (auto call = static_cast<std::size_t>(skip); call < done; ++call) {
    std::vector<IsolatedStamps> ranks;
    for (const std::vector<std::uint64_t>& rank : all) {
      ClockRecord record;
      std::memcpy(&record, &rank.at(call * kWords), sizeof record);
      ranks.push_back(stamps_of(record, context_.group.size()));
    }
    times.push_back(isolated_time(ranks));
  }
  return times;
}

}  // namespace onehop::cli
