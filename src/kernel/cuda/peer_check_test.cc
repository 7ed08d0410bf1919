// SPDX-License-Identifier: Apache-2.0
// The peer check over a machine made of host memory, whose links can be broken in the ways that real ones
// are.
#include "onehop/peer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "driver/cuda_driver.h"
#include "kernel/cuda/peer_check_params.h"
#include "os/private_dir.h"

namespace onehop {
namespace {

using namespace peer_check;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kDevices = 3;
constexpr std::size_t kBytes = 64 * kUnitBytes + 4096;

using Kernel = void (*)(int device, const void* parameter);

/// A machine. Streams and contexts are device numbers + 1; all work is done when it is queued.
struct Machine {
  CUcontext current = nullptr;
  std::map<CUdeviceptr, std::pair<int, std::size_t>> memory;  ///< address: device, size
  std::set<void*> pinned;
  int streams = 0;
  int events = 0;
  int kernels_run = 0;
  bool native_atomics = true;
  std::size_t largest_allocation = 1u << 20;

  // What is wrong with it.
  std::set<std::pair<int, int>> no_access;
  std::function<void(const char* kernel, int device, std::byte* target)> after;  ///< may spoil a result
  std::string hangs_in;                                                          ///< kernel, on device 1
  std::string faults_in;                                                         ///< kernel, on device 1
  bool hanging = false;
  CUresult sticky = CUDA_SUCCESS;
  PingParams waiting_ping{};  ///< of the side that was launched first
  bool flags_arrive = true;

  [[nodiscard]] int device_of(const void* address) const {
    auto next = memory.upper_bound(reinterpret_cast<CUdeviceptr>(address));
    return next == memory.begin() ? -1 : std::prev(next)->second.first;
  }
};
Machine* g_machine = nullptr;

int current_device() {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(g_machine->current)) - 1;
}

std::uint64_t expected(std::uint64_t key, std::uint64_t word) {
  return (key ^ word) * 0x9e3779b97f4a7c15ull;
}

void run_store(int, const void* parameter) {
  const auto& p = *static_cast<const StoreParams*>(parameter);
  auto* const words = static_cast<std::uint64_t*>(p.to);
  for (std::uint64_t i = 0; i < 2 * p.units; ++i) words[i] = expected(p.key, i);
  if (g_machine->after) g_machine->after("store", current_device(), static_cast<std::byte*>(p.to));
}

void run_load(int, const void* parameter) {
  const auto& p = *static_cast<const LoadParams*>(parameter);
  std::memcpy(p.to, p.from, p.units * kUnitBytes);
  if (g_machine->after) g_machine->after("load", current_device(), static_cast<std::byte*>(p.to));
}

void run_verify(int device, const void* parameter) {
  const auto& p = *static_cast<const VerifyParams*>(parameter);
  EXPECT_EQ(g_machine->device_of(p.data), device) << "data is verified where it lies";
  EXPECT_EQ(g_machine->device_of(p.verdict), device);
  const auto* const words = static_cast<const std::uint64_t*>(p.data);
  for (std::uint64_t unit = 0; unit < p.units; ++unit) {
    if (words[2 * unit] == expected(p.key, 2 * unit) &&
        words[2 * unit + 1] == expected(p.key, 2 * unit + 1)) {
      continue;
    }
    ++p.verdict->wrong;
    p.verdict->from_end = std::max(p.verdict->from_end, p.units - unit);
  }
}

void run_atomics(int device, const void* parameter) {
  const auto& p = *static_cast<const AtomicsParams*>(parameter);
  for (unsigned thread = 0; thread < kAtomicBlocks * kAtomicBlock; ++thread) {
    for (unsigned round = 0; round < kAtomicRounds; ++round) {
      const unsigned counter = (thread + round) % kCounters;
      p.counters32[counter] += counter + 1;
      *p.ticket_sum += p.counters64[counter]++;
    }
  }
  if (g_machine->after) g_machine->after("atomics", device, reinterpret_cast<std::byte*>(p.counters64));
}

void run_ping(int, const void* parameter) {
  const auto& p = *static_cast<const PingParams*>(parameter);
  if (p.starts == 0) {
    g_machine->waiting_ping = p;
    return;
  }
  const PingParams& other = g_machine->waiting_ping;
  EXPECT_EQ(p.theirs, other.mine);
  EXPECT_EQ(p.mine, other.theirs);
  EXPECT_NE(p.result, other.result);
  EXPECT_GT(p.limit_ns, 0u);
  for (const PingParams* side : {&p, &other}) {
    side->result->gave_up = g_machine->flags_arrive ? 0 : 1;
    side->result->rounds_done = g_machine->flags_arrive ? p.warmup + p.rounds : 5;
    side->result->elapsed_ns = 2000ull * p.rounds;
  }
}

struct NamedKernel {
  const char* name;
  Kernel run;
};
NamedKernel g_kernels[] = {{"onehop_peer_store", run_store},
                           {"onehop_peer_load", run_load},
                           {"onehop_peer_verify", run_verify},
                           {"onehop_peer_atomics", run_atomics},
                           {"onehop_peer_ping", run_ping}};

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  if (bytes > g_machine->largest_allocation) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const block = ::aligned_alloc(128, (bytes + 127) / 128 * 128);
  std::memset(block, 0x11, bytes);
  *address = reinterpret_cast<CUdeviceptr>(block);
  g_machine->memory[*address] = {current_device(), bytes};
  return CUDA_SUCCESS;
}

