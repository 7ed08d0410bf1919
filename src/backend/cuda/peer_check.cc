// SPDX-License-Identifier: Apache-2.0
// The peer check: which tests run, in which order, and what their results mean.
#include "onehop/peer_check.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "onehop/version.h"

#include "backend/cuda/peer_check_device.h"
#include "backend/peer_plan.h"
#include "backend/peer_record.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/log.h"
#include "driver/device.h"
#include "os/host_id.h"

namespace onehop {
namespace peer_check {
namespace {

constexpr std::uint32_t kPingWarmup = 16;
constexpr Duration kPingLimit = std::chrono::seconds{2};  // takes 1 to 2 ms on working links
constexpr std::size_t kShortCheckBytes = 4u << 20;

/// The two devices of a pair and their names.
struct Pair {
  CheckDevice& from;
  CheckDevice& to;
};

class PeerCheck {
 public:
  PeerCheck(const PeerCheckOptions& options, const std::vector<DeviceId>& devices)
      : options_(options), deadline_(Deadline::after(options.timeout)) {
    for (const DeviceId device : devices) {
      devices_.push_back(std::make_unique<CheckDevice>(device, options.bytes, options.repetitions + 1));
    }
  }

  [[nodiscard]] std::vector<PairReport> run();

 private:
  [[nodiscard]] PairReport check(Pair pair);
  void run_test(PairReport& report, PeerTest test, const std::function<std::string()>& body);

  /// The tests. Each returns a description of the fault, or an empty string.
  [[nodiscard]] std::string test_store(Pair pair, std::optional<double>& gbps);
  [[nodiscard]] std::string test_load(Pair pair, std::optional<double>& gbps);
  [[nodiscard]] std::string test_copy(Pair pair, std::optional<double>& gbps);
  [[nodiscard]] std::string test_atomics(Pair pair, bool both);
  [[nodiscard]] std::string test_flag(Pair pair, std::optional<double>& latency_ns);

  /// A transfer that `pair.from` performs; the data ends in `buffer` on `owner`.
  struct Transfer {
    PeerTest test;
    CheckDevice& owner;
    CUdeviceptr buffer;
    std::function<void(std::uint64_t key)> prepare;  ///< writes the data
    std::function<void(std::uint64_t key)> move;
  };
  [[nodiscard]] std::string test_transfer(Pair pair, const Transfer& transfer, std::optional<double>& gbps);
  [[nodiscard]] double measure(CheckDevice& device, const std::function<void()>& move);

