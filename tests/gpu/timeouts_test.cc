// SPDX-License-Identifier: Apache-2.0
// Deadlines on GPUs: the deadline of a call, which its kernels observe, and the group's, which limits how
// long freeing memory and leaving wait for a running kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "onehop/group.h"

#include "gpu/on_gpus.h"
#include "support/errors.h"

namespace onehop::testing::gpu_timeouts_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class CudaTimeouts : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaTimeouts,
                         ::testing::Values(GpuRanks{2, true}, GpuRanks{4, true}, GpuRanks{2, false},
                                           GpuRanks{4, false}),
                         gpu_ranks_name);

/// The error that the group has failed with; empty if it has not failed by `limit`.
std::optional<Error> await_failure(const Group& group, Clock::time_point limit) {
  while (Clock::now() < limit) {
    try {
      group.check();
    } catch (const Error& error) {
      return error;
    }
    std::this_thread::yield();
  }
  return std::nullopt;
}

TEST_P(CudaTimeouts, ACallsOwnTimeoutEndsItsWaitsOnTheDevice) {
  constexpr Duration kOfTheCall{300};
  constexpr std::size_t kSmall = 1000;
  constexpr std::size_t kLarge = 300'007;
  using Call = std::function<void(Group&, const Gpu&, std::uint32_t*, std::uint32_t*, const CallOptions&)>;
  const auto reduction = [](std::size_t count) -> Call {
    return [count](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
      (void)all_reduce(group, in, out, count, DType::u32, ReduceOp::sum, gpu.stream(), options);
    };
  };
  const std::vector<Call> calls = {
      reduction(kSmall),
      reduction(kLarge),
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        GroupCall scope;
        for (const std::size_t at : {0, 500})
          (void)all_reduce(group, in + at, out + at, 500, DType::u32, ReduceOp::sum, gpu.stream(), options);
        scope.end();
      },
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        (void)all_gather(group, in, out, kSmall, DType::u32, gpu.stream(), options);
      },
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        (void)reduce_scatter(group, in, out, kSmall, DType::u32, ReduceOp::sum, gpu.stream(), options);
      },
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        (void)all_to_all(group, in, out, kSmall, DType::u32, gpu.stream(), options);
      },
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        (void)reduce(group, in, out, kLarge, DType::u32, ReduceOp::sum, Rank{0}, gpu.stream(), options);
      },
      [](Group& group, const Gpu& gpu, auto* in, auto* out, const CallOptions& options) {
        (void)broadcast(group, in, out, kLarge, DType::u32, Rank{group.size() - 1}, gpu.stream(), options);
      },
      [](Group& group, const Gpu& gpu, auto* /*in*/, auto* out, const CallOptions& options) {
        recv(group, out, kSmall, DType::u32, Rank{group.size() - 1}, gpu.stream(), options);
      },
  };
  run([&](Group& group, Gpu& gpu) {
    auto* const in = gpu.make<std::uint32_t>(kMaxDevices * kLarge);
    auto* const out = gpu.make<std::uint32_t>(kMaxDevices * kLarge);
    const Rank missing{group.size() - 1};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::optional<Group> part = group.split(0);
      group.barrier();
      const Clock::time_point start = Clock::now();
      if (group.rank() != missing) calls[i](*part, gpu, in, out, {.algorithm = {}, .timeout = kOfTheCall});
      const std::optional<Error> error = await_failure(*part, start + seconds{10});
      const double took = ms_since(start);
      ASSERT_TRUE(error) << "call " << i;
      EXPECT_EQ(error->code(), ErrorCode::timeout) << "call " << i << ": " << error->what();
      EXPECT_EQ(error->origin(), missing) << "call " << i << ": " << error->what();
      EXPECT_LT(took, static_cast<double>(kOfTheCall.count()) + 200) << "call " << i << ": " << error->what();
      part.reset();
      group.barrier();
    }
    expect_works(group, gpu);
  });
}

TEST_P(CudaTimeouts, MayBeLongerThanTheDevicesClockCounts) {
  constexpr Duration kLong{18'446'744'073'710};  // 2^64 ns and half a millisecond
  run([&](Group& group, Gpu& gpu) {
    const UserKernels kernels(gpu);
    auto* const data = gpu.make<std::uint32_t>(1000);
    gpu.fill(data, 1, 1000);
    group.barrier();
    if (group.rank() == Rank{0}) kernels.delay(milliseconds{50});
    (void)all_reduce(group, data, data, 1000, DType::u32, ReduceOp::sum, gpu.stream(),
                     {.algorithm = {}, .timeout = kLong});
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(data, 1000), ::testing::Each(static_cast<std::uint32_t>(group.size())));
  });
}

class CudaGivingBack : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaGivingBack, ::testing::Values(GpuRanks{2, true}, GpuRanks{2, false}),
                         gpu_ranks_name);

TEST_P(CudaGivingBack, WaitsForTheDeviceNoLongerThanTheGroupsTimeout) {
  constexpr Duration kTimeout{3000};
  constexpr double kMostMs = 3000 + 300;
  JoinOptions options = on_gpus();
  options.timeout = kTimeout;
  run(
      [&](Group& group, Gpu& gpu) {
        const UserKernels kernels(gpu);
        expect_works(group, gpu);
        std::optional<SymmetricBuffer> buffer = group.allocate(1 << 20);
        auto* const last_word = reinterpret_cast<std::uint32_t*>(buffer->local());
        group.barrier();
        if (group.rank() == Rank{0}) {
          kernels.delay(milliseconds{9000});
          gpu.fill(last_word, 7, 1 << 18);  // queued behind the delay, in the memory that is freed
          Clock::time_point start = Clock::now();
          buffer.reset();
          EXPECT_LT(ms_since(start), kMostMs);
          start = Clock::now();
          group.leave();
          EXPECT_LT(ms_since(start), kMostMs);
          // The context has survived: queued work completes.
          auto* const own = gpu.make<std::uint32_t>(10);
          gpu.fill(own, 3, 10);
          EXPECT_THAT(gpu.read(own, 10), ::testing::Each(3u));
        }
      },
      options);
}

TEST_P(CudaGivingBack, LeavingDoesNotWaitForOtherWorkThanItsCalls) {
  run([](Group& group, Gpu& gpu) {
    Gpu other(group.device());
    const UserKernels kernels(other);
    auto* const data = gpu.make<std::uint32_t>(1000);
    group.barrier();
    kernels.delay(milliseconds{3000});
    reduce(group, gpu, data, data, 1000);  // allocates and frees nothing, which would wait for the delay
    const Clock::time_point start = Clock::now();
    group.leave();
    EXPECT_LT(ms_since(start), 2000);
    EXPECT_FALSE(other.idle());
  });
}

TEST_P(CudaGivingBack, LeavingDoesNotDisturbACapture) {
  run([](Group& group, Gpu& gpu) {
    expect_works(group, gpu);
    auto* const data = gpu.make<std::uint32_t>(10);
    const Graph graph(gpu, [&] {
      gpu.fill(data, 5, 10);
      std::thread([&] { group.leave(); }).join();
    });
    graph.launch();
    EXPECT_THAT(gpu.read(data, 10), ::testing::Each(5u));
  });
}

}  // namespace
}  // namespace onehop::testing::gpu_timeouts_test
