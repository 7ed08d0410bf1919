// SPDX-License-Identifier: Apache-2.0
// Symmetric memory of GPUs: signals and barriers on streams, and views in a user's own kernels.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_signals_test {
namespace {

class CudaSignals : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaSignals, all_gpu_ranks(), gpu_ranks_name);

std::uint32_t* words_of(std::byte* data) {
  return reinterpret_cast<std::uint32_t*>(data);
}
Rank right_of(const Group& group) {
  return Rank{(group.rank().value + 1) % group.size()};
}
Rank left_of(const Group& group) {
  return Rank{(group.rank().value + group.size() - 1) % group.size()};
}

TEST_P(CudaSignals, SymmetricMemoryIsZeroedAndReachedByEveryRank) {
  run([](Group& group, Gpu& gpu) {
    for (const std::size_t words : {1ul, 1000ul, 600'001ul}) {
      const SymmetricBuffer buffer = group.allocate(words * 4);
      EXPECT_EQ(buffer.bytes(), words * 4);
      for (const std::uint32_t each : gpu.read(words_of(buffer.local()), words)) ASSERT_EQ(each, 0u);
      gpu.wait();
      group.barrier();
      gpu.fill(buffer.local(), part_of(group.rank().value, words), words);
      gpu.wait();
      buffer.barrier();  // on the hosts
      for (int r = 0; r < group.size(); ++r) {
        for (const std::uint32_t each : gpu.read(words_of(buffer.peer(Rank{r})), words))
          ASSERT_EQ(each, part_of(r, words));
      }
      buffer.barrier();
    }
  });
}

TEST_P(CudaSignals, OnStreamsOrderMemoryAroundARing) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kRounds = 200;
    constexpr std::size_t kWords = 10'000;
    const SymmetricBuffer buffer = group.allocate(kWords * 4);
    auto* const got = gpu.make<std::uint32_t>(kWords);
    const EndsLog log(gpu, kRounds);
    for (std::size_t i = 0; i < kRounds; ++i) {
      gpu.fill(buffer.local(), part_of(group.rank().value, i), kWords);
      buffer.put_signal(gpu.stream(), right_of(group), 1);
      buffer.wait_signal(gpu.stream(), left_of(group), 1);
      gpu.copy(got, buffer.peer(left_of(group)), kWords * 4);
      buffer.put_signal(gpu.stream(), left_of(group), 2);  // "I have read it"
      buffer.wait_signal(gpu.stream(), right_of(group), 2);
      log.note(i, got, kWords);
      if (i % 50 == 49) group.synchronize(gpu.stream());
    }
    group.synchronize(gpu.stream());
    log.expect([&](std::size_t i) { return part_of(left_of(group).value, i); });
  });
}

TEST_P(CudaSignals, SentAheadAreCountedAndARankMaySignalItself) {
  run([](Group& group, Gpu& gpu) {
    const SymmetricBuffer buffer = group.allocate(4096);
    for (int i = 0; i < 20; ++i) {
      buffer.put_signal(gpu.stream(), right_of(group), 4);
      buffer.put_signal(gpu.stream(), group.rank(), 5);
    }
    group.synchronize(gpu.stream());
    group.barrier();
    for (int i = 0; i < 20; ++i) {
      buffer.wait_signal(gpu.stream(), left_of(group), 4);
      buffer.wait_signal(gpu.stream(), group.rank(), 5);
    }
    group.synchronize(gpu.stream());
    group.barrier();
    // No signal is left over, and channels and the hosts' signals are separate.
    buffer.wait_signal(gpu.stream(), left_of(group), 4, std::chrono::milliseconds{50});
    EXPECT_THROW(group.synchronize(gpu.stream()), Error);
    gpu.synchronize_device();
  });
}

TEST_P(CudaSignals, BarriersOnStreamsOrderMemoryAmongAll) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kRounds = 100;
    constexpr std::size_t kWords = 5000;
    const SymmetricBuffer buffer = group.allocate(kWords * 4);
    auto* const got = gpu.make<std::uint32_t>(kWords);
    std::vector<EndsLog> logs;
    for (int r = 0; r < group.size(); ++r) logs.emplace_back(gpu, kRounds);
    for (std::size_t i = 0; i < kRounds; ++i) {
      gpu.fill(buffer.local(), part_of(group.rank().value, i), kWords);
      buffer.barrier(gpu.stream(), static_cast<int>(i % SymmetricBuffer::kDefaultChannels));
      for (int r = 0; r < group.size(); ++r) {
        gpu.copy(got, buffer.peer(Rank{r}), kWords * 4);
        logs[static_cast<std::size_t>(r)].note(i, got, kWords);
      }
      buffer.barrier(gpu.stream(), 0);
      if (i % 20 == 19) group.synchronize(gpu.stream());
    }
    group.synchronize(gpu.stream());
    for (int r = 0; r < group.size(); ++r)
      logs[static_cast<std::size_t>(r)].expect([&](std::size_t i) { return part_of(r, i); });
  });
}

