// SPDX-License-Identifier: Apache-2.0
// Groups on GPUs as users see them: queued work that is not waited for, graphs, several groups and streams,
// invalid arguments, and what remains after a group.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "onehop/group.h"

#include "gpu/on_gpus.h"
#include "support/errors.h"
#include "support/scoped_variable.h"

namespace onehop::testing::gpu_groups_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class CudaGroups : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaGroups, all_gpu_ranks(), gpu_ranks_name);

// --- queued work ---

TEST_P(CudaGroups, QueuedCallsOfAllSizesBackToBackAreExact) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kCalls = 2000;
    constexpr std::size_t kMost = 200'000;
    auto* const in = gpu.make<std::uint32_t>(kMost);
    auto* const out = gpu.make<std::uint32_t>(kMost);
    const EndsLog log(gpu, kCalls);
    std::mt19937_64 together(7);
    for (std::size_t i = 0; i < kCalls; ++i) {
      const std::size_t limit = kMost >> together() % 17;
      const std::size_t count = 1 + together() % limit;
      const bool in_place = together() % 2 == 0;
      constexpr std::optional<Algorithm> kAlgorithms[] = {{}, Algorithm::one_shot, Algorithm::two_shot};
      std::uint32_t* const from = in_place ? out : in;
      gpu.fill(from, part_of(group.rank().value, i), count);
      reduce(group, gpu, from, out, count, kAlgorithms[together() % 3]);
      log.note(i, out, count);
      // The driver queues about a thousand launches and then blocks; a blocked rank must not be many calls
      // ahead.
      if (i % 100 == 99) group.synchronize(gpu.stream());
    }
    group.synchronize(gpu.stream());
    log.expect([&](std::size_t i) { return sum_of(group.size(), i); });
  });
}

TEST_P(CudaGroups, GraphsReplayBesideEagerCalls) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kReplays = 1000;
    constexpr std::size_t kSmall = 1000;
    constexpr std::size_t kLarge = 100'003;
    auto* const in = gpu.make<std::uint32_t>(kLarge);
    auto* const small = gpu.make<std::uint32_t>(kSmall);
    auto* const large = gpu.make<std::uint32_t>(kLarge);
    auto* const eager = gpu.make<std::uint32_t>(kSmall);
    const SymmetricBuffer buffer = group.allocate(4096);
    const Graph graph(gpu, [&] {
      reduce(group, gpu, in, small, kSmall, Algorithm::one_shot);
      reduce(group, gpu, in, large, kLarge, Algorithm::two_shot);
      buffer.barrier(gpu.stream(), 3);
      reduce(group, gpu, in, small, kSmall);
    });
    const EndsLog of_small(gpu, kReplays);
    const EndsLog of_large(gpu, kReplays);
    const EndsLog of_eager(gpu, kReplays);
    for (std::size_t i = 0; i < kReplays; ++i) {
      gpu.fill(in, part_of(group.rank().value, i), kLarge);
      if (i % 3 == 0) reduce(group, gpu, in, eager, kSmall);
      graph.launch();
      if (i % 3 != 0) reduce(group, gpu, in, eager, kSmall, Algorithm::two_shot);
      of_small.note(i, small, kSmall);
      of_large.note(i, large, kLarge);
      of_eager.note(i, eager, kSmall);
      if (i % 50 == 49) group.synchronize(gpu.stream());
    }
    const auto expected = [&](std::size_t i) { return sum_of(group.size(), i); };
    of_small.expect(expected);
    of_large.expect(expected);
    of_eager.expect(expected);
    for (const std::uint32_t each : gpu.read(large, kLarge)) ASSERT_EQ(each, expected(kReplays - 1));
    group.check();
  });
}

