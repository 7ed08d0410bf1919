// SPDX-License-Identifier: Apache-2.0
// The peer check on a simulated machine in host memory. Its links can be broken in the ways in which real
// ones fail.
#include "onehop/peer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/peer_check_testing.h"
#include "os/private_dir.h"

namespace onehop {
namespace {

using namespace peer_check;
using namespace peer_check_testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 64 * kUnitBytes + 4096;

class PeerCheckTest : public ::testing::Test {
 protected:
  PeerCheckTest() {
    g_machine = &machine_;
    drive_machine(fake_);
    PeerAccess::of_process().reset(kDevices);
    options_.bytes = kBytes;
    options_.repetitions = 3;
  }
  ~PeerCheckTest() override {
    if (!machine_.hanging) {
      EXPECT_TRUE(machine_.memory.empty());
      EXPECT_TRUE(machine_.pinned.empty());
      EXPECT_EQ(machine_.streams, 0);
      EXPECT_EQ(machine_.events, 0);
    }
    EXPECT_EQ(machine_.current, nullptr) << "the caller's context must be current again";
    for (const auto& [address, block] : machine_.memory) ::free(reinterpret_cast<void*>(address));
    for (void* const address : machine_.pinned) ::free(address);
    g_machine = nullptr;
  }

  [[nodiscard]] static const PairReport& find(const std::vector<PairReport>& reports, int from, int to) {
    return *std::find_if(reports.begin(), reports.end(), [&](const PairReport& report) {
      return report.from.value == from && report.to.value == to;
    });
  }

  Machine machine_;
  CudaDriver fake_;
  ScopedCudaDriver scope_{&fake_};
  PeerCheckOptions options_;
};

std::vector<PeerOutcome> outcomes(const PairReport& report) {
  std::vector<PeerOutcome> all;
  for (const PeerTestResult& result : report.tests) all.push_back(result.outcome);
  return all;
}

constexpr PeerOutcome kPassed = PeerOutcome::passed;
constexpr PeerOutcome kFailed = PeerOutcome::failed;
constexpr PeerOutcome kNotRun = PeerOutcome::not_run;

TEST_F(PeerCheckTest, AHealthyMachinePassesAndIsMeasured) {
  const std::vector<PairReport> reports = check_peers(options_);
  ASSERT_EQ(reports.size(), 6u);
  std::vector<std::pair<int, int>> pairs;
  for (const PairReport& report : reports) {
    pairs.emplace_back(report.from.value, report.to.value);
    EXPECT_TRUE(report.ok()) << report.failure();
    EXPECT_TRUE(report.attributes.access);
    const double gbps = kBytes / 0.5e6;
    EXPECT_DOUBLE_EQ(report.store_gbps.value_or(0), gbps);
    EXPECT_DOUBLE_EQ(report.load_gbps.value_or(0), gbps);
    EXPECT_DOUBLE_EQ(report.copy_gbps.value_or(0), gbps);
    EXPECT_DOUBLE_EQ(report.latency_ns.value_or(0), 1000) << "half a round trip";
  }
  EXPECT_EQ(pairs, (std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}));
}

TEST_F(PeerCheckTest, ChecksTheDevicesItIsGivenAndMeasuresOnDemand) {
  options_.devices = {DeviceId{2}, DeviceId{0}};
  options_.measure_bandwidth = false;
  const std::vector<PairReport> reports = check_peers(options_);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].from, DeviceId{0});
  EXPECT_EQ(reports[0].to, DeviceId{2});
  EXPECT_TRUE(reports[0].ok());
  EXPECT_FALSE(reports[0].store_gbps.has_value());
  EXPECT_TRUE(reports[0].latency_ns.has_value());
}

TEST_F(PeerCheckTest, AWordSpoiltOnTheWayIsFoundWithItsPlaceAndTheRestGoesOn) {
  for (const auto& [kernel, test] : {std::pair("store", PeerTest::store), std::pair("load", PeerTest::load),
                                     std::pair("copy", PeerTest::copy)}) {
    const std::string spoilt = kernel;
    machine_.after = [&](const char* name, int device, std::byte* target) {
      // Stores from device 1 reach its own memory: the fault affects only data that crosses the link from 1
      // to 2.
      const int owner = machine_.device_of(target);
      if (name == spoilt && device == 1 && owner == (spoilt == "load" ? 1 : 2)) target[4100] ^= std::byte{1};
    };
    options_.measure_bandwidth = false;
    const std::vector<PairReport> reports = check_peers(options_);
    const PairReport& bad = find(reports, 1, 2);
    const PeerTestResult& result = bad.tests[static_cast<std::size_t>(test)];
    EXPECT_EQ(result.outcome, kFailed);
    EXPECT_EQ(result.detail, "1 of 320 words of 16 bytes is wrong, the first at byte 4096") << kernel;
    const std::vector<PeerOutcome> all = outcomes(bad);
    EXPECT_EQ(std::count(all.begin(), all.end(), kPassed), kPeerTestCount - 1);
    EXPECT_TRUE(find(reports, 2, 1).ok()) << find(reports, 2, 1).failure();
    EXPECT_TRUE(find(reports, 0, 2).ok());
  }
}