TEST_P(CudaSignals, AreReplayedInGraphs) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kWords = 3000;
    constexpr std::size_t kReplays = 500;
    const SymmetricBuffer buffer = group.allocate(kWords * 4);
    auto* const in = gpu.make<std::uint32_t>(kWords);
    auto* const got = gpu.make<std::uint32_t>(kWords);
    const Graph graph(gpu, [&] {
      gpu.copy(buffer.local(), in, kWords * 4);
      buffer.put_signal(gpu.stream(), right_of(group));
      buffer.wait_signal(gpu.stream(), left_of(group));
      gpu.copy(got, buffer.peer(left_of(group)), kWords * 4);
      buffer.barrier(gpu.stream());
    });
    const EndsLog log(gpu, kReplays);
    for (std::size_t i = 0; i < kReplays; ++i) {
      gpu.fill(in, part_of(group.rank().value, i), kWords);
      graph.launch();
      log.note(i, got, kWords);
      if (i % 50 == 49) group.synchronize(gpu.stream());
    }
    group.synchronize(gpu.stream());
    log.expect([&](std::size_t i) { return part_of(left_of(group).value, i); });
  });
}

TEST_P(CudaSignals, UserKernelsWriteToTheirPeersWithBarriersOrSignals) {
  run([](Group& group, Gpu& gpu) {
    constexpr unsigned kBlocks = SymmetricBuffer::kDefaultChannels;
    constexpr std::uint32_t kWords = 777;
    const UserKernels kernels(gpu);
    const SymmetricBuffer whole = group.allocate(64 + kBlocks * kWords * 4);
    const SymmetricBuffer buffer = whole.sub(64, kBlocks * kWords * 4);
    const DeviceView view = buffer.device_view(std::chrono::seconds{10});
    EXPECT_EQ(view.rank, group.rank().value);
    EXPECT_EQ(view.size, group.size());
    EXPECT_EQ(view.bytes, buffer.bytes());
    for (int r = 0; r < group.size(); ++r) EXPECT_EQ(view.peers[r], buffer.peer(Rank{r}));
    auto* const counts = gpu.make<std::uint32_t>(2);
    group.barrier();
    for (const unsigned threads : {32u, 256u, 1000u}) {
      kernels.ring(kBlocks, threads,
                   {.view = view, .words = kWords, .rounds = 200, .wrong = counts, .gave_up = counts + 1});
      // Meanwhile the library uses the same pads itself.
      buffer.barrier(gpu.stream(), 7);
      kernels.signals(kBlocks / 2, threads,
                      {.view = view, .words = kWords, .rounds = 200, .wrong = counts, .gave_up = counts + 1});
      buffer.barrier(gpu.stream(), 7);
    }
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));
    group.barrier();
  });
}

TEST_P(CudaSignals, AUsersKernelWhoseBarrierFailsReturnsAndTheHostHears) {
  run([](Group& group, Gpu& gpu) {
    const UserKernels kernels(gpu);
    const SymmetricBuffer buffer = group.allocate(4096);
    auto* const counts = gpu.make<std::uint32_t>(2);
    const Rank absent{group.size() - 1};
    group.barrier();
    if (group.rank() != absent) {
      kernels.ring(2, 64,
                   {.view = buffer.device_view(std::chrono::milliseconds{200}),
                    .words = 10,
                    .rounds = 1,
                    .wrong = counts,
                    .gave_up = counts + 1});
      gpu.wait();
      EXPECT_THAT(gpu.read(counts, 2), ::testing::ElementsAre(0u, 2u));
    }
    try {
      // The absent rank hears of the failure from the others, after a while.
      for (int i = 0; i < 1000; ++i) {
        group.synchronize(gpu.stream());
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      }
      ADD_FAILURE() << "rank " << group.rank().value << " never heard of the failed barrier";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_EQ(error.origin(), absent) << error.what();
    }
    gpu.synchronize_device();
  });
}

