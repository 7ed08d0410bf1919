// SPDX-License-Identifier: Apache-2.0
#include "backend/peer_plan.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace onehop {
namespace peer_check {
namespace {

constexpr int kMostRepetitions = 1000;
constexpr int kMostRoundTrips = 100000;

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

}  // namespace

void check_options(const PeerCheckOptions& options) {
  require(options.bytes >= kUnitBytes && options.bytes % kUnitBytes == 0,
          "a peer check moves a multiple of {} bytes, got {}", kUnitBytes, options.bytes);
  require(options.repetitions >= 1 && options.repetitions <= kMostRepetitions,
          "a peer check repeats 1 to {} times, got {}", kMostRepetitions, options.repetitions);
  require(options.round_trips >= 1 && options.round_trips <= kMostRoundTrips,
          "a peer check makes 1 to {} round trips, got {}", kMostRoundTrips, options.round_trips);
  require(options.timeout.count() > 0, "a peer check needs time, got a timeout of {} ms",
          options.timeout.count());
}

std::vector<DeviceId> choose_devices(const std::vector<DeviceId>& wanted, int count) {
  std::vector<DeviceId> devices = wanted;
  if (devices.empty()) {
    for (int device = 0; device < count; ++device) devices.emplace_back(device);
  }
  for (const DeviceId device : devices) {
    require(device.value >= 0 && device.value < count,
            "device {} does not exist: this process sees {} GPU{} (numbered from 0; CUDA_VISIBLE_DEVICES may "
            "hide some)",
            device.value, count, count == 1 ? "" : "s");
  }
  std::ranges::sort(devices, {}, &DeviceId::value);
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  require(twice == devices.end(), "device {} is named twice", twice == devices.end() ? -1 : twice->value);
  require(devices.size() >= 2, "a peer check needs at least 2 GPUs, got {} (this process sees {})",
          devices.size(), count);
  return devices;
}

std::uint64_t data_key(std::uint64_t seed, DeviceId from, DeviceId to, PeerTest test, unsigned phase) {
  std::uint64_t key = mix(seed);
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(from.value), static_cast<std::uint64_t>(to.value),
        static_cast<std::uint64_t>(test), static_cast<std::uint64_t>(phase)}) {
    key = mix(key ^ part);
  }
  return key;
}

std::string describe(const Verdict& verdict, std::uint64_t units) {
  if (verdict.wrong == 0) return {};
  return fmt::format("{} of {} words of {} bytes {} wrong, the first at byte {}", verdict.wrong, units,
                     kUnitBytes, verdict.wrong == 1 ? "is" : "are", (units - verdict.from_end) * kUnitBytes);
}

std::string describe_atomics(const Scratch& owner, std::uint64_t ticket_sum, unsigned devices) {
  static_assert(kAtomicRounds % kCounters == 0, "every counter must get as many additions");
  const std::uint64_t additions =
      std::uint64_t{kAtomicBlocks} * kAtomicBlock * kAtomicRounds / kCounters * devices;
  for (unsigned i = 0; i < kCounters; ++i) {
    const std::uint64_t expected32 = additions * (i + 1);
    if (owner.counters32[i] != expected32) {
      return fmt::format("counter {} of 32 bits is {} after {} additions of {}, expected {}", i,
                         owner.counters32[i], additions, i + 1, expected32);
    }
    if (owner.counters64[i] != additions) {
      return fmt::format("counter {} of 64 bits is {} after {} additions of 1", i, owner.counters64[i],
                         additions);
    }
  }
  // If every addition of 1 is atomic, additions that start at 0 return 0, 1, 2 ... in some order.
  const std::uint64_t expected = kCounters * (additions * (additions - 1) / 2);
  if (ticket_sum != expected) {
    return fmt::format("the additions counted right but returned wrong values: their sum is {}, expected {}",
                       ticket_sum, expected);
  }
  return {};
}

double median(std::vector<double> values) {
  require(!values.empty(), "there is no median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool is_conclusive(const PairReport& report) {
  return !report.attributes.access || report.ok() ||
         std::any_of(report.tests.begin(), report.tests.end(), [](const PeerTestResult& result) {
           return result.outcome == PeerOutcome::failed || result.outcome == PeerOutcome::hung;
         });
}

}  // namespace peer_check

std::string_view to_string(PeerTest test) {
  constexpr std::array<std::string_view, kPeerTestCount> kNames{"store",   "load",           "copy",
                                                                "atomics", "shared-atomics", "flag"};
  const auto index = static_cast<std::size_t>(test);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view to_string(PeerOutcome outcome) {
  constexpr std::array<std::string_view, 5> kNames{"passed", "failed", "hung", "skipped", "not-run"};
  const auto index = static_cast<std::size_t>(outcome);
  return index < kNames.size() ? kNames[index] : "unknown";
}

namespace {

bool is_good(const PeerTestResult& result) {
  return result.outcome == PeerOutcome::passed || result.outcome == PeerOutcome::skipped;
}

}  // namespace

bool PairReport::ok() const {
  return attributes.access && !tests.empty() && std::all_of(tests.begin(), tests.end(), is_good);
}

std::string PairReport::failure() const {
  if (ok()) return {};
  const std::string pair = fmt::format("GPU {} -> GPU {}", from.value, to.value);
  const auto bad = std::find_if_not(tests.begin(), tests.end(), is_good);
  if (!attributes.access) return fmt::format("{}: the driver allows no peer access", pair);
  if (bad == tests.end()) return fmt::format("{}: nothing was tested", pair);
  return fmt::format("{}: {} {}: {}", pair, to_string(bad->test),
                     bad->outcome == PeerOutcome::not_run ? "was not tested" : to_string(bad->outcome),
                     bad->detail);
}

}  // namespace onehop
