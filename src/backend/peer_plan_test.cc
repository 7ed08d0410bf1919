// SPDX-License-Identifier: Apache-2.0
#include "backend/peer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace onehop::peer_check {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "accepted";
}

std::vector<DeviceId> ids(std::initializer_list<int> numbers) {
  std::vector<DeviceId> devices;
  for (const int number : numbers) devices.emplace_back(number);
  return devices;
}

TEST(PeerCheckDevices, AreAllUnlessNamedAndSorted) {
  EXPECT_EQ(choose_devices({}, 3), ids({0, 1, 2}));
  EXPECT_EQ(choose_devices(ids({3, 1}), 4), ids({1, 3}));
}

TEST(PeerCheckDevices, ThatMakeNoSenseAreNamed) {
  EXPECT_THAT(refusal([] { (void)choose_devices(ids({0, 4}), 4); }), HasSubstr("device 4 does not exist"));
  EXPECT_THAT(refusal([] { (void)choose_devices(ids({-1, 0}), 4); }), HasSubstr("device -1 does not exist"));
  EXPECT_THAT(refusal([] { (void)choose_devices(ids({1, 0, 1}), 4); }), HasSubstr("device 1 is named twice"));
  EXPECT_THAT(refusal([] { (void)choose_devices(ids({2}), 4); }), HasSubstr("at least 2 GPUs, got 1"));
  EXPECT_THAT(refusal([] { (void)choose_devices({}, 1); }), HasSubstr("this process sees 1"));
}

TEST(PeerCheckOptions, OutOfRangeAreNamed) {
  EXPECT_NO_THROW(check_options({}));
  const auto with = [](auto change) {
    PeerCheckOptions options;
    change(options);
    return refusal([&] { check_options(options); });
  };
  EXPECT_THAT(with([](auto& o) { o.bytes = 0; }), HasSubstr("multiple of 16 bytes, got 0"));
  EXPECT_THAT(with([](auto& o) { o.bytes = 4100; }), HasSubstr("got 4100"));
  EXPECT_THAT(with([](auto& o) { o.repetitions = 0; }), HasSubstr("1 to 1000 times, got 0"));
  EXPECT_THAT(with([](auto& o) { o.round_trips = 1 << 20; }), HasSubstr("got 1048576"));
  EXPECT_THAT(with([](auto& o) { o.timeout = Duration{0}; }), HasSubstr("timeout of 0 ms"));
}

TEST(PeerCheckData, DiffersForEveryPairDirectionTestPhaseAndSeed) {
  std::set<std::uint64_t> keys;
  int made = 0;
  for (const std::uint64_t seed : {0u, 1u, 2u}) {
    for (int from = 0; from < 8; ++from) {
      for (int to = 0; to < 8; ++to) {
        for (int test = 0; test < kPeerTestCount; ++test) {
          for (const unsigned phase : {0u, 1u}) {
            keys.insert(data_key(seed, DeviceId{from}, DeviceId{to}, static_cast<PeerTest>(test), phase));
            ++made;
          }
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), static_cast<std::size_t>(made));
}

TEST(PeerCheckVerdict, SaysHowManyAndWhereTheFirst) {
  EXPECT_EQ(describe({}, 64), "");
  EXPECT_EQ(describe({.wrong = 2, .from_end = 61}, 64),
            "2 of 64 words of 16 bytes are wrong, the first at byte 48");
  EXPECT_EQ(describe({.wrong = 1, .from_end = 64}, 64),
            "1 of 64 words of 16 bytes is wrong, the first at byte 0");
}

/// The result of `devices` devices running the kernel without a fault.
std::pair<Scratch, std::uint64_t> run_atomics(unsigned devices) {
  Scratch scratch{};
  std::uint64_t tickets = 0;
  for (unsigned thread = 0; thread < devices * kAtomicBlocks * kAtomicBlock; ++thread) {
    for (unsigned round = 0; round < kAtomicRounds; ++round) {
      const unsigned counter = (thread + round) % kCounters;
      scratch.counters32[counter] += counter + 1;
      tickets += scratch.counters64[counter]++;
    }
  }
  return {scratch, tickets};
}

TEST(PeerCheckAtomics, RightCountsFromOneOrTwoDevicesAreRight) {
  for (const unsigned devices : {1u, 2u}) {
    const auto [scratch, tickets] = run_atomics(devices);
    EXPECT_EQ(describe_atomics(scratch, tickets, devices), "");
    EXPECT_NE(describe_atomics(scratch, tickets, 3 - devices), "");
  }
}

TEST(PeerCheckAtomics, ALostAdditionIsNamed) {
  auto [scratch, tickets] = run_atomics(1);
  scratch.counters32[7] -= 8;
  EXPECT_THAT(describe_atomics(scratch, tickets, 1), HasSubstr("counter 7 of 32 bits is 32760"));
  scratch.counters32[7] += 8;
  --scratch.counters64[63];
  EXPECT_THAT(describe_atomics(scratch, tickets, 1), HasSubstr("counter 63 of 64 bits is 4095 after 4096"));
}

TEST(PeerCheckAtomics, AnAdditionThatReturnsWhatAnotherDidIsNoticed) {
  const auto [scratch, tickets] = run_atomics(2);
  EXPECT_THAT(describe_atomics(scratch, tickets - 1, 2), HasSubstr("returned wrong values"));
}

TEST(PeerCheckMedian, IsTheMiddle) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median({7}), 7);
}

