// SPDX-License-Identifier: Apache-2.0
#include "onehop/c/peers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onehop/peer_access.h"
#include "onehop/peer_check.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_PEER_TEST_STORE == static_cast<int>(PeerTest::store));
static_assert(ONEHOP_PEER_TEST_LOAD == static_cast<int>(PeerTest::load));
static_assert(ONEHOP_PEER_TEST_COPY == static_cast<int>(PeerTest::copy));
static_assert(ONEHOP_PEER_TEST_ATOMICS == static_cast<int>(PeerTest::atomics));
static_assert(ONEHOP_PEER_TEST_SHARED_ATOMICS == static_cast<int>(PeerTest::shared_atomics));
static_assert(ONEHOP_PEER_TEST_FLAG == static_cast<int>(PeerTest::flag));
static_assert(ONEHOP_PEER_TEST_FLAG + 1 == kPeerTestCount);
static_assert(ONEHOP_PEER_OUTCOME_PASSED == static_cast<int>(PeerOutcome::passed));
static_assert(ONEHOP_PEER_OUTCOME_FAILED == static_cast<int>(PeerOutcome::failed));
static_assert(ONEHOP_PEER_OUTCOME_HUNG == static_cast<int>(PeerOutcome::hung));
static_assert(ONEHOP_PEER_OUTCOME_SKIPPED == static_cast<int>(PeerOutcome::skipped));
static_assert(ONEHOP_PEER_OUTCOME_NOT_RUN == static_cast<int>(PeerOutcome::not_run));

struct onehop_peer_access {
  std::unique_ptr<PeerAccess> own;  ///< empty: the process-wide one
  PeerAccess& access;
};

struct onehop_peer_report {
  std::vector<PairReport> pairs;
  std::vector<std::string> failures;  ///< one per pair
};

namespace {

PeerAccess& in(const onehop_peer_access_t* access) {
  return deref(access, "access").access;
}

onehop_peer_check_options_t check_defaults() {
  const PeerCheckOptions from;
  onehop_peer_check_options_t defaults{};
  defaults.bytes = from.bytes;
  defaults.measure_bandwidth = from.measure_bandwidth ? 1 : 0;
  defaults.repetitions = from.repetitions;
  defaults.round_trips = from.round_trips;
  defaults.seed = from.seed;
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.remember = from.remember ? 1 : 0;
  return defaults;
}

PeerCheckOptions to_check_options(const onehop_peer_check_options_t* options) {
  PeerCheckOptions out;
  if (options == nullptr) return out;
  const onehop_peer_check_options_t given = read_options(options, "options", check_defaults());
  require(given.devices == nullptr || given.device_count > 0,
          "options->device_count is 0: leave options->devices NULL for all devices");
  out.devices = to_devices(given.devices, given.device_count);
  out.bytes = given.bytes;
  out.measure_bandwidth = given.measure_bandwidth != 0;
  out.repetitions = given.repetitions;
  out.round_trips = given.round_trips;
  out.seed = given.seed;
  out.timeout = timeout(given.timeout_ms, out.timeout);
  out.remember = given.remember != 0;
  return out;
}

}  // namespace