TEST_F(PeerCheckTest, WhatIsSpoiltOnlyUnderLoadIsFoundToo) {
  int stores = 0;
  machine_.after = [&](const char* name, int device, std::byte* target) {
    if (std::strcmp(name, "store") != 0 || device != 0 || machine_.device_of(target) != 1) return;
    if (++stores == 5) target[0] ^= std::byte{0x80};  // the last of 1 + 1 + 3
  };
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_EQ(find(reports, 0, 1).tests[0].outcome, kFailed);
  EXPECT_EQ(stores, 5);
}

TEST_F(PeerCheckTest, StoresThatAreLostAreAllWrong) {
  machine_.after = [&](const char* name, int device, std::byte* target) {
    if (std::strcmp(name, "copy") == 0 && device == 0) std::memset(target, 0xa5, kBytes);
  };
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_EQ(find(reports, 0, 2).tests[2].detail,
            "320 of 320 words of 16 bytes are wrong, the first at byte 0");
  EXPECT_TRUE(find(reports, 1, 2).ok());
}

TEST_F(PeerCheckTest, LostAdditionsFailTheAtomicsOfThatPairAlone) {
  machine_.after = [&](const char* name, int device, std::byte* target) {
    if (std::strcmp(name, "atomics") == 0 && device == 2 && machine_.device_of(target) == 0)
      target[0] ^= std::byte{1};
  };
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_THAT(outcomes(find(reports, 2, 0)),
              ElementsAre(kPassed, kPassed, kPassed, kFailed, kFailed, kPassed));
  EXPECT_THAT(find(reports, 2, 0).failure(), HasSubstr("atomics failed: counter 0 of 64 bits"));
  EXPECT_TRUE(find(reports, 0, 2).ok());
}

TEST_F(PeerCheckTest, AtomicsThatAreNotOfferedAreNoFailure) {
  machine_.native_atomics = false;
  for (const PairReport& report : check_peers(options_)) {
    EXPECT_TRUE(report.ok());
    EXPECT_THAT(outcomes(report),
                ElementsAre(kPassed, kPassed, kPassed, PeerOutcome::skipped, PeerOutcome::skipped, kPassed));
  }
}

TEST_F(PeerCheckTest, FlagsThatDoNotArriveSayHowManyDid) {
  machine_.flags_arrive = false;
  options_.measure_bandwidth = false;
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_THAT(reports[0].failure(), HasSubstr("flag failed: of 1016 flags, GPU 1 saw 5 and GPU 0 saw 5"));
  EXPECT_FALSE(reports[0].latency_ns.has_value());
}

TEST_F(PeerCheckTest, WithoutAccessAPairIsNotTriedAndNotOk) {
  machine_.no_access = {{0, 1}};
  const std::vector<PairReport> reports = check_peers(options_);
  const PairReport& without = find(reports, 0, 1);
  EXPECT_FALSE(without.attributes.access);
  EXPECT_EQ(outcomes(without), std::vector<PeerOutcome>(kPeerTestCount, kNotRun));
  EXPECT_EQ(without.failure(), "GPU 0 -> GPU 1: the driver allows no peer access");
  // Data flows in the other direction, but the peer cannot answer.
  EXPECT_THAT(outcomes(find(reports, 1, 0)),
              ElementsAre(kPassed, kPassed, kPassed, kPassed, kPassed, kNotRun));
  EXPECT_THAT(find(reports, 1, 0).failure(), HasSubstr("GPU 0 cannot answer"));
  EXPECT_TRUE(find(reports, 0, 2).ok());
}

TEST_F(PeerCheckTest, AHangIsReportedInTimeWithItsTestAndPairAndNothingIsFreed) {
  machine_.hangs_in = "onehop_peer_atomics";  // first launched on device 1 when both devices add to its words
  options_.timeout = Duration{2000};
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{20});
  ASSERT_EQ(reports.size(), 6u);
  EXPECT_THAT(outcomes(reports[0]),
              ElementsAre(kPassed, kPassed, kPassed, kPassed, PeerOutcome::hung, kNotRun));
  EXPECT_EQ(
      reports[0].failure(),
      "GPU 0 -> GPU 1: shared-atomics hung: GPU 1 was not done when the 2000 ms for the whole check were "
      "over");
  EXPECT_EQ(outcomes(reports[5]), std::vector<PeerOutcome>(kPeerTestCount, kNotRun));
  EXPECT_EQ(reports[5].failure(),
            "GPU 2 -> GPU 1: store was not tested: after shared-atomics from GPU 0 to GPU 1 hung nothing "
            "more was run");
  EXPECT_FALSE(machine_.memory.empty());
}