PairReport report_with(PeerOutcome outcome, std::string detail = {}) {
  PairReport report;
  report.from = DeviceId{2};
  report.to = DeviceId{5};
  report.attributes.access = true;
  for (int test = 0; test < kPeerTestCount; ++test) {
    report.tests.push_back({static_cast<PeerTest>(test), PeerOutcome::passed, ""});
  }
  report.tests[2] = {PeerTest::copy, outcome, std::move(detail)};
  return report;
}

TEST(PairReports, AreOkWhenNothingFailedOrIsMissing) {
  EXPECT_TRUE(report_with(PeerOutcome::passed).ok());
  EXPECT_EQ(report_with(PeerOutcome::passed).failure(), "");
  EXPECT_TRUE(report_with(PeerOutcome::skipped, "not offered").ok());
  for (const PeerOutcome bad : {PeerOutcome::failed, PeerOutcome::hung, PeerOutcome::not_run}) {
    EXPECT_FALSE(report_with(bad).ok()) << to_string(bad);
  }
  EXPECT_FALSE(PairReport{}.ok());
  PairReport unreachable = report_with(PeerOutcome::passed);
  unreachable.attributes.access = false;
  EXPECT_FALSE(unreachable.ok());
}

TEST(PairReports, SayWhatFailedInOneLine) {
  EXPECT_EQ(report_with(PeerOutcome::failed, "1 of 4 words is wrong").failure(),
            "GPU 2 -> GPU 5: copy failed: 1 of 4 words is wrong");
  EXPECT_EQ(report_with(PeerOutcome::hung, "GPU 2 was not done").failure(),
            "GPU 2 -> GPU 5: copy hung: GPU 2 was not done");
  EXPECT_EQ(report_with(PeerOutcome::not_run, "after x").failure(),
            "GPU 2 -> GPU 5: copy was not tested: after x");
  PairReport unreachable = report_with(PeerOutcome::not_run);
  unreachable.attributes.access = false;
  EXPECT_EQ(unreachable.failure(), "GPU 2 -> GPU 5: the driver allows no peer access");
  PairReport empty;
  empty.from = DeviceId{0};
  empty.to = DeviceId{1};
  empty.attributes.access = true;
  EXPECT_EQ(empty.failure(), "GPU 0 -> GPU 1: nothing was tested");
}

TEST(PairReports, AreRememberedWhenTheySayAnything) {
  EXPECT_TRUE(is_conclusive(report_with(PeerOutcome::passed)));
  EXPECT_TRUE(is_conclusive(report_with(PeerOutcome::failed)));
  EXPECT_TRUE(is_conclusive(report_with(PeerOutcome::hung)));
  EXPECT_FALSE(is_conclusive(report_with(PeerOutcome::not_run)));
  PairReport unreachable = report_with(PeerOutcome::not_run);
  unreachable.attributes.access = false;
  EXPECT_TRUE(is_conclusive(unreachable));
}

TEST(PairReports, NameTestsAndOutcomes) {
  std::set<std::string_view> names;
  for (int test = 0; test < kPeerTestCount; ++test) names.insert(to_string(static_cast<PeerTest>(test)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kPeerTestCount));
  EXPECT_EQ(to_string(PeerTest::shared_atomics), "shared-atomics");
  EXPECT_EQ(to_string(PeerOutcome::not_run), "not-run");
}

}  // namespace
}  // namespace onehop::peer_check