extern "C" {

onehop_status_t onehop_peer_access_of_process(onehop_peer_access_t** access) {
  return produce(access, "access", [] { return new onehop_peer_access{nullptr, PeerAccess::of_process()}; });
}

onehop_status_t onehop_peer_access_create(int device_count, onehop_peer_access_t** access) {
  return produce(access, "access", [&] {
    auto own = std::make_unique<PeerAccess>(device_count);
    PeerAccess& made = *own;
    return new onehop_peer_access{std::move(own), made};
  });
}

void onehop_peer_access_destroy(onehop_peer_access_t* access) {
  delete access;
}

onehop_status_t onehop_peer_access_can_access(onehop_peer_access_t* access, int device, int peer, int* yes) {
  return produce(yes, "yes", [&] { return in(access).can_access(DeviceId{device}, DeviceId{peer}) ? 1 : 0; });
}

onehop_status_t onehop_peer_access_disable(onehop_peer_access_t* access, int device, int peer) {
  return guard([&] { in(access).disable(DeviceId{device}, DeviceId{peer}); });
}

onehop_status_t onehop_peer_access_grant_current_pool(onehop_peer_access_t* access, int owner, int peer) {
  return guard([&] { in(access).grant_pool_access(DeviceId{owner}, DeviceId{peer}); });
}

onehop_status_t onehop_peer_access_grant_pool(onehop_peer_access_t* access, void* pool, int peer) {
  return guard([&] {
    PeerAccess& of = in(access);
    require(pool != nullptr, "pool must not be NULL");
    of.grant_pool_access(pool, DeviceId{peer});
  });
}

void onehop_pair_attributes_init(onehop_pair_attributes_t* attributes, size_t size) {
  init_options(attributes, size, onehop_pair_attributes_t{});
}

onehop_status_t onehop_peer_access_pair_attributes(const onehop_peer_access_t* access, int device, int peer,
                                                   onehop_pair_attributes_t* attributes) {
  return answer(attributes, "attributes", [&](onehop_pair_attributes_t& out) {
    const PairAttributes found = in(access).pair_attributes(DeviceId{device}, DeviceId{peer});
    out.access = found.access ? 1 : 0;
    out.performance_rank = found.performance_rank;
    out.native_atomics = found.native_atomics ? 1 : 0;
    out.array_access = found.array_access ? 1 : 0;
  });
}

onehop_status_t onehop_peer_access_reset(onehop_peer_access_t* access, int device_count) {
  return guard([&] { in(access).reset(device_count); });
}

onehop_status_t onehop_peer_access_device_count(const onehop_peer_access_t* access, int* device_count) {
  return guard([&] { deref(device_count, "device_count") = in(access).device_count(); });
}

const char* onehop_peer_test_name(onehop_peer_test_t test) {
  return name_of(test, PeerTest::flag);
}

const char* onehop_peer_outcome_name(onehop_peer_outcome_t outcome) {
  return name_of(outcome, PeerOutcome::not_run);
}

void onehop_peer_check_options_init(onehop_peer_check_options_t* options, size_t size) {
  init_options(options, size, check_defaults());
}

onehop_status_t onehop_peers_check(const onehop_peer_check_options_t* options,
                                   onehop_peer_report_t** report) {
  return produce(report, "report", [&] {
    auto made = std::make_unique<onehop_peer_report>();
    made->pairs = check_peers(to_check_options(options));
    for (const PairReport& each : made->pairs) made->failures.push_back(each.failure());
    return made.release();
  });
}

void onehop_peer_report_destroy(onehop_peer_report_t* report) {
  delete report;
}

void onehop_peer_pair_init(onehop_peer_pair_t* pair, size_t size) {
  init_options(pair, size, onehop_peer_pair_t{});
}

void onehop_peer_test_result_init(onehop_peer_test_result_t* result, size_t size) {
  init_options(result, size, onehop_peer_test_result_t{});
}

size_t onehop_peer_report_count(const onehop_peer_report_t* report) {
  return report == nullptr ? 0 : report->pairs.size();
}

onehop_status_t onehop_peer_report_pair(const onehop_peer_report_t* report, size_t index,
                                        onehop_peer_pair_t* pair) {
  return answer(pair, "pair", [&](onehop_peer_pair_t& out) {
    const onehop_peer_report& from = deref(report, "report");
    const PairReport& found = entry(from.pairs, index, "pair");
    out.from = found.from.value;
    out.to = found.to.value;
    out.ok = found.ok() ? 1 : 0;
    out.access = found.attributes.access ? 1 : 0;
    out.performance_rank = found.attributes.performance_rank;
    out.native_atomics = found.attributes.native_atomics ? 1 : 0;
    out.array_access = found.attributes.array_access ? 1 : 0;
    out.failure = from.failures[index].c_str();
    out.test_count = found.tests.size();
    out.store_gbps = found.store_gbps.value_or(-1);
    out.load_gbps = found.load_gbps.value_or(-1);
    out.copy_gbps = found.copy_gbps.value_or(-1);
    out.latency_ns = found.latency_ns.value_or(-1);
  });
}

onehop_status_t onehop_peer_report_test(const onehop_peer_report_t* report, size_t index, size_t test,
                                        onehop_peer_test_result_t* result) {
  return answer(result, "result", [&](onehop_peer_test_result_t& out) {
    const PeerTestResult& found =
        entry(entry(deref(report, "report").pairs, index, "pair").tests, test, "test");
    out.test = static_cast<onehop_peer_test_t>(found.test);
    out.outcome = static_cast<onehop_peer_outcome_t>(found.outcome);
    out.detail = found.detail.c_str();
  });
}

onehop_status_t onehop_peers_verified(const int* devices, size_t count, int* verified) {
  return produce(verified, "verified", [&] { return peers_verified(to_devices(devices, count)) ? 1 : 0; });
}

}  // extern "C"
