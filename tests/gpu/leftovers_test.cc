// SPDX-License-Identifier: Apache-2.0
// A thousand groups on GPUs, one after another, leak nothing. A process may exit before its groups end.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_leftovers_test {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// Runs 1000 cycles (of a group that joins, allocates, reduces and leaves), or as many as take 20 seconds.
/// Compares what this process holds before and after.
void expect_no_growth(const char* what, const Gpu& gpu, const std::function<void()>& cycle) {
  constexpr int kWarm = 10;
  constexpr double kHeavyMs = 20;
  for (int i = 0; i < kWarm; ++i) cycle();
  const auto probe = Clock::now();
  for (int i = 0; i < kWarm; ++i) cycle();
  const double each_ms = std::chrono::duration<double, std::milli>(Clock::now() - probe).count() / kWarm;
  const int cycles = each_ms <= kHeavyMs ? 1000 : std::max(50, static_cast<int>(1000 * kHeavyMs / each_ms));

  const std::size_t free = gpu.free_bytes();
  const Footprint before = footprint();
  for (int i = 0; i < cycles; ++i) cycle();
  const Footprint after = footprint();
  // One chunk of the driver's own, whatever the number of cycles.
  constexpr std::size_t kOwnChunk = std::size_t{4} << 20;
  // A peer that has not finished leaving keeps this rank's memory until it has.
  std::size_t left = gpu.free_bytes();
  for (const auto end = Clock::now() + seconds{5}; left + kOwnChunk < free && Clock::now() < end;)
    left = gpu.free_bytes();

  EXPECT_GE(left + kOwnChunk, free) << free - left << " bytes of device memory lost";
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 16);
  EXPECT_LE(after.address_space, before.address_space + (std::size_t{64} << 20));
  fmt::print(
      "{}: {} cycles of {:.2f} ms; device memory {:+} KiB, descriptors {:+}, threads {:+}, mappings {:+}, "
      "address space {:+} KiB\n",
      what, cycles, each_ms, (static_cast<std::int64_t>(free) - static_cast<std::int64_t>(left)) / 1024,
      after.descriptors - before.descriptors, after.threads - before.threads,
      after.mappings - before.mappings,
      (static_cast<std::int64_t>(after.address_space) - static_cast<std::int64_t>(before.address_space)) /
          1024);
}

/// Little memory, so that a thousand groups take seconds.
JoinOptions small_group() {
  JoinOptions options = on_gpus();
  options.scratch_bytes = 1 << 20;
  return options;
}

TEST(CudaLeftovers, AThousandGroupsOfThreadsLeaveNothing) {
  ONEHOP_NEED_GPUS(2);
  Gpu first(DeviceId{0});
  Gpu second(DeviceId{1});
  expect_no_growth("groups of 2 threads", first, [&] {
    std::vector<Group> groups = Group::join_local({first.device(), second.device()}, small_group());
    on_every_rank(groups, [&](Group& group) {
      const SymmetricBuffer buffer = group.allocate(1 << 20);
      Gpu& gpu = group.rank() == Rank{0} ? first : second;
      (void)all_reduce(group, buffer.local(), buffer.local(), 1000, DType::f32, ReduceOp::sum, gpu.stream());
      group.synchronize(gpu.stream());
    });
  });
}

TEST(CudaLeftovers, AThousandGroupsOfProcessesLeaveNothing) {
  ONEHOP_NEED_FORKED_GPUS(2);
  const TempDir dir;
  Processes processes(2, [&](Rank rank) {
    Gpu gpu(DeviceId{rank.value});
    const std::shared_ptr<Store> store = file_store(dir.path());
    JoinOptions options = small_group();
    options.rank = rank;
    options.size = 2;
    options.device = gpu.device();
    // Rank 0 counts; the other one goes on until it is told to stop.
    const auto cycle = [&](const char* word) {
      Group group = Group::join(store, options);
      const SymmetricBuffer buffer = group.allocate(1 << 20);
      (void)all_reduce(group, buffer.local(), buffer.local(), 1000, DType::f32, ReduceOp::sum, gpu.stream());
      group.synchronize(gpu.stream());
      return group.all_gather(word)[0];
    };
    if (rank == Rank{0}) {
      expect_no_growth("groups of 2 processes, as rank 0 sees them", gpu, [&] { (void)cycle("on"); });
      (void)cycle("stop");
    } else {
      while (cycle("") == "on") {
      }
    }
    return std::string();
  });
  for (const Exit& exit : processes.wait(seconds{110})) EXPECT_EQ(exit.code, 0) << exit.text;
}

// Their threads still look at what kernels report while CUDA shuts down. With memory of the driver the process crashed.
TEST(CudaLeftovers, AProcessMayExitBeforeItsGroupsEnd) {
  ONEHOP_NEED_FORKED_GPUS(2);
  Processes processes(3, [&](Rank) -> std::string {
    std::array gpus{Gpu(DeviceId{0}), Gpu(DeviceId{1})};
    auto& groups =
        *new std::vector<Group>(Group::join_local({gpus[0].device(), gpus[1].device()}, small_group()));
    on_every_rank(groups, [&](Group& group) {
      Gpu& gpu = gpus[static_cast<std::size_t>(group.rank().value)];
      const SymmetricBuffer buffer = group.allocate(1 << 20);
      (void)all_reduce(group, buffer.local(), buffer.local(), 1000, DType::f32, ReduceOp::sum, gpu.stream());
      group.synchronize(gpu.stream());
    });
    std::exit(0);
  });
  for (const Exit& exit : processes.wait(seconds{50})) EXPECT_EQ(exit.code, 0) << "signal " << exit.signal;
}

}  // namespace
}  // namespace onehop::testing::gpu_leftovers_test
