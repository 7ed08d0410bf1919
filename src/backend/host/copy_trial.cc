// SPDX-License-Identifier: Apache-2.0
#include "backend/host/copy_trial.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "backend/host/copy.h"
#include "os/process_memory.h"

namespace onehop::host {
namespace {

/// Each try reads other memory, which no earlier one has brought into the reader's cache. The shortest counts.
constexpr std::size_t kTries = 3;
/// Staging costs two copies through shared memory, the first of which is cheaper than the second.
constexpr double kMostPulled = 2.3;

std::size_t tries(std::size_t staging_bytes) {
  return std::min(kTries, staging_bytes / CopyTrial::kBytes);
}

template <class Work>
double time_us(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CopyTrial::CopyTrial(std::span<std::byte> staging) {
  const std::size_t bytes = tries(staging.size()) * kBytes;
  data_.assign(bytes, std::byte{1});
  host::copy(staging.data(), data_.data(), bytes);
}

std::optional<CopyTrial::Times> CopyTrial::measure(pid_t process, std::uint64_t address,
                                                   std::span<const std::byte> staging) {
  constexpr std::size_t kPage = 4096;
  const std::size_t count = tries(staging.size());
  if (count == 0) return std::nullopt;
  std::vector<std::byte> to(kBytes);
  // Maps the pages, which is no part of a copy.
  for (std::size_t at = 0; at < count * kBytes; at += kPage)
    to[at / kPage] = *const_cast<const volatile std::byte*>(&staging[at]);
  constexpr double kNever = std::numeric_limits<double>::max();
  Times times{.pulled = kNever, .mapped = kNever};
  for (std::size_t i = 0; i < count; ++i) {
    int error = 0;
    const std::size_t at = i * kBytes;
    times.pulled = std::min(
        times.pulled, time_us([&] { error = os::read_process(process, address + at, to.data(), kBytes); }));
    if (error != 0) return std::nullopt;
    times.mapped = std::min(times.mapped, time_us([&] { host::copy(to.data(), &staging[at], kBytes); }));
  }
  return times;
}

std::string find_slowness(std::span<const CopyTrial::Times> times) {
  const auto slow = [](const CopyTrial::Times& each) { return each.pulled > kMostPulled * each.mapped; };
  if (2 * std::ranges::count_if(times, slow) <= static_cast<std::ptrdiff_t>(times.size())) return {};
  const CopyTrial::Times& example = *std::ranges::find_if(times, slow);
  return fmt::format(
      "copying twice is faster here: 64 KiB take {:.1f} us from another process's memory, {:.1f} us from "
      "shared memory; ONEHOP_SINGLE_COPY=1 for it all the same",
      example.pulled, example.mapped);
}

}  // namespace onehop::host
