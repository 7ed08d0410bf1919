// SPDX-License-Identifier: Apache-2.0
// Peer access and the peer check on real GPUs. Every wait for a GPU has a deadline.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <memory>

#include "onehop/peer_access.h"
#include "onehop/peer_check.h"

#include "backend/cuda/peer_check_device.h"
#include "driver/device.h"
#include "os/private_dir.h"

namespace onehop {
namespace {

using peer_check::CheckDevice;
using peer_check::kUnitBytes;
using peer_check::Verdict;

constexpr Duration kTimeout = std::chrono::seconds{30};
constexpr DeviceId kFirst{0};
constexpr DeviceId kSecond{1};

class CudaPeers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (find_cuda_driver(&why) == nullptr) GTEST_SKIP() << "no GPU: " << why;
    if (cuda_device_count() < needed_) GTEST_SKIP() << "needs " << needed_ << " GPUs";
  }
  int needed_ = 2;
};

class OneCudaDevice : public CudaPeers {
 protected:
  OneCudaDevice() { needed_ = 1; }
};

void spoil(CUdeviceptr at) {
  const CurrentDevice current(kFirst);
  unsigned char byte = 0;
  check_cuda(cuda_driver().MemcpyDtoH(&byte, at, 1), "cuMemcpyDtoH");
  byte ^= 1u;
  check_cuda(cuda_driver().MemcpyHtoD(at, &byte, 1), "cuMemcpyHtoD");
  // A small copy may return before it has arrived, and the check's stream waits for no other.
  check_cuda(cuda_driver().CtxSynchronize(), "cuCtxSynchronize");
}

TEST_F(OneCudaDevice, VerificationFindsOneBitAnywhere) {
  // Whole tiles for every block, then a remainder that fills no tile.
  const std::size_t bytes = (std::size_t{5} << 20) + 37 * kUnitBytes;
  CheckDevice device(kFirst, bytes, 0);
  const Deadline deadline = Deadline::after(kTimeout);
  device.store(device.inbox(), 7);
  EXPECT_EQ(device.verify(device.inbox(), 7, deadline).wrong, 0u);
  EXPECT_EQ(device.verify(device.inbox(), 8, deadline).wrong, device.units()) << "other data is all wrong";
  for (const std::size_t at : {std::size_t{0}, std::size_t{15}, std::size_t{70001}, bytes / 2, bytes - 1}) {
    spoil(device.inbox() + at);
    const Verdict verdict = device.verify(device.inbox(), 7, deadline);
    EXPECT_EQ(verdict.wrong, 1u) << "byte " << at;
    EXPECT_EQ(device.units() - verdict.from_end, at / kUnitBytes) << "byte " << at;
    spoil(device.inbox() + at);  // restores the original byte
  }
  spoil(device.inbox() + 100 * kUnitBytes);
  spoil(device.inbox() + bytes - kUnitBytes);
  const Verdict verdict = device.verify(device.inbox(), 7, deadline);
  EXPECT_EQ(verdict.wrong, 2u);
  EXPECT_EQ(device.units() - verdict.from_end, 100u) << "the first of two";
}

TEST_F(OneCudaDevice, LoadingCopiesAllOfItAndNothingElse) {
  const std::size_t bytes = (std::size_t{3} << 20) + 5 * kUnitBytes;
  CheckDevice device(kFirst, bytes, 0);
  const Deadline deadline = Deadline::after(kTimeout);
  device.store(device.inbox(), 3);
  device.overwrite(device.outbox());
  EXPECT_EQ(device.verify(device.outbox(), 3, deadline).wrong, device.units());
  device.load(device.inbox(), device.outbox());
  EXPECT_EQ(device.verify(device.outbox(), 3, deadline).wrong, 0u);
}

