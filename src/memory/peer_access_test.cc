// SPDX-License-Identifier: Apache-2.0
#include "onehop/peer_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "driver/cuda_driver.h"
#include "support/errors.h"

namespace onehop {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr int kDevices = 3;

/// Records the calls of the fake driver and sets its results. Contexts are device numbers + 1.
struct Machine {
  std::map<std::pair<int, int>, int> asked;
  std::map<std::pair<int, int>, int> enabled;
  std::map<std::pair<int, int>, bool> possible;
  CUresult ask_result = CUDA_SUCCESS;
  CUresult enable_result = CUDA_SUCCESS;
  CUresult disable_result = CUDA_SUCCESS;
  int disable_calls = 0;
  CUcontext current = nullptr;
  std::vector<std::pair<CUmemoryPool, CUmemAccessDesc>> grants;
};
Machine* g_machine = nullptr;

int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
}
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
}
CUmemoryPool pool_of(int device) {
  return reinterpret_cast<CUmemoryPool>(static_cast<std::intptr_t>(device) + 0x100);
}

int is_possible(int device, int peer) {
  const auto entry = g_machine->possible.find({device, peer});
  return entry == g_machine->possible.end() || entry->second ? 1 : 0;
}

CudaDriver fake_driver() {
  CudaDriver fake;
  fake.DeviceGetCount = [](int* count) {
    *count = kDevices;
    return CUDA_SUCCESS;
  };
  fake.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  fake.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
  };
  fake.CtxGetCurrent = [](CUcontext* context) {
    *context = g_machine->current;
    return CUDA_SUCCESS;
  };
  fake.CtxSetCurrent = [](CUcontext context) {
    g_machine->current = context;
    return CUDA_SUCCESS;
  };
  fake.DeviceCanAccessPeer = [](int* answer, CUdevice device, CUdevice peer) {
    ++g_machine->asked[{device, peer}];
    if (g_machine->ask_result != CUDA_SUCCESS) return g_machine->ask_result;
    *answer = is_possible(device, peer);
    return CUDA_SUCCESS;
  };
  fake.CtxEnablePeerAccess = [](CUcontext peer, unsigned flags) {
    EXPECT_EQ(flags, 0u);
    if (g_machine->enable_result != CUDA_SUCCESS) return g_machine->enable_result;
    return ++g_machine->enabled[{device_of(g_machine->current), device_of(peer)}] == 1
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  };
  fake.CtxDisablePeerAccess = [](CUcontext peer) {
    ++g_machine->disable_calls;
    if (g_machine->disable_result != CUDA_SUCCESS) return g_machine->disable_result;
    const bool was = g_machine->enabled.erase({device_of(g_machine->current), device_of(peer)}) != 0;
    return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  };
  fake.DeviceGetMemPool = [](CUmemoryPool* pool, CUdevice device) {
    *pool = pool_of(device);
    return CUDA_SUCCESS;
  };
  fake.MemPoolSetAccess = [](CUmemoryPool pool, const CUmemAccessDesc* grant, std::size_t count) {
    EXPECT_EQ(count, 1u);
    g_machine->grants.emplace_back(pool, *grant);
    return CUDA_SUCCESS;
  };
  fake.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                  CUdevice peer) {
    if (device == peer) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 10 * device + peer;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = is_possible(device, peer);
        break;
      default:
        *value = 1;
    }
    return CUDA_SUCCESS;
  };
  return fake;
}

class PeerAccessTest : public ::testing::Test {
 protected:
  PeerAccessTest() { g_machine = &machine_; }
  ~PeerAccessTest() override { g_machine = nullptr; }

  Machine machine_;
  CudaDriver fake_ = fake_driver();
  ScopedCudaDriver scope_{&fake_};
  PeerAccess access_{kDevices};
};

constexpr DeviceId kZero{0};
constexpr DeviceId kOne{1};
constexpr DeviceId kTwo{2};