TEST_F(PeerCheckTest, AnErrorOfTheDriverEndsTheCheckWithItsText) {
  machine_.faults_in = "onehop_peer_load";
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_TRUE(find(reports, 0, 1).ok()) << find(reports, 0, 1).failure();
  const PairReport& bad = find(reports, 1, 0);
  EXPECT_THAT(outcomes(bad), ElementsAre(kPassed, kFailed, kNotRun, kNotRun, kNotRun, kNotRun));
  EXPECT_THAT(bad.tests[1].detail, AllOf(HasSubstr("GPU 1 stopped"), HasSubstr("700")));
  EXPECT_THAT(bad.tests[2].detail, HasSubstr("after load from GPU 1 to GPU 0 failed nothing more was run"));
}

TEST_F(PeerCheckTest, TooLittleMemoryNamesTheDeviceAndTheSize) {
  options_.bytes = 2u << 20;
  try {
    (void)check_peers(options_);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_resources);
    EXPECT_THAT(error.message(), HasSubstr("allocating 2M bytes on device 0"));
  }
}

class PeersVerifiedTest : public PeerCheckTest {
 protected:
  PeersVerifiedTest() {
    machine_.largest_allocation = 8u << 20;
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
  }
  ~PeersVerifiedTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  /// The answer, and whether kernels ran to find it.
  std::pair<bool, bool> ask(std::initializer_list<int> numbers) {
    std::vector<DeviceId> devices;
    for (const int number : numbers) devices.emplace_back(number);
    const int before = machine_.kernels_run;
    const bool answer = peers_verified(devices);
    return {answer, machine_.kernels_run != before};
  }

  os::PrivateDir cache_ = os::PrivateDir::create("peers-verified-test");
};

TEST_F(PeersVerifiedTest, ChecksAPairOncePerBoot) {
  EXPECT_EQ(ask({0, 1}), std::pair(true, true));
  EXPECT_EQ(ask({1, 0, 0}), std::pair(true, false));
  EXPECT_EQ(ask({0, 1, 2}), std::pair(true, true)) << "a device is new";
  EXPECT_EQ(ask({1, 2}), std::pair(true, false)) << "part of what is known";
}

TEST_F(PeersVerifiedTest, RemembersFailuresUntilAPassingCheckIsKept) {
  machine_.after = [&](const char* name, int device, std::byte* target) {
    if (std::strcmp(name, "copy") == 0 && device == 1) target[0] ^= std::byte{1};
  };
  EXPECT_EQ(ask({0, 1}), std::pair(false, true));
  machine_.after = nullptr;
  EXPECT_EQ(ask({0, 1}), std::pair(false, false));
  EXPECT_TRUE(check_peers(options_)[0].ok());
  EXPECT_EQ(ask({0, 1}), std::pair(false, false)) << "a check that is not to be kept is not";
  options_.remember = true;
  (void)check_peers(options_);
  EXPECT_EQ(ask({0, 1, 2}), std::pair(true, false));
}

TEST_F(PeersVerifiedTest, PairsThatWereNeverReachedAreCheckedNextTime) {
  machine_.faults_in = "onehop_peer_load";
  EXPECT_EQ(ask({0, 1, 2}), std::pair(false, true));
  machine_.faults_in.clear();
  machine_.sticky = CUDA_SUCCESS;
  EXPECT_EQ(ask({0, 2}), std::pair(true, true)) << "2 to 0 was not run";
  EXPECT_EQ(ask({0, 1}), std::pair(false, false)) << "known to have failed";
}

TEST_F(PeersVerifiedTest, FewerThanTwoDevicesHaveNothingToVerify) {
  EXPECT_EQ(ask({}), std::pair(true, false));
  EXPECT_EQ(ask({1, 1}), std::pair(true, false));
  EXPECT_THROW((void)ask({1, kDevices}), Error);
}

TEST(PeerCheckWithoutGpus, SaysWhyThereAreNone) {
  const ScopedCudaDriver none(nullptr, "no NVIDIA driver on this machine: libcuda.so.1 not found");
  for (const auto& call : {std::function<void()>([] { (void)check_peers(); }),
                           std::function<void()>([] { (void)peers_verified({DeviceId{0}}); })}) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.message(), HasSubstr("libcuda.so.1 not found"));
    }
  }
}

}  // namespace
}  // namespace onehop