// Nothing but the group orders the two streams.
TEST_P(CudaGroups, GraphsAndCallsOnAnotherStreamAreInOrder) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kReplays = 1000;
    constexpr std::size_t kSmall = 1000;
    constexpr std::size_t kLarge = 100'003;
    Gpu other(group.device());
    auto* const in = gpu.make<std::uint32_t>(kLarge);
    auto* const small = gpu.make<std::uint32_t>(kSmall);
    auto* const large = gpu.make<std::uint32_t>(kLarge);
    auto* const eager_in = other.make<std::uint32_t>(kLarge);
    auto* const eager = other.make<std::uint32_t>(kLarge);
    const Graph graph(gpu, [&] {
      reduce(group, gpu, in, small, kSmall);
      reduce(group, gpu, in, large, kLarge);
    });
    const EndsLog of_small(gpu, kReplays);
    const EndsLog of_large(gpu, kReplays);
    const EndsLog of_eager(other, kReplays);
    for (std::size_t i = 0; i < kReplays; ++i) {
      const std::size_t count = i % 2 == 0 ? kSmall : kLarge;
      other.fill(eager_in, part_of(group.rank().value, i), count);
      gpu.fill(in, part_of(group.rank().value, i), kLarge);
      if (i % 3 == 0) reduce(group, other, eager_in, eager, count);
      graph.launch();
      if (i % 3 != 0) reduce(group, other, eager_in, eager, count);
      of_small.note(i, small, kSmall);
      of_large.note(i, large, kLarge);
      of_eager.note(i, eager, count);
      if (i % 50 == 49) {
        group.synchronize(gpu.stream());
        group.synchronize(other.stream());
      }
    }
    const auto expected = [&](std::size_t i) { return sum_of(group.size(), i); };
    of_small.expect(expected);
    of_large.expect(expected);
    of_eager.expect(expected);
    group.check();
  });
}

TEST_P(CudaGroups, CallsOnTwoStreamsOfACaptureAreInOrder) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kReplays = 200;
    constexpr std::size_t kCalls = 8;
    constexpr std::size_t kCount = 20'003;
    const CudaDriver& driver = cuda_driver();
    const CurrentDevice current(group.device());
    Gpu other(group.device());
    std::array<CUevent, 3> events{};
    for (CUevent& each : events) ASSERT_EQ(driver.EventCreate(&each, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    const auto order = [&](CUevent event, const Gpu& before, const Gpu& after) {
      check_cuda(driver.EventRecord(event, static_cast<CUstream>(before.stream().handle)), "cuEventRecord");
      check_cuda(driver.StreamWaitEvent(static_cast<CUstream>(after.stream().handle), event, 0),
                 "cuStreamWaitEvent");
    };
    auto* const in = gpu.make<std::uint32_t>(kCount);
    std::array<std::uint32_t*, kCalls> out{};
    for (std::uint32_t*& each : out) each = gpu.make<std::uint32_t>(kCount);
    const Graph graph(gpu, [&] {
      order(events[0], gpu, other);
      for (std::size_t i = 0; i < kCalls; ++i) {
        reduce(group, i % 3 == 0 ? gpu : other, in, out[i], kCount);
        if (i == 3) order(events[2], gpu, other);  // the program may order calls, too
      }
      order(events[1], other, gpu);
    });
    for (std::size_t replay = 0; replay < kReplays; ++replay) {
      gpu.fill(in, part_of(group.rank().value, replay), kCount);
      graph.launch();
      group.synchronize(gpu.stream());
      for (std::uint32_t* const each : out)
        ASSERT_THAT(gpu.read(each, kCount), ::testing::Each(sum_of(group.size(), replay)));
    }
    for (const CUevent each : events) (void)driver.EventDestroy(each);
  });
}

TEST_P(CudaGroups, ManyCallsOfAScopeAreFewLaunchesAndReplayInGraphs) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kReplays = 300;
    constexpr std::size_t kCalls = 70;
    constexpr std::size_t kWords = kCalls * (kCalls - 1) / 2;
    auto* const in = gpu.make<std::uint32_t>(kWords + 1);
    auto* const many = gpu.make<std::uint32_t>(kWords);
    auto* const eager = gpu.make<std::uint32_t>(kWords);
    auto* const one = gpu.make<std::uint32_t>(kWords);
    const Graph graph(gpu, [&] {
      EXPECT_EQ(reduce_many(group, gpu, kCalls, in, many), kWords);
      reduce(group, gpu, in, one, kWords, Algorithm::one_shot);
    });
    // 69 messages, 32 per launch, and the call after them; before and behind them, what orders graphs.
    EXPECT_EQ(graph.nodes(), 2 + 4u);
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, kCalls + 1, 0));
    const EndsLog of_one(gpu, kReplays);
    const auto expect_all = [&](const std::uint32_t* data, std::size_t i) {
      const std::vector<std::uint32_t> words = gpu.read(data, kWords);
      for (std::size_t w = 0; w < kWords; ++w) {
        ASSERT_EQ(words[w], sum_of(group.size(), i)) << "word " << w << ", round " << i;
      }
    };
    for (std::size_t i = 0; i < kReplays; ++i) {
      gpu.fill(in, part_of(group.rank().value, i), kWords + 1);
      // Aligned to 8 bytes in some rounds and on some ranks only.
      const std::size_t shift = (i + static_cast<std::size_t>(group.rank().value)) % 2;
      if (i % 3 == 0) (void)reduce_many(group, gpu, kCalls, in + shift, eager);
      graph.launch();
      if (i % 3 != 0) (void)reduce_many(group, gpu, kCalls, in + shift, eager);
      of_one.note(i, one, kWords);
      if (i % 20 != 19) continue;
      group.synchronize(gpu.stream());
      expect_all(many, i);
      expect_all(eager, i);
    }
    of_one.expect([&](std::size_t i) { return sum_of(group.size(), i); });
    group.check();
  });
}