TEST_F(OneCudaDevice, AFlagThatNobodyRaisesIsGivenUp) {
  CheckDevice device(kFirst, 4096, 0);
  device.clear_scratch();
  device.ping(device, false, 16, 100, 50'000'000);
  const peer_check::Scratch scratch = device.read_scratch(Deadline::after(kTimeout));
  EXPECT_EQ(scratch.ping.gave_up, 1u);
  EXPECT_EQ(scratch.ping.rounds_done, 0u);
}

TEST_F(CudaPeers, EveryPairIsVerified) {
  // A size that no grid divides, and one smaller than a tile.
  for (const std::size_t bytes : {(std::size_t{16} << 20) + 3 * kUnitBytes, std::size_t{48}}) {
    PeerCheckOptions options;
    options.bytes = bytes;
    options.measure_bandwidth = false;
    const std::vector<PairReport> reports = check_peers(options);
    const auto count = static_cast<std::size_t>(cuda_device_count());
    ASSERT_EQ(reports.size(), count * (count - 1));
    for (const PairReport& report : reports) {
      if (!report.attributes.access) continue;  // a machine without peer access
      EXPECT_TRUE(report.ok()) << report.failure();
      EXPECT_GT(report.latency_ns.value_or(0), 0);
    }
  }
}

TEST_F(CudaPeers, BandwidthIsMeasuredWhereThereIsAccess) {
  PeerCheckOptions options;
  options.devices = {kFirst, kSecond};
  options.bytes = 64u << 20;
  for (const PairReport& report : check_peers(options)) {
    if (!report.attributes.access) GTEST_SKIP() << report.failure();
    EXPECT_TRUE(report.ok()) << report.failure();
    EXPECT_GT(report.store_gbps.value_or(0), 0);
    EXPECT_GT(report.load_gbps.value_or(0), 0);
    EXPECT_GT(report.copy_gbps.value_or(0), 0);
  }
}

TEST_F(CudaPeers, AccessThatIsEnabledAlreadyIsSuccess) {
  PeerAccess first(cuda_device_count());
  PeerAccess second(cuda_device_count());
  const bool possible = first.can_access(kFirst, kSecond);
  EXPECT_EQ(second.can_access(kFirst, kSecond), possible) << "the driver has been told before";
  EXPECT_EQ(first.pair_attributes(kFirst, kSecond).access, possible);
  EXPECT_TRUE(first.can_access(kSecond, kSecond));
}

TEST_F(CudaPeers, MemoryOfAPoolIsReachedAfterAGrant) {
  PeerAccess& access = PeerAccess::of_process();
  if (!access.can_access(kSecond, kFirst)) GTEST_SKIP() << "no peer access";
  constexpr std::size_t kBytes = 4u << 20;
  CheckDevice owner(kFirst, kBytes, 0);
  CheckDevice peer(kSecond, kBytes, 0);
  const Deadline deadline = Deadline::after(kTimeout);
  access.grant_pool_access(kFirst, kSecond);

  ASSERT_EQ(cudaSetDevice(kFirst.value), cudaSuccess);
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, kBytes, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  owner.store(address, 11);
  owner.wait(deadline);
  peer.load(address, peer.outbox());
  EXPECT_EQ(peer.verify(peer.outbox(), 11, deadline).wrong, 0u);
  ASSERT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);

  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, kFirst.value), cudaSuccess);
  EXPECT_NO_THROW(access.grant_pool_access(pool, kSecond)) << "a pool that has been granted already";
}

TEST_F(CudaPeers, TheOutcomeIsKept) {
  if (!PeerAccess::of_process().can_access(kFirst, kSecond)) GTEST_SKIP() << "no peer access";
  const os::PrivateDir cache = os::PrivateDir::create("cuda-peer-test");
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1), 0);
  EXPECT_TRUE(peers_verified({kFirst, kSecond}));
  EXPECT_FALSE(std::filesystem::is_empty(cache.path() + "/onehop"));
  EXPECT_TRUE(peers_verified({kSecond, kFirst}));
  ASSERT_EQ(::unsetenv("XDG_CACHE_HOME"), 0);
}

}  // namespace
}  // namespace onehop