void add_devices(CudaDriver& fake) {
  fake.DriverGetVersion = [](int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  fake.DeviceGetCount = [](int* count) {
    *count = kDevices;
    return CUDA_SUCCESS;
  };
  fake.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  fake.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, device, sizeof uuid->bytes);
    return CUDA_SUCCESS;
  };
  fake.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    EXPECT_EQ(attribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    *value = 132;
    return CUDA_SUCCESS;
  };
  fake.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
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
    *answer = g_machine->no_access.count({device, peer}) == 0 ? 1 : 0;
    return CUDA_SUCCESS;
  };
  fake.CtxEnablePeerAccess = [](CUcontext, unsigned) { return CUDA_SUCCESS; };
  fake.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute attribute, CUdevice, CUdevice) {
    const bool atomics = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    *value = atomics && !g_machine->native_atomics ? 0 : 1;
    return CUDA_SUCCESS;
  };
}

void add_memory(CudaDriver& fake) {
  fake.MemAlloc = allocate;
  fake.MemFree = [](CUdeviceptr address) {
    EXPECT_FALSE(g_machine->hanging) << "freeing waits for ever";
    EXPECT_EQ(g_machine->memory.erase(address), 1u);
    ::free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
  };
  fake.MemHostAlloc = [](void** address, std::size_t bytes, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
    *address = ::aligned_alloc(128, (bytes + 127) / 128 * 128);
    g_machine->pinned.insert(*address);
    return CUDA_SUCCESS;
  };
  fake.MemFreeHost = [](void* address) {
    EXPECT_EQ(g_machine->pinned.erase(address), 1u);
    ::free(address);
    return CUDA_SUCCESS;
  };
  fake.MemsetD8Async = [](CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream) {
    EXPECT_EQ(g_machine->device_of(reinterpret_cast<void*>(address)), current_device());
    std::memset(reinterpret_cast<void*>(address), value, bytes);
    return g_machine->sticky;
  };
  fake.MemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
    return g_machine->sticky;
  };
  fake.MemcpyPeerAsync = [](CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes,
                            CUstream) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    if (g_machine->after) g_machine->after("copy", current_device(), reinterpret_cast<std::byte*>(to));
    return g_machine->sticky;
  };
}