TEST_P(CudaGroups, TwoGroupsAtOnceDoNotWaitForEachOther) {
  run([](Group& group, Gpu& gpu) {
    std::optional<Group> other = group.split(0);
    Gpu other_gpu(group.device());
    constexpr std::size_t kRounds = 300;
    constexpr std::size_t kCount = 5000;
    auto* const one = gpu.make<std::uint32_t>(kCount);
    auto* const two = other_gpu.make<std::uint32_t>(kCount);
    const EndsLog of_one(gpu, kRounds);
    const EndsLog of_two(other_gpu, kRounds);
    for (std::size_t i = 0; i < kRounds; ++i) {
      gpu.fill(one, part_of(group.rank().value, i), kCount);
      other_gpu.fill(two, part_of(group.rank().value, i + 1), kCount);
      // Half of the ranks begin with the other group.
      for (const bool first : {true, false}) {
        if (first == (group.rank().value % 2 == 0)) {
          reduce(group, gpu, one, one, kCount);
        } else {
          reduce(*other, other_gpu, two, two, kCount, Algorithm::two_shot);
        }
      }
      of_one.note(i, one, kCount);
      of_two.note(i, two, kCount);
      if (i % 50 == 49) {
        group.synchronize(gpu.stream());
        other->synchronize(other_gpu.stream());
      }
    }
    of_one.expect([&](std::size_t i) { return sum_of(group.size(), i); });
    of_two.expect([&](std::size_t i) { return sum_of(group.size(), i + 1); });
  });
}

// Without the limit, long calls of three groups or more may wait for each other's room.
TEST_P(CudaGroups, SixGroupsWithFewBlocksRunAtOnceInAnyOrder) {
  const ScopedVariable limit("ONEHOP_MAX_BLOCKS", "11");  // for GPUs with 33 multiprocessors or more
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kGroups = 6;
    constexpr std::size_t kRounds = 20;
    constexpr std::size_t kCount = 1 << 20;
    std::vector<Group> groups;
    std::vector<std::unique_ptr<Gpu>> gpus;
    std::vector<std::uint32_t*> data;
    std::vector<std::unique_ptr<EndsLog>> logs;
    for (std::size_t g = 0; g < kGroups; ++g) {
      groups.push_back(*group.split(0));
      gpus.push_back(std::make_unique<Gpu>(gpu.device()));
      data.push_back(gpus[g]->make<std::uint32_t>(kCount));
      logs.push_back(std::make_unique<EndsLog>(*gpus[g], kRounds));
    }
    for (std::size_t i = 0; i < kRounds; ++i) {
      for (std::size_t turn = 0; turn < kGroups; ++turn) {
        // Every rank begins with another group, and with 2 ranks none has three groups in common with the other at first.
        const std::size_t begin = static_cast<std::size_t>(group.rank().value) * kGroups;
        const std::size_t g = (turn + begin / static_cast<std::size_t>(group.size())) % kGroups;
        gpus[g]->fill(data[g], part_of(group.rank().value, i + g), kCount);
        reduce(groups[g], *gpus[g], data[g], data[g], kCount);
        logs[g]->note(i, data[g], kCount);
      }
    }
    for (std::size_t g = 0; g < kGroups; ++g) {
      groups[g].synchronize(gpus[g]->stream());
      logs[g]->expect([&](std::size_t i) { return sum_of(group.size(), i + g); });
    }
  });
}