  const PeerCheckOptions& options_;
  Deadline deadline_;
  std::vector<std::unique_ptr<CheckDevice>> devices_;
  std::string stopped_;  ///< why no further test runs; empty while tests can run
};

double PeerCheck::measure(CheckDevice& device, const std::function<void()>& move) {
  move();
  device.stamp(0);
  for (int i = 1; i <= options_.repetitions; ++i) {
    move();
    device.stamp(i);
  }
  device.wait(deadline_);
  std::vector<double> times;
  for (int i = 1; i <= options_.repetitions; ++i) times.push_back(device.milliseconds(i - 1, i));
  return static_cast<double>(options_.bytes) / (median(std::move(times)) * 1e6);
}

std::string PeerCheck::test_transfer(Pair pair, const Transfer& transfer, std::optional<double>& gbps) {
  // The second phase is timed: it repeats the transfer many times with other data, which is verified as well.
  const unsigned phases = options_.measure_bandwidth ? 2 : 1;
  for (unsigned phase = 0; phase < phases; ++phase) {
    const std::uint64_t key = data_key(options_.seed, pair.from.id(), pair.to.id(), transfer.test, phase);
    transfer.prepare(key);
    transfer.owner.overwrite(transfer.buffer);
    // Proves that no data of an earlier transfer remains, and that verification can fail.
    const Verdict before = transfer.owner.verify(transfer.buffer, key, deadline_);
    const std::uint64_t units = transfer.owner.units();
    if (before.wrong != units) {
      return fmt::format("GPU {} overwrote its memory, but {} of {} words are already what should arrive",
                         transfer.owner.id().value, units - before.wrong, units);
    }
    pair.from.wait(deadline_);
    pair.to.wait(deadline_);
    if (phase == 0) {
      transfer.move(key);
      pair.from.wait(deadline_);
    } else {
      gbps = measure(pair.from, [&] { transfer.move(key); });
    }
    std::string wrong = describe(transfer.owner.verify(transfer.buffer, key, deadline_), units);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string PeerCheck::test_store(Pair pair, std::optional<double>& gbps) {
  const CUdeviceptr target = pair.to.inbox();
  return test_transfer(pair,
                       {.test = PeerTest::store,
                        .owner = pair.to,
                        .buffer = target,
                        .prepare = [](std::uint64_t) {},
                        .move = [&](std::uint64_t key) { pair.from.store(target, key); }},
                       gbps);
}

std::string PeerCheck::test_load(Pair pair, std::optional<double>& gbps) {
  return test_transfer(pair,
                       {.test = PeerTest::load,
                        .owner = pair.from,
                        .buffer = pair.from.outbox(),
                        .prepare = [&](std::uint64_t key) { pair.to.store(pair.to.inbox(), key); },
                        .move = [&](std::uint64_t) { pair.from.load(pair.to.inbox(), pair.from.outbox()); }},
                       gbps);
}

std::string PeerCheck::test_copy(Pair pair, std::optional<double>& gbps) {
  return test_transfer(pair,
                       {.test = PeerTest::copy,
                        .owner = pair.to,
                        .buffer = pair.to.inbox(),
                        .prepare = [&](std::uint64_t key) { pair.from.store(pair.from.outbox(), key); },
                        .move = [&](std::uint64_t) { pair.from.send(pair.to); }},
                       gbps);
}

std::string PeerCheck::test_atomics(Pair pair, bool both) {
  pair.from.clear_scratch();
  pair.to.clear_scratch();
  pair.from.wait(deadline_);
  pair.to.wait(deadline_);
  pair.from.add(pair.to);
  if (both) pair.to.add(pair.to);
  const std::uint64_t tickets = pair.from.read_scratch(deadline_).ticket_sum;
  const Scratch owner = pair.to.read_scratch(deadline_);
  return describe_atomics(owner, tickets + owner.ticket_sum, both ? 2 : 1);
}

std::string PeerCheck::test_flag(Pair pair, std::optional<double>& latency_ns) {
  pair.from.clear_scratch();
  pair.to.clear_scratch();
  pair.from.wait(deadline_);
  pair.to.wait(deadline_);
  const auto rounds = static_cast<std::uint32_t>(options_.round_trips);
  // Well before our own deadline: a kernel that gives up can report how far it got.
  const Duration limit = std::min(kPingLimit, deadline_.left() / 2);
  const auto limit_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count());
  pair.to.ping(pair.from, false, kPingWarmup, rounds, limit_ns);
  pair.from.ping(pair.to, true, kPingWarmup, rounds, limit_ns);
  const PingResult there = pair.from.read_scratch(deadline_).ping;
  const PingResult back = pair.to.read_scratch(deadline_).ping;
  if (there.gave_up != 0 || back.gave_up != 0) {
    return fmt::format(
        "of {} flags, GPU {} saw {} and GPU {} saw {} answers within {} ms (are the GPUs busy, or is "
        "CUDA_LAUNCH_BLOCKING set?)",
        kPingWarmup + rounds, pair.to.id().value, back.rounds_done, pair.from.id().value, there.rounds_done,
        limit.count());
  }
  latency_ns = static_cast<double>(there.elapsed_ns) / (2.0 * rounds);
  return {};
}

void PeerCheck::run_test(PairReport& report, PeerTest test, const std::function<std::string()>& body) {
  PeerTestResult result{.test = test, .outcome = PeerOutcome::not_run, .detail = stopped_};
  if (stopped_.empty()) {
    bool unusable = false;
    try {
      result.detail = body();
      result.outcome = result.detail.empty() ? PeerOutcome::passed : PeerOutcome::failed;
    } catch (const Hung& hung) {
      result.outcome = PeerOutcome::hung;
      result.detail = hung.what();
      for (const std::unique_ptr<CheckDevice>& device : devices_) device->abandon();
      unusable = true;
    } catch (const Error& error) {
      result.outcome = PeerOutcome::failed;
      result.detail = error.message();
      unusable = true;
    }
    if (unusable) {
      stopped_ = fmt::format("after {} from GPU {} to GPU {} {} nothing more was run", to_string(test),
                             report.from.value, report.to.value, to_string(result.outcome));
    }
  }
  report.tests.push_back(std::move(result));
}

PairReport PeerCheck::check(Pair pair) {
  PairReport report;
  report.from = pair.from.id();
  report.to = pair.to.id();
  const auto without = [&](PeerTest test, PeerOutcome outcome, std::string why) {
    report.tests.push_back({test, stopped_.empty() ? outcome : PeerOutcome::not_run,
                            stopped_.empty() ? std::move(why) : stopped_});
  };
  PeerAccess& access = PeerAccess::of_process();
  bool mutual = false;
  if (stopped_.empty()) {
    report.attributes = access.pair_attributes(report.from, report.to);
    report.attributes.access = access.can_access(report.from, report.to);
    mutual = access.can_access(report.to, report.from);
  } else {
    report.attributes.access = true;  // access is unknown; the tests report that they did not run
  }
  if (!report.attributes.access) {
    for (int test = 0; test < kPeerTestCount; ++test) {
      without(static_cast<PeerTest>(test), PeerOutcome::not_run, "the driver allows no peer access");
    }
    return report;
  }

  run_test(report, PeerTest::store, [&] { return test_store(pair, report.store_gbps); });
  run_test(report, PeerTest::load, [&] { return test_load(pair, report.load_gbps); });
  run_test(report, PeerTest::copy, [&] { return test_copy(pair, report.copy_gbps); });
  if (report.attributes.native_atomics || !stopped_.empty()) {
    run_test(report, PeerTest::atomics, [&] { return test_atomics(pair, false); });
    run_test(report, PeerTest::shared_atomics, [&] { return test_atomics(pair, true); });
  } else {
    for (const PeerTest test : {PeerTest::atomics, PeerTest::shared_atomics}) {
      without(test, PeerOutcome::skipped, "no native atomics between these devices");
    }
  }
  if (mutual || !stopped_.empty()) {
    run_test(report, PeerTest::flag, [&] { return test_flag(pair, report.latency_ns); });
  } else {
    without(
        PeerTest::flag, PeerOutcome::not_run,
        fmt::format("GPU {} cannot answer: it has no access to GPU {}", report.to.value, report.from.value));
  }
  return report;
}

std::vector<PairReport> PeerCheck::run() {
  std::vector<PairReport> reports;
  for (const std::unique_ptr<CheckDevice>& from : devices_) {
    for (const std::unique_ptr<CheckDevice>& to : devices_) {
      if (from == to) continue;
      reports.push_back(check({*from, *to}));
      if (const std::string failure = reports.back().failure(); !failure.empty()) {
        log::debug("peer check: {}", failure);
      }
    }
  }
  return reports;
}

RecordKey record_key() {
  int driver_version = 0;
  check_cuda(cuda_driver().DriverGetVersion(&driver_version), "cuDriverGetVersion");
  return {
      .boot_id = os::boot_id(), .driver_version = driver_version, .onehop_version = std::string(version())};
}

std::pair<std::string, std::string> uuids(DeviceId from, DeviceId to) {
  return {cuda_uuid(from), cuda_uuid(to)};
}

void remember(const std::vector<PairReport>& reports) {
  Outcomes outcomes;
  for (const PairReport& report : reports) {
    if (is_conclusive(report)) outcomes[uuids(report.from, report.to)] = report.ok();
  }
  const RecordKey key = record_key();
  (void)write_record(record_path(key.boot_id), key, outcomes);
}

}  // namespace

Outcomes recorded_outcomes() {
  const RecordKey key = record_key();
  return read_record(record_path(key.boot_id), key);
}

}  // namespace peer_check

std::vector<PairReport> check_peers(const PeerCheckOptions& options) {
  (void)cuda_driver();
  peer_check::check_options(options);
  const std::vector<DeviceId> devices = peer_check::choose_devices(options.devices, cuda_device_count());
  std::vector<PairReport> reports = peer_check::PeerCheck(options, devices).run();
  if (options.remember) peer_check::remember(reports);
  return reports;
}

bool peers_verified(const std::vector<DeviceId>& devices) {
  for (const DeviceId device : devices) require_cuda_device(device);
  std::set<int> numbers;
  for (const DeviceId device : devices) numbers.insert(device.value);
  std::vector<DeviceId> distinct;
  for (const int number : numbers) distinct.emplace_back(number);
  if (distinct.size() < 2) return true;

  const peer_check::Outcomes known = peer_check::recorded_outcomes();
  bool complete = true;
  bool passed = true;
  for (const DeviceId from : distinct) {
    for (const DeviceId to : distinct) {
      if (from == to) continue;
      const auto outcome = known.find(peer_check::uuids(from, to));
      complete = complete && outcome != known.end();
      passed = passed && outcome != known.end() && outcome->second;
    }
  }
  if (complete) return passed;

  PeerCheckOptions options;
  options.devices = distinct;
  options.bytes = peer_check::kShortCheckBytes;
  options.measure_bandwidth = false;
  options.remember = true;
  const std::vector<PairReport> reports = check_peers(options);
  for (const PairReport& report : reports) {
    if (!report.ok() && peer_check::is_conclusive(report)) log::warn("peer check: {}", report.failure());
  }
  return std::all_of(reports.begin(), reports.end(), [](const PairReport& report) { return report.ok(); });
}

}  // namespace onehop