void add_streams(CudaDriver& fake) {
  fake.StreamCreate = [](CUstream* stream, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    *stream = reinterpret_cast<CUstream>(g_machine->current);
    ++g_machine->streams;
    return CUDA_SUCCESS;
  };
  fake.StreamDestroy = [](CUstream) {
    --g_machine->streams;
    return CUDA_SUCCESS;
  };
  fake.StreamQuery = [](CUstream stream) {
    const bool hangs = g_machine->hanging && reinterpret_cast<std::intptr_t>(stream) == 2;
    return hangs ? CUDA_ERROR_NOT_READY : g_machine->sticky;
  };
  fake.EventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(static_cast<std::intptr_t>(++g_machine->events));
    return CUDA_SUCCESS;
  };
  fake.EventDestroy = [](CUevent) {
    --g_machine->events;
    return CUDA_SUCCESS;
  };
  fake.EventRecord = [](CUevent, CUstream stream) {
    EXPECT_EQ(reinterpret_cast<void*>(stream), reinterpret_cast<void*>(g_machine->current));
    return CUDA_SUCCESS;
  };
  fake.EventElapsedTime = [](float* milliseconds, CUevent first, CUevent second) {
    EXPECT_EQ(reinterpret_cast<std::intptr_t>(second) - reinterpret_cast<std::intptr_t>(first), 1);
    *milliseconds = 0.5F;
    return CUDA_SUCCESS;
  };
}

void add_kernels(CudaDriver& fake) {
  fake.LibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                            CUlibraryOption*, void**, unsigned) {
    *library = reinterpret_cast<CUlibrary>(std::intptr_t{1});
    return CUDA_SUCCESS;
  };
  fake.LibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char* name) {
    for (NamedKernel& known : g_kernels) {
      if (std::strcmp(known.name, name) == 0) {
        *kernel = reinterpret_cast<CUkernel>(&known);
        return CUDA_SUCCESS;
      }
    }
    return CUDA_ERROR_NOT_FOUND;
  };
  fake.KernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  };
  fake.LaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    const auto& kernel = *reinterpret_cast<const NamedKernel*>(function);
    const int device = current_device();
    EXPECT_EQ(reinterpret_cast<void*>(config->hStream), reinterpret_cast<void*>(g_machine->current));
    ++g_machine->kernels_run;
    if (device == 1 && g_machine->hangs_in == kernel.name) {
      g_machine->hanging = true;
      return CUDA_SUCCESS;
    }
    if (device == 1 && g_machine->faults_in == kernel.name) g_machine->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    kernel.run(device, parameters[0]);
    return CUDA_SUCCESS;
  };
}

class PeerCheckTest : public ::testing::Test {
 protected:
  PeerCheckTest() {
    g_machine = &machine_;
    add_devices(fake_);
    add_memory(fake_);
    add_streams(fake_);
    add_kernels(fake_);
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
      // Stores from device 1 reach its own memory: only what crosses the link from 1 to 2 is spoilt.
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
  // Data goes the other way, but nobody can answer.
  EXPECT_THAT(outcomes(find(reports, 1, 0)),
              ElementsAre(kPassed, kPassed, kPassed, kPassed, kPassed, kNotRun));
  EXPECT_THAT(find(reports, 1, 0).failure(), HasSubstr("GPU 0 cannot answer"));
  EXPECT_TRUE(find(reports, 0, 2).ok());
}

TEST_F(PeerCheckTest, AHangIsReportedInTimeWithItsTestAndPairAndNothingIsFreed) {
  machine_.hangs_in = "onehop_peer_atomics";  // first launched on device 1 when both add to its words
  options_.timeout = Duration{300};
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<PairReport> reports = check_peers(options_);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{20});
  ASSERT_EQ(reports.size(), 6u);
  EXPECT_THAT(outcomes(reports[0]),
              ElementsAre(kPassed, kPassed, kPassed, kPassed, PeerOutcome::hung, kNotRun));
  EXPECT_EQ(
      reports[0].failure(),
      "GPU 0 -> GPU 1: shared-atomics hung: GPU 1 was not done when the 300 ms for the whole check were "
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

  /// The answer, and whether kernels ran for it.
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