/// Alternates calls on two streams; `between` is what the rank does after each.
void take_turns_on_two_streams(Group& group, Gpu& gpu, const std::function<void(const Gpu&)>& between) {
  Gpu second(group.device());
  constexpr std::size_t kCalls = 200;
  constexpr std::size_t kCount = 20'000;
  Gpu* const gpus[] = {&gpu, &second};
  std::uint32_t* data[2];
  for (int s = 0; s < 2; ++s) data[s] = gpus[s]->make<std::uint32_t>(kCount);
  const EndsLog logs[] = {EndsLog(gpu, kCalls / 2), EndsLog(second, kCalls / 2)};
  for (std::size_t i = 0; i < kCalls; ++i) {
    const std::size_t s = i % 2;
    gpus[s]->fill(data[s], part_of(group.rank().value, i), kCount);
    reduce(group, *gpus[s], data[s], data[s], kCount, i % 4 < 2 ? Algorithm::one_shot : Algorithm::two_shot);
    logs[s].note(i / 2, data[s], kCount);
    between(*gpus[s]);
  }
  for (const Gpu* each : gpus) group.synchronize(each->stream());
  for (std::size_t s = 0; s < 2; ++s) {
    logs[s].expect([&](std::size_t i) { return sum_of(group.size(), 2 * i + s); });
  }
}

TEST_P(CudaGroups, TwoStreamsOrderedByTheHostShareAGroup) {
  run([](Group& group, Gpu& gpu) {
    take_turns_on_two_streams(group, gpu, [&](const Gpu& used) { group.synchronize(used.stream()); });
  });
}

// As group.h says: calls on different streams run one after the other, without any ordering by the caller.
TEST_P(CudaGroups, CallsOnTwoStreamsRunOneAfterTheOther) {
  run([](Group& group, Gpu& gpu) { take_turns_on_two_streams(group, gpu, [](const Gpu&) {}); });
}

// As group_call.h says. Odd ranks use one stream, as programs may whose ranks have different roles.
TEST_P(CudaGroups, CallsOfOneScopeWaitForAllOfTheirStreamsAndAreWaitedForByAll) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kCount = 1000;
    Gpu second(group.device());
    const UserKernels kernels(second);
    const Gpu& other = group.rank().value % 2 == 0 ? second : gpu;
    const auto size = static_cast<std::uint32_t>(group.size());
    const auto rank = static_cast<std::uint32_t>(group.rank().value);
    const Rank right{static_cast<int>((rank + 1) % size)};
    const Rank left{static_cast<int>((rank + size - 1) % size)};
    auto* const in = gpu.make<std::uint32_t>(kCount);
    auto* const moved = gpu.make<std::uint32_t>(kCount);
    auto* const first_sum = gpu.make<std::uint32_t>(kCount);
    auto* const second_sum = gpu.make<std::uint32_t>(kCount);
    auto* const seen = gpu.make<std::uint32_t>(3);
    group.barrier();
    for (std::uint32_t round = 1; round < 20; ++round) {
      kernels.delay(milliseconds{2});
      second.fill(in, round * (rank + 1), kCount);
      if (&other == &gpu) {
        second.wait();  // nothing else orders the fill before the calls
      }
      GroupCall scope;
      (void)send(group, in, kCount, DType::u32, right, gpu.stream());
      (void)recv(group, moved, kCount, DType::u32, left, other.stream());
      reduce(group, gpu, in, first_sum, kCount);
      reduce(group, other, in, second_sum, kCount);
      scope.end();
      other.copy(seen, moved + kCount - 1, sizeof *seen);
      other.copy(seen + 1, first_sum + kCount - 1, sizeof *seen);
      other.copy(seen + 2, second_sum + kCount - 1, sizeof *seen);
      const std::uint32_t sum = round * size * (size + 1) / 2;
      EXPECT_THAT(other.read(seen, 3),
                  ::testing::ElementsAre(round * (static_cast<std::uint32_t>(left.value) + 1), sum, sum))
          << "round " << round;
      gpu.wait();
      // Threads that share a GPU share the queue of its copy engine. The copy of a rank that is a round ahead waits there
      // for calls that another rank makes only when its own copy, behind that one, has ended.
      group.barrier();
    }
    group.synchronize(gpu.stream());
    group.barrier();
  });
}

