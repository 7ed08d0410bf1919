// SPDX-License-Identifier: Apache-2.0
#include "memory/vmm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "driver/driver_testing.h"

namespace onehop {
namespace {

/// Counts the threads inside functions that change mappings, and records whether there was ever more than
/// one.
std::atomic<int> g_inside = 0;
std::atomic<bool> g_met = false;

class Inside {
 public:
  Inside() {
    if (g_inside.fetch_add(1) != 0) g_met = true;
    for (int i = 0; i < 20; ++i) std::this_thread::yield();  // gives other threads a chance to enter
  }
  ~Inside() { g_inside.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

TEST(Vmm, OneThreadAtATimeChangesMappings) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  FakeMachine machine;
  make_h200x4(machine);
  machine.failing.clear();
  // In a real driver contexts are per thread; the fake has one for all.
  machine.cuda.CtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  machine.cuda.MemMap = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                           unsigned long long) {
    const Inside inside;
    return CUDA_SUCCESS;
  };
  machine.cuda.MemUnmap = [](CUdeviceptr, std::size_t) {
    const Inside inside;
    return CUDA_SUCCESS;
  };
  machine.cuda.MemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
    const Inside inside;
    return CUDA_SUCCESS;
  };
  const ScopedMachine scope(machine);
  const vmm::Memory shared = vmm::Memory::create({.device = DeviceId{0}}, 1);

  std::vector<std::jthread> threads;
  for (int each = 0; each < kThreads; ++each) {
    threads.emplace_back([&shared, device = DeviceId{each}] {
      for (int round = 0; round < kRounds; ++round) {
        shared.grant(device);
        const vmm::Memory own = vmm::Memory::create({.device = device}, 1);
      }
    });
  }
  threads.clear();
  EXPECT_FALSE(g_met);
}

}  // namespace
}  // namespace onehop