TEST_F(PeerAccessTest, AsksOnceAndEnablesOnce) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(access_.can_access(kZero, kTwo));
  EXPECT_EQ(machine_.asked, (std::map<std::pair<int, int>, int>{{{0, 2}, 1}}));
  EXPECT_EQ(machine_.enabled, (std::map<std::pair<int, int>, int>{{{0, 2}, 1}}));
  EXPECT_EQ(machine_.current, nullptr) << "the caller's context must be current again";
  EXPECT_TRUE(machine_.grants.empty()) << "pools are granted by a call of their own";
}

TEST_F(PeerAccessTest, HasADirection) {
  machine_.possible[{1, 0}] = false;
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  EXPECT_FALSE(access_.can_access(kOne, kZero));
  EXPECT_FALSE(access_.can_access(kOne, kZero));
  EXPECT_EQ((machine_.asked[{1, 0}]), 1) << "a no is remembered too";
  EXPECT_EQ(machine_.enabled, (std::map<std::pair<int, int>, int>{{{0, 1}, 1}}));
}

TEST_F(PeerAccessTest, ADeviceReachesItselfWithoutTheDriver) {
  EXPECT_TRUE(access_.can_access(kOne, kOne));
  EXPECT_TRUE(machine_.asked.empty());
  EXPECT_TRUE(machine_.enabled.empty());
}

TEST_F(PeerAccessTest, EnabledByOthersIsSuccess) {
  machine_.enabled[{0, 1}] = 1;  // the fake returns ALREADY_ENABLED from now on
  EXPECT_TRUE(access_.can_access(kZero, kOne));
}