/// A kernel of the last rank passes `rank` and `channel`. All ranks get the error `what`, and no pad was
/// written to.
void expect_refused_in_kernel(Group& group, Gpu& gpu, int function, int rank, int channel,
                              const std::string& what) {
  const UserKernels kernels(gpu);
  constexpr int kChannels = 3;
  const SymmetricBuffer buffer = group.allocate(4096, {.channels = kChannels});
  const DeviceView view = buffer.device_view(std::chrono::seconds{10});
  EXPECT_EQ(view.channels, kChannels);
  auto* const returned = gpu.make<std::uint32_t>(1);
  const Rank odd{group.size() - 1};
  group.barrier();
  if (group.rank() == odd) {
    kernels.misuse(
        {.view = view, .function = function, .rank = rank, .channel = channel, .returned = returned});
    gpu.wait();
    EXPECT_THAT(gpu.read(returned, 1), ::testing::ElementsAre(1u));
    constexpr std::size_t kWords = (kChannels + 2) * sizeof(SignalChannel) / sizeof(std::uint32_t);
    for (int r = 0; r < group.size(); ++r) {
      EXPECT_THAT(gpu.read(view.signal_pads[r], kWords), ::testing::Each(0u)) << "pad of rank " << r;
      EXPECT_THAT(gpu.read(words_of(buffer.peer(Rank{r})), 1024), ::testing::Each(0u)) << "rank " << r;
    }
  }
  try {
    // The other ranks hear of it after a while.
    for (int i = 0; i < 1000; ++i) {
      group.synchronize(gpu.stream());
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    ADD_FAILURE() << "rank " << group.rank().value << " never heard of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.origin(), odd) << error.what();
    EXPECT_THAT(error.message(), ::testing::HasSubstr(what));
  }
  gpu.synchronize_device();
}

TEST_P(CudaSignals, AChannelThatTheBufferDoesNotHaveIsRefusedInTheKernel) {
  for (int function = 0; function < MisuseParams::kFunctions; ++function) {
    for (const int channel : {3, -1}) {
      run([&](Group& group, Gpu& gpu) {
        expect_refused_in_kernel(group, gpu, function, 0, channel,
                                 fmt::format("used channel {} of a buffer that has 0..2", channel));
      });
    }
  }
}

TEST_P(CudaSignals, ARankThatTheGroupDoesNotHaveIsRefusedInTheKernel) {
  for (const int function : {MisuseParams::put_signal, MisuseParams::wait_signal, MisuseParams::put_tile,
                             MisuseParams::wait_tile}) {
    run([&](Group& group, Gpu& gpu) {
      expect_refused_in_kernel(
          group, gpu, function, group.size(), 0,
          fmt::format("named rank {} of a group that has 0..{}", group.size(), group.size() - 1));
    });
  }
}

TEST_P(CudaSignals, BlocksHaveAsManyChannelsAsTheBufferWasMadeWith) {
  run([](Group& group, Gpu& gpu) {
    constexpr unsigned kBlocks = 40;
    constexpr std::uint32_t kWords = 321;
    const UserKernels kernels(gpu);
    const SymmetricBuffer buffer = group.allocate(kBlocks * kWords * 4, {.channels = kBlocks});
    const DeviceView view = buffer.device_view(std::chrono::seconds{10});
    auto* const counts = gpu.make<std::uint32_t>(2);
    group.barrier();
    kernels.ring(kBlocks, 64,
                 {.view = view, .words = kWords, .rounds = 100, .wrong = counts, .gave_up = counts + 1});
    buffer.barrier(gpu.stream(), kBlocks - 1);
    kernels.signals(kBlocks / 2, 64,
                    {.view = view, .words = kWords, .rounds = 100, .wrong = counts, .gave_up = counts + 1});
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));
    EXPECT_THROW(buffer.wait_signal(gpu.stream(), Rank{0}, kBlocks), Error);
    group.barrier();
  });
}

TEST_P(CudaSignals, BadArgumentsOfAWaitAreThisRanksErrorAlone) {
  run([](Group& group, Gpu& gpu) {
    const SymmetricBuffer buffer = group.allocate(64);
    for (const int channel : {-1, SymmetricBuffer::kDefaultChannels})
      EXPECT_THROW(buffer.wait_signal(gpu.stream(), Rank{0}, channel), Error);
    EXPECT_THROW(buffer.wait_signal(gpu.stream(), Rank{-1}), Error);
    EXPECT_THROW((void)buffer.device_view(std::chrono::milliseconds{-1}), Error);
    expect_works(group, gpu);
  });
}

TEST_P(CudaSignals, BadArgumentsOfABarrierOrASignalAreHeardByAll) {
  for (int which = 0; which < 3; ++which) {
    run([which](Group& group, Gpu& gpu) {
      const SymmetricBuffer buffer = group.allocate(64);
      const Rank odd{group.size() - 1};
      if (group.rank() == odd) {
        EXPECT_THROW(which == 0   ? buffer.barrier(gpu.stream(), SymmetricBuffer::kDefaultChannels)
                     : which == 1 ? buffer.put_signal(gpu.stream(), Rank{0}, -1)
                                  : buffer.put_signal(gpu.stream(), Rank{group.size()}),
                     Error);
      }
      try {
        buffer.barrier(gpu.stream());
        group.synchronize(gpu.stream());
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.message();
        EXPECT_EQ(error.origin(), odd) << error.message();
      }
    });
  }
}

}  // namespace
}  // namespace onehop::testing::gpu_signals_test
