// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kChunk = 4096;  // words per all_gather, which carries at most 64 KiB

template <class T>
std::vector<std::vector<T>> gather_words(Group& group, const std::vector<T>& mine) {
  static_assert(sizeof(T) == 8);
  std::vector<std::vector<T>> all(static_cast<std::size_t>(group.size()));
  for (std::size_t at = 0; at < mine.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, mine.size() - at);
    const std::string_view bytes(reinterpret_cast<const char*>(&mine[at]), count * sizeof(T));
    const std::vector<std::string> chunks = group.all_gather(bytes);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (chunks.at(rank).size() != bytes.size()) {
        fail_from(Rank{static_cast<int>(rank)}, ErrorCode::protocol,
                  "rank {} sent {} bytes of samples instead of {}", rank, chunks[rank].size(), bytes.size());
      }
      all[rank].resize(at + count);
      std::memcpy(&all[rank][at], chunks[rank].data(), bytes.size());
    }
  }
  return all;
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  require(!samples.empty(), "no samples to summarize");
  std::sort(samples.begin(), samples.end());
  const std::size_t size = samples.size();
  const double median = (samples[(size - 1) / 2] + samples[size / 2]) / 2;
  const auto nearest = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(size)));
  return {median, samples.front(), samples[std::max<std::size_t>(nearest, 1) - 1]};
}

BenchTime bench_time(std::vector<double> samples) {
  const Summary summary = summarize(std::move(samples));
  return {summary.median, summary.min, summary.p95};
}

std::vector<std::vector<double>> gather(Group& group, const std::vector<double>& mine) {
  return gather_words(group, mine);
}

std::vector<std::vector<std::uint64_t>> gather(Group& group, const std::vector<std::uint64_t>& mine) {
  return gather_words(group, mine);
}

std::vector<double> slowest_rank(const std::vector<std::vector<double>>& per_rank) {
  std::vector<double> slowest = per_rank.at(0);
  for (const std::vector<double>& samples : per_rank) {
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], samples.at(i));
  }
  return slowest;
}

double algorithm_bandwidth(std::uint64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

}  // namespace onehop::cli