TEST_P(CudaGroups, ComparesCallsOfOneScopeInOrderWithTheStreamOfTheThread) {
  const ScopedVariable variable("ONEHOP_CHECK",
                                "1");  // so that calls of different groups wait in different threads
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kCount = 1000;
    const auto size = static_cast<std::uint32_t>(group.size());
    const auto rank = static_cast<std::uint32_t>(group.rank().value);
    std::optional<Group> other = group.split(0, group.rank().value);
    ASSERT_TRUE(other.has_value());
    Gpu on_thread(gpu.device(), Gpu::kStreamOfThread);
    const UserKernels kernels(on_thread);
    auto* const in = on_thread.make<std::uint32_t>(kCount);
    auto* const sum = on_thread.make<std::uint32_t>(kCount);
    auto* const other_sum = on_thread.make<std::uint32_t>(kCount);
    for (std::uint32_t round = 1; round < 10; ++round) {
      kernels.delay(milliseconds{2});
      on_thread.fill(in, round * (rank + 1), kCount);
      GroupCall scope;
      reduce(group, on_thread, in, sum, kCount);
      reduce(*other, on_thread, in, other_sum, kCount);
      scope.end();
      const std::uint32_t expected = round * size * (size + 1) / 2;
      EXPECT_EQ(on_thread.read(sum, kCount), std::vector(kCount, expected)) << "round " << round;
      EXPECT_EQ(on_thread.read(other_sum, kCount), std::vector(kCount, expected)) << "round " << round;
    }
    group.barrier();
  });
}

TEST_P(CudaGroups, SplitsIntoGroupsThatWork) {
  if (n() < 4) GTEST_SKIP() << "needs 4 ranks to split";
  run([](Group& group, Gpu& gpu) {
    std::optional<Group> half = group.split(group.rank().value % 2, -group.rank().value);
    ASSERT_TRUE(half.has_value());
    EXPECT_EQ(half->size(), group.size() / 2);
    EXPECT_EQ(half->device(), group.device());
    expect_works(*half, gpu);
    expect_works(group, gpu);
  });
}

// Abort is a failure that no kernel finds. All ranks replay, so the data of every replay arrive.
TEST_P(CudaGroups, ReplaysOfAFailedGroupGiveNaNEvenIfTheirDataArrive) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::array<std::size_t, 3> kCounts{1000, 100'003, 1'000'003};
    constexpr std::uint32_t kOne = 0x3f800000;  // 1.0f
    std::array<float*, kCounts.size()> out{};
    auto* const in = gpu.make<float>(kCounts.back());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = gpu.make<float>(kCounts[i]);
    gpu.fill(in, kOne, kCounts.back());
    const Graph graph(gpu, [&] {
      for (std::size_t i = 0; i < out.size(); ++i)
        (void)all_reduce(group, in, out[i], kCounts[i], DType::f32, ReduceOp::sum, gpu.stream());
    });
    graph.launch();
    group.synchronize(gpu.stream());
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_THAT(gpu.read(out[i], kCounts[i]), ::testing::Each(static_cast<float>(group.size())));
    group.barrier();
    if (group.rank() == Rank{0}) group.abort("a failure that no kernel finds");
    EXPECT_EQ(error_of([&] { group.barrier(); }).code(), ErrorCode::aborted);
    std::this_thread::sleep_for(milliseconds{200});  // the group's thread tells the device within 10 ms
    for (float* const each : out) gpu.fill(each, kOne, 1000);
    graph.launch();
    gpu.wait();
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_THAT(gpu.read(out[i], kCounts[i]), ::testing::Each(::testing::IsNan()))
          << kCounts[i] << " elements";
  });
}

// --- wrong arguments ---