TEST_F(PeerAccessTest, ANumberOfDevicesThatNoMachineHasIsRefused) {
  for (const int count : {-1, 1025, 1 << 30}) {
    EXPECT_EQ(error_of([&] { const PeerAccess access(count); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { access_.reset(count); }).code(), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(access_.device_count(), kDevices) << "nothing was changed";
}

TEST_F(PeerAccessTest, ChecksBothDevicesBeforeAnythingElse) {
  for (const int bad : {-1, kDevices, 1000}) {
    for (const auto& [device, peer] : {std::pair(DeviceId{bad}, kZero), std::pair(kZero, DeviceId{bad}),
                                       std::pair(DeviceId{bad}, DeviceId{bad})}) {
      const auto calls = {std::function<void()>([&] { (void)access_.can_access(device, peer); }),
                          std::function<void()>([&] { access_.grant_pool_access(device, peer); }),
                          std::function<void()>([&] { access_.disable(device, peer); }),
                          std::function<void()>([&] { (void)access_.pair_attributes(device, peer); })};
      for (const auto& call : calls) {
        const Error error = error_of(call);
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error.message(), HasSubstr("device " + std::to_string(bad)));
        EXPECT_THAT(error.message(), HasSubstr("there are 3"));
      }
    }
  }
  EXPECT_TRUE(machine_.asked.empty());
}

TEST_F(PeerAccessTest, TooManyPeersIsAClearErrorAndNotRemembered) {
  machine_.enable_result = CUDA_ERROR_TOO_MANY_PEERS;
  const Error error = error_of([&] { (void)access_.can_access(kZero, kTwo); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_resources);
  EXPECT_THAT(error.message(), HasSubstr("device 0 cannot be given access to device 2"));
  EXPECT_THAT(error.message(), HasSubstr("at most 8 peers"));
  machine_.enable_result = CUDA_SUCCESS;  // another peer has been disabled
  EXPECT_TRUE(access_.can_access(kZero, kTwo));
}

TEST_F(PeerAccessTest, AYesThatTheDriverTakesBackIsANo) {
  machine_.enable_result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  EXPECT_FALSE(access_.can_access(kZero, kOne));
  machine_.enable_result = CUDA_SUCCESS;
  EXPECT_FALSE(access_.can_access(kZero, kOne)) << "remembered";
}

TEST_F(PeerAccessTest, OtherFailuresNameThePairAndTheCall) {
  machine_.enable_result = CUDA_ERROR_INVALID_CONTEXT;
  const Error error = error_of([&] { (void)access_.can_access(kZero, kOne); });
  EXPECT_EQ(error.code(), ErrorCode::driver);
  EXPECT_THAT(error.message(), HasSubstr("giving device 0 access to device 1 (cuCtxEnablePeerAccess)"));
}

TEST_F(PeerAccessTest, AQuestionThatFailsIsAnErrorAndNotAnAnswer) {
  machine_.ask_result = CUDA_ERROR_DEINITIALIZED;
  for (const auto& call : {std::function<void()>([&] { (void)access_.can_access(kZero, kOne); }),
                           std::function<void()>([&] { access_.grant_pool_access(kOne, kZero); })}) {
    const Error error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::driver);
    EXPECT_THAT(error.message(), HasSubstr("cuDeviceCanAccessPeer"));
  }
  EXPECT_TRUE(machine_.enabled.empty());
  machine_.ask_result = CUDA_SUCCESS;
  EXPECT_TRUE(access_.can_access(kZero, kOne)) << "asked again";
  EXPECT_EQ((machine_.asked[{0, 1}]), 3);
}

TEST_F(PeerAccessTest, WhatWasEnabledCanBeTakenBackAndEnabledAgain) {
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  EXPECT_TRUE(access_.can_access(kOne, kZero));
  access_.disable(kZero, kOne);
  EXPECT_EQ(machine_.enabled, (std::map<std::pair<int, int>, int>{{{1, 0}, 1}})) << "it has a direction";
  EXPECT_EQ(machine_.current, nullptr) << "the caller's context must be current again";
  access_.disable(kZero, kOne);
  EXPECT_EQ(machine_.disable_calls, 1) << "there is nothing left to take back";
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  EXPECT_EQ((machine_.enabled[{0, 1}]), 1);
  EXPECT_EQ((machine_.asked[{0, 1}]), 1) << "that it is possible is still known";
}

TEST_F(PeerAccessTest, DisablingLeavesAloneWhatWasNotEnabledHere) {
  machine_.enabled[{0, 1}] = 1;  // by another library
  access_.disable(kZero, kOne);
  machine_.possible[{0, 2}] = false;
  EXPECT_FALSE(access_.can_access(kZero, kTwo));
  access_.disable(kZero, kTwo);
  EXPECT_FALSE(access_.can_access(kZero, kTwo)) << "a no stays a no";
  EXPECT_EQ(machine_.disable_calls, 0);
}

TEST_F(PeerAccessTest, DisablingWhatOthersDisabledIsSuccess) {
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  machine_.enabled.clear();
  access_.disable(kZero, kOne);
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  EXPECT_EQ((machine_.enabled[{0, 1}]), 1);
}

TEST_F(PeerAccessTest, DisablingThatFailsNamesThePairAndKeepsTheAccess) {
  EXPECT_EQ(error_of([&] { access_.disable(kOne, kOne); }).code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  machine_.disable_result = CUDA_ERROR_INVALID_CONTEXT;
  const Error error = error_of([&] { access_.disable(kZero, kOne); });
  EXPECT_EQ(error.code(), ErrorCode::driver);
  EXPECT_THAT(error.message(),
              HasSubstr("taking back device 0's access to device 1 (cuCtxDisablePeerAccess)"));
  fake_.CtxDisablePeerAccess = nullptr;
  const Error missing = error_of([&] { access_.disable(kZero, kOne); });
  EXPECT_EQ(missing.code(), ErrorCode::unsupported);
  EXPECT_THAT(missing.message(), HasSubstr("this driver has no cuCtxDisablePeerAccess"));
  EXPECT_TRUE(access_.can_access(kZero, kOne));
}

TEST_F(PeerAccessTest, ResetForgetsAndSetsTheCount) {
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  access_.reset(2);
  EXPECT_EQ(access_.device_count(), 2);
  EXPECT_TRUE(access_.can_access(kZero, kOne));
  EXPECT_EQ((machine_.asked[{0, 1}]), 2);
  EXPECT_EQ(error_of([&] { (void)access_.can_access(kZero, kTwo); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { access_.reset(-1); }).code(), ErrorCode::invalid_argument);
}

TEST_F(PeerAccessTest, ManyThreadsAskTheDriverOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int peer = 0; peer < kDevices; ++peer) EXPECT_TRUE(access_.can_access(kOne, DeviceId{peer}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(machine_.asked, (std::map<std::pair<int, int>, int>{{{1, 0}, 1}, {{1, 2}, 1}}));
  EXPECT_EQ(machine_.enabled, (std::map<std::pair<int, int>, int>{{{1, 0}, 1}, {{1, 2}, 1}}));
}

TEST_F(PeerAccessTest, GrantsThePeerTheCurrentPoolOfTheOwner) {
  access_.grant_pool_access(kTwo, kZero);
  ASSERT_EQ(machine_.grants.size(), 1u);
  EXPECT_EQ(machine_.grants[0].first, pool_of(2));
  EXPECT_EQ(machine_.grants[0].second.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(machine_.grants[0].second.location.id, 0);
  EXPECT_EQ(machine_.grants[0].second.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(machine_.asked, (std::map<std::pair<int, int>, int>{{{0, 2}, 1}}))
      << "the peer reaches the owner";
  EXPECT_TRUE(machine_.enabled.empty()) << "pools have grants of their own";
  EXPECT_TRUE(access_.can_access(kZero, kTwo));
  EXPECT_EQ((machine_.enabled[{0, 2}]), 1) << "a grant does not count as enabled";
}

TEST_F(PeerAccessTest, GrantsAPoolThatIsNamed) {
  access_.grant_pool_access(static_cast<void*>(pool_of(7)), kOne);
  ASSERT_EQ(machine_.grants.size(), 1u);
  EXPECT_EQ(machine_.grants[0].first, pool_of(7));
  EXPECT_EQ(error_of([&] { access_.grant_pool_access(nullptr, kOne); }).code(), ErrorCode::invalid_argument);
}

TEST_F(PeerAccessTest, APoolCannotBeGrantedToWhoCannotReachIt) {
  machine_.possible[{0, 1}] = false;
  const Error error = error_of([&] { access_.grant_pool_access(kOne, kZero); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), HasSubstr("device 0 cannot be given access to the memory pool of device 1"));
  access_.grant_pool_access(kOne, kOne);  // has it
  EXPECT_TRUE(machine_.grants.empty());
}

TEST_F(PeerAccessTest, TellsTheAttributesOfAPair) {
  EXPECT_EQ(access_.pair_attributes(kOne, kTwo),
            (PairAttributes{
                .access = true, .performance_rank = 12, .native_atomics = false, .array_access = true}));
  machine_.possible[{2, 1}] = false;
  EXPECT_FALSE(access_.pair_attributes(kTwo, kOne).access);
  EXPECT_TRUE(access_.pair_attributes(kOne, kTwo).access) << "it has a direction";
  EXPECT_EQ(
      access_.pair_attributes(kOne, kOne),
      (PairAttributes{.access = true, .performance_rank = 0, .native_atomics = true, .array_access = true}));
  EXPECT_TRUE(machine_.enabled.empty());
}

TEST_F(PeerAccessTest, TheProcessHasOneOverAllItsDevices) {
  PeerAccess& ours = PeerAccess::of_process();
  EXPECT_EQ(&ours, &PeerAccess::of_process());
  EXPECT_EQ(ours.device_count(), kDevices);
  EXPECT_TRUE(ours.can_access(kZero, kTwo));
}

TEST(PeerAccessWithoutGpus, SaysWhyThereAreNone) {
  const ScopedCudaDriver none(nullptr, "no NVIDIA driver on this machine: libcuda.so.1 not found");
  PeerAccess access(2);
  for (const auto& call : {std::function<void()>([&] { (void)access.can_access(kZero, kOne); }),
                           std::function<void()>([&] { access.grant_pool_access(kZero, kOne); }),
                           std::function<void()>([&] { (void)access.pair_attributes(kZero, kOne); })}) {
    const Error error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr("libcuda.so.1 not found"));
  }
}

}  // namespace
}  // namespace onehop