TEST_P(CudaGroups, AnArgumentThatIsWrongOnOneRankFailsTheGroupOnAll) {
  run([](Group& group, Gpu& gpu) {
    const Rank odd{group.size() - 1};
    auto* const data = gpu.make<std::uint32_t>(100);
    const auto start = Clock::now();
    const Error error = error_of([&] {
      (void)all_reduce(group, group.rank() == odd ? nullptr : data, data, 100, DType::u32, ReduceOp::sum,
                       gpu.stream());
      group.synchronize(gpu.stream());
    });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.origin(), odd) << error.what();
    EXPECT_THAT(error.message(), ::testing::HasSubstr("null"));
    EXPECT_LT(Clock::now() - start, seconds{5}) << "the peers waited for a call that will not come";
    // The odd rank's refusal becomes the group's failure once the others have queued the call.
    EXPECT_EQ(error_of([&] { group.barrier(); }).code(), ErrorCode::invalid_argument);
    gpu.synchronize_device();
  });
}

TEST_P(CudaGroups, ACallThatWritesWhatAnotherOfItsScopeReadsFailsTheGroupOnAll) {
  run([](Group& group, Gpu& gpu) {
    const Rank odd{group.size() - 1};
    auto* const data = gpu.make<std::uint32_t>(300);
    const Error error = error_of([&] {
      GroupCall scope;
      reduce(group, gpu, data, data, 100);
      reduce(group, gpu, data + (group.rank() == odd ? 99 : 100), data + 200, 100);
      scope.end();
      group.synchronize(gpu.stream());
    });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.origin(), odd) << error.what();
    EXPECT_THAT(error.message(), ::testing::HasSubstr("another call of the same GroupCall"));
    gpu.synchronize_device();
  });
}

TEST_P(CudaGroups, AnArgumentThatIsWrongOnAllRanksChangesNothing) {
  run([](Group& group, Gpu& gpu) {
    auto* const data = gpu.make<std::uint32_t>(100);
    const auto call = [&](std::size_t count, DType type, std::optional<Algorithm> algorithm) {
      return error_of([&] {
        (void)all_reduce(group, data, data, count, type, ReduceOp::sum, gpu.stream(),
                         {.algorithm = algorithm, .timeout = {}});
      });
    };
    EXPECT_THAT(call(SIZE_MAX, DType::u32, {}).message(), ::testing::HasSubstr("too large"));
    EXPECT_THAT(call(1, static_cast<DType>(77), {}).message(), ::testing::HasSubstr("type"));
    EXPECT_THAT(call(1, DType::u32, Algorithm::none).message(), ::testing::HasSubstr("algorithm"));
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, 0, 0));
    expect_works(group, gpu);
  });
}

// --- ends ---

TEST_P(CudaGroups, ABufferIsDestroyedWhileWorkThatUsesItIsQueued) {
  // Freeing memory waits for all that the process runs on the GPU, and thus for ranks that wait for this one.
  if (!GetParam().forked && shared_gpus() > 0 && shared_gpus() < n())
    GTEST_SKIP() << "ranks that are threads must not share a GPU";
  run([](Group& group, Gpu& gpu) {
    const UserKernels kernels(gpu);
    for (int i = 0; i < 5; ++i) {
      SymmetricBuffer buffer = group.allocate(8 << 20);
      const Rank right{(group.rank().value + 1) % group.size()};
      kernels.delay(milliseconds{30});
      gpu.fill(buffer.local(), 1, buffer.bytes() / 4);
      gpu.copy(buffer.peer(right), buffer.local(), buffer.bytes());
      buffer = {};
      EXPECT_TRUE(gpu.idle()) << "the memory went before the work that uses it";
    }
    gpu.synchronize_device();
    expect_works(group, gpu);
  });
}

TEST_P(CudaGroups, AGroupIsDestroyedWhileItsWorkIsQueued) {
  run([](Group& joined, Gpu& gpu) {
    constexpr std::size_t kCount = 500'000;
    auto* const data = gpu.make<std::uint32_t>(kCount);
    const UserKernels kernels(gpu);
    joined.barrier();  // no rank's kernels wait while others load theirs
    {
      Group group = std::move(joined);
      // At different times on the ranks.
      kernels.delay(milliseconds{10 * group.rank().value});
      gpu.fill(data, part_of(group.rank().value, 1), kCount);
      reduce(group, gpu, data, data, kCount);
    }
    for (const std::uint32_t each : gpu.read(data, kCount)) ASSERT_EQ(each, sum_of(n(), 1));
  });
}

}  // namespace
}  // namespace onehop::testing::gpu_groups_test
