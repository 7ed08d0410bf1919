// SPDX-License-Identifier: Apache-2.0
// All algorithms of GPUs, with the kernels that the compiler made of them, on simulated GPUs: what no machine without
// a GPU could test otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cuda/algorithms/copy_engine/copy_engine.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/algorithms/streaming/streaming.h"
#include "backend/cuda/communicator.h"
#include "ptx/checked_calls.h"

namespace onehop::ptx {
namespace {

using cuda::DeviceAlgorithm;

constexpr std::size_t kStaging = 64 << 10;
constexpr std::uint64_t kScrubPeriod = std::uint64_t{1} << 30;  // onehop/device/wire/ll.cuh

Kernels& kernels() {
  static auto& all = *new Kernels(ONEHOP_PTX_FOLDER);
  return all;
}

cuda::GroupShape shape_of(int ranks) {
  return {.ranks = ranks, .staging_bytes = kStaging, .blocks = 3};
}

/// Between 1 and `most`; sizes of every order of magnitude are equally frequent.
std::size_t random_size(Random& random, std::size_t most) {
  const double part = static_cast<double>(random() % 1000) / 999;
  const auto size = static_cast<std::size_t>(std::pow(static_cast<double>(most), part));
  return std::max<std::size_t>(1, random() % 3 == 0 ? size / 16 * 16 : size);
}

/// Any call that the algorithm can carry.
Case random_case(Random& random, const DeviceAlgorithm& algorithm, int ranks, std::size_t most_bytes) {
  constexpr std::array kTypes = {DType::bf16, DType::f64, DType::i32};
  constexpr std::array kOps = {ReduceOp::sum, ReduceOp::sum, ReduceOp::prod,       ReduceOp::min,
                               ReduceOp::max, ReduceOp::avg, ReduceOp::premul_sum, kWeightedSum};
  Case each{.algorithm = &algorithm};
  each.type = kTypes[random() % (algorithm.types == TypeClass::floats ? 2 : kTypes.size())];
  do {
    each.collective = static_cast<Collective>(random() % kCollectiveCount);
  } while (!algorithm.carries(each.collective, TypeClass::floats, Buffers::symmetric));
  each.op = kOps[random() % kOps.size()];
  each.count = cuda::ceil_div(random_size(random, most_bytes), size_of(each.type));
  each.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  each.shifted = random() % 3 == 0;
  each.in_place = random() % 3 == 0;
  if (&algorithm == &cuda::kCopyEngineTwoShot && random() % 4 != 0) {
    // Other calls are left to other algorithms.
    each.count += 9000;
    each.shifted = each.in_place = false;
  }
  if (algorithm.takes_blocks && random() % 4 == 0)
    each.limits.blocks = static_cast<unsigned>(1 + random() % 3);
  if (algorithm.takes_threads && random() % 6 == 0)
    each.limits.threads = static_cast<unsigned>(32 * (1 + random() % 8));
  return each;
}

void queue_random_exchange(CheckedCalls& calls, std::size_t most_bytes) {
  const auto ranks = static_cast<std::size_t>(calls.ranks());
  std::vector<std::vector<std::size_t>> bytes(ranks, std::vector<std::size_t>(ranks));
  for (auto& row : bytes) {
    for (std::size_t& each : row)
      each = calls.random()() % 3 == 0 ? 0 : random_size(calls.random(), most_bytes);
  }
  calls.queue_exchange(bytes);
}

void queue_random_list(CheckedCalls& calls) {
  Random& random = calls.random();
  std::vector<Case> cases;
  const std::size_t messages = 1 + random() % cuda::kMaxFused;
  for (std::size_t i = 0; i < messages; ++i) {
    Case& each = cases.emplace_back(random_case(random, cuda::kLLOneShot, calls.ranks(), 1000));
    each.collective = Collective::all_reduce;
    each.type = cases.front().type;
    if (i != 0) each.op = cases.front().op;
    if (each.op == kWeightedSum) each.op = ReduceOp::sum;  // never shares a launch
  }
  calls.queue_fused(cases);
}

class Algorithms : public testing::TestWithParam<std::tuple<const DeviceAlgorithm*, int>> {};

TEST_P(Algorithms, GiveTheExactResults) {
  const auto& [algorithm, ranks] = GetParam();
  CheckedCalls calls(kernels(), shape_of(ranks), 1);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 5; ++i) calls.queue(random_case(calls.random(), *algorithm, ranks, 6000));
    ASSERT_EQ(calls.finish(), "");
  }
}

// Several launches, chunks and turns of the rings.
TEST_P(Algorithms, CarryLongMessages) {
  const auto& [algorithm, ranks] = GetParam();
  CheckedCalls calls(kernels(), shape_of(ranks), 2);
  for (int i = 0; i < 2; ++i) {
    Case each = random_case(calls.random(), *algorithm, ranks, 1);
    each.count = (100'000 + calls.random()() % 50'000) / size_of(each.type);
    // Blocks of whole packets always stream; others may be left to other algorithms.
    if (i == 1) each.count = each.count / 16 * 16;
    calls.queue(each);
  }
  EXPECT_EQ(calls.finish(), "");
}

// The notice is host memory, which a GPU reads slowly: one rank of two waits in vain, all its threads check at least
// twice for a reason to stop, and most of them do not read it.
TEST(Waits, OfManyWarpsTakeTurnsReadingTheNotice) {
  constexpr int kThreads = 2048;
  CheckedCalls calls(kernels(), {.ranks = 2, .staging_bytes = kStaging, .blocks = 16}, 4);
  Case each = random_case(calls.random(), cuda::kLamportOneShot, 2, 1);
  each.collective = Collective::all_reduce;
  each.type = DType::bf16;
  each.op = ReduceOp::sum;
  each.shifted = each.in_place = false;
  each.limits = {.blocks = 16, .threads = 128};
  each.count = kThreads * 16 / size_of(each.type);
  const std::vector<CollectiveCall> made = calls.prepare(each);
  calls.gpus().set_timeout(1'000);
  cuda::kLamportOneShot.run(calls.gpus().launcher(0), made[0], each.limits, nullptr);
  ASSERT_EQ(calls.finish_with_failures(std::array{0}, CheckedCalls::Poison::partial), "");
  const std::uint64_t reads = calls.gpus().memory().visits(&calls.gpus().words(0));
  EXPECT_TRUE(reads > 0 && reads < kThreads) << reads;
}

// With three ranks, of which the second does nothing. Threads poll many times before they look for a reason to stop; so
// few threads wait.
TEST_P(Algorithms, EndWhenARankHasLeft) {
  const auto& [algorithm, ranks] = GetParam();
  if (ranks != 3) GTEST_SKIP() << "one number of ranks is enough";
  for (const std::uint32_t notice : {DeviceGuard::kAbortNotice, 1u << 1}) {
    CheckedCalls calls(kernels(), shape_of(ranks), 3);
    Case each = random_case(calls.random(), *algorithm, ranks, 1);
    each.root = 1;
    each.op = ReduceOp::sum;
    each.type = DType::bf16;
    each.shifted = each.in_place = false;
    each.limits.blocks = 1;
    if (algorithm == &cuda::kCopyEngineTwoShot) each.count = 2000;
    const std::vector<CollectiveCall> made = calls.prepare(each);
    const cuda::SymmetricOutput output = CheckedCalls::output_of(made);
    calls.gpus().set_timeout(1'000'000);  // for a rank that waits for the other one, which has given up
    for (const int r : {0, 2}) {
      calls.gpus().words(r).notice = notice;
      algorithm->run(calls.gpus().launcher(r), made[static_cast<std::size_t>(r)], each.limits,
                     made.front().options.symmetric ? &output : nullptr);
    }
    // Copy engines may deliver later what a failed call has filled with NaN; here, what a rank that has given up copies.
    if (algorithm->buffers == Buffers::symmetric) {
      ASSERT_NO_THROW(calls.gpus().simulation().run()) << each.describe();
    } else {
      ASSERT_EQ(calls.finish_with_failures(std::array{0, 2}, CheckedCalls::Poison::partial), "");
    }
    for (const int r : {0, 2}) {
      const std::optional<DeviceFailure> failure = parse_fault(calls.gpus().words(r).fault);
      if (notice == DeviceGuard::kAbortNotice) {
        EXPECT_FALSE(failure.has_value()) << each.describe();  // the host knows
      } else if (failure.has_value()) {                        // some ranks need nothing of the one that left
        EXPECT_TRUE(failure->reason == DeviceFault::left || failure->reason == DeviceFault::timeout)
            << each.describe();
      }
    }
  }
}

// An earlier call of one rank has failed there, so that data of that call may still arrive. The others take part, too,
// except with copy engines, which would copy into the output afterwards, and in streams in both directions, where they would
// wait longer than a simulation can.
TEST_P(Algorithms, GiveNaNOnceTheRankHasFailed) {
  const auto& [algorithm, ranks] = GetParam();
  const bool alone = algorithm->buffers == Buffers::symmetric || algorithm == &cuda::kStreamingOneShot ||
                     algorithm == &cuda::kStreamingTwoShot || algorithm == &cuda::kStreamingExchange;
  for (std::uint64_t seed = 10; seed < 18; ++seed) {
    CheckedCalls calls(kernels(), shape_of(ranks), seed);
    Case each = random_case(calls.random(), *algorithm, ranks, 60'000);
    if (type_class(each.type) != TypeClass::floats) each.type = DType::bf16;
    if (algorithm == &cuda::kCopyEngineTwoShot) each.in_place = false;
    const int failed = static_cast<int>(calls.random()() % static_cast<unsigned>(ranks));
    calls.set_failed(failed);
    calls.gpus().set_timeout(1'000'000);  // the others may wait for the rank that has failed
    const std::vector<CollectiveCall> made = calls.prepare(each);
    const cuda::SymmetricOutput output = CheckedCalls::output_of(made);
    for (const CollectiveCall& call : made) {
      if (alone && call.rank != failed) continue;
      algorithm->run(calls.gpus().launcher(call.rank), call, each.limits,
                     call.options.symmetric ? &output : nullptr);
    }
    ASSERT_EQ(calls.finish_with_failures(std::array{failed}, CheckedCalls::Poison::whole), "");
  }
}

TEST_P(Algorithms, GiveNoWrongResultBesideARankThatGaveUp) {
  // Ranks begin up to 300,000 steps apart, and one of them does not wait that long.
  const auto& [algorithm, ranks] = GetParam();
  for (std::uint64_t seed = 30; seed < 38; ++seed) {
    CheckedCalls calls(kernels(), shape_of(ranks), seed);
    Case each = random_case(calls.random(), *algorithm, ranks, 5000);
    each.op = ReduceOp::max;  // without factors that ranks would exchange first
    if (algorithm == &cuda::kCopyEngineTwoShot) each.in_place = false;
    const int impatient = static_cast<int>(calls.random()() % static_cast<unsigned>(ranks));
    const std::vector<CollectiveCall> made = calls.prepare(each);
    const cuda::SymmetricOutput output = CheckedCalls::output_of(made);
    for (const CollectiveCall& call : made) {
      calls.gpus().set_timeout(call.rank == impatient ? 10'000 : 1'000'000);
      algorithm->run(calls.gpus().launcher(call.rank), call, each.limits,
                     call.options.symmetric ? &output : nullptr);
    }
    calls.gpus().simulation().run();
    std::vector<int> successful;
    for (int r = 0; r < ranks; ++r) {
      if (!calls.has_failed(r)) successful.push_back(r);
    }
    ASSERT_EQ(calls.finish_with_failures(successful, CheckedCalls::Poison::whole), "")
        << "rank " << impatient << " did not wait";
  }
}

TEST_P(Algorithms, LeaveIntegersOfFailedCalls) {
  const auto& [algorithm, ranks] = GetParam();
  if (algorithm->types == TypeClass::floats) GTEST_SKIP() << "carries no integers";
  CheckedCalls calls(kernels(), shape_of(ranks), 20);
  Case each = random_case(calls.random(), *algorithm, ranks, 1000);
  each.type = DType::i32;
  const std::vector<CollectiveCall> made = calls.prepare(each);
  const cuda::SymmetricOutput output = CheckedCalls::output_of(made);
  std::vector<Bytes> before;
  for (const CollectiveCall& call : made) {
    const std::span<const std::byte> out = call.output();
    before.emplace_back(out.begin(), out.end());
    calls.set_failed(call.rank);
    algorithm->run(calls.gpus().launcher(call.rank), call, each.limits,
                   call.options.symmetric ? &output : nullptr);
  }
  calls.gpus().simulation().run();
  const Bytes ones(sizeof(std::int32_t), std::byte{0xff});
  for (const CollectiveCall& call : made) {
    const std::span<const std::byte> out = call.output();
    for (std::size_t i = 0; i + 4 <= out.size(); i += 4) {
      const Bytes was(
          before[static_cast<std::size_t>(call.rank)].begin() + static_cast<std::ptrdiff_t>(i),
          before[static_cast<std::size_t>(call.rank)].begin() + static_cast<std::ptrdiff_t>(i + 4));
      if (std::memcmp(out.data() + i, ones.data(), 4) == 0) {
        EXPECT_EQ(was, ones) << each.describe();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OnPtx, Algorithms, testing::ValuesIn([] {
                           std::vector<std::tuple<const DeviceAlgorithm*, int>> all;
                           for (const DeviceAlgorithm* const each : cuda::device_algorithms()) {
                             for (const int ranks : {2, 3, 4}) {
                               if (each->takes(ranks)) all.emplace_back(each, ranks);
                             }
                           }
                           return all;
                         }()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)->name) + "_" +
                                  std::to_string(std::get<1>(each.param));
                         });

class Ranks : public testing::TestWithParam<int> {};

// One after the other on the same scratch memory.
TEST_P(Ranks, MixAllAlgorithms) {
  const int ranks = GetParam();
  CheckedCalls calls(kernels(), shape_of(ranks), 4);
  const auto all = cuda::device_algorithms();
  for (int round = 0; round < (ranks == 8 ? 3 : 8); ++round) {
    for (int i = 0; i < 5; ++i) {
      const DeviceAlgorithm& algorithm = *all[calls.random()() % all.size()];
      if (algorithm.takes(ranks)) calls.queue(random_case(calls.random(), algorithm, ranks, 3000));
    }
    queue_random_exchange(calls, 5000);
    queue_random_list(calls);
    ASSERT_EQ(calls.finish(), "");
  }
}

TEST_P(Ranks, ExchangeMessagesOfAllRoutes) {
  const int ranks = GetParam();
  if (ranks > 4) GTEST_SKIP() << "takes too long";
  CheckedCalls calls(kernels(), shape_of(ranks), 5);
  queue_random_exchange(calls, 200'000);
  queue_random_exchange(calls, 200'000);
  // Rings carry what is too long for packed LL.
  std::vector<std::vector<std::size_t>> bytes(static_cast<std::size_t>(ranks),
                                              std::vector<std::size_t>(static_cast<std::size_t>(ranks)));
  bytes[0][1] = cuda::max_packed_bytes(static_cast<std::size_t>(ranks)) + 12'345;
  bytes[1][0] = 3;
  calls.queue_exchange(bytes);
  EXPECT_EQ(calls.finish(), "");
}

INSTANTIATE_TEST_SUITE_P(OnPtx, Ranks, testing::Values(2, 3, 4, 5, 8), testing::PrintToStringParamName());

// Or it could get two calls ahead, and write to memory that the receiver has not cleared.
TEST(OneWayStreams, EndOnTheSenderOnceTheReceiversCallHasBegun) {
  struct Sent {
    const DeviceAlgorithm* algorithm;
    Collective collective;
    int sender;
  };
  for (const auto& [algorithm, collective, sender] :
       {Sent{&cuda::kStreamingOneWay, Collective::broadcast, 0},
        Sent{&cuda::kStreamingOneWay, Collective::scatter, 0},
        Sent{&cuda::kStreamingOneWay, Collective::gather, 1},
        Sent{&cuda::kStreamingOneShot, Collective::reduce, 1}}) {
    CheckedCalls calls(kernels(), shape_of(2), 6);
    Case each{.algorithm = algorithm};
    each.collective = collective;
    each.count = 64;
    const std::vector<CollectiveCall> made = calls.prepare(each);
    calls.gpus().set_timeout(1'000);
    algorithm->run(calls.gpus().launcher(sender), made[static_cast<std::size_t>(sender)], each.limits,
                   nullptr);
    calls.gpus().simulation().run();
    const std::optional<DeviceFailure> failure = parse_fault(calls.gpus().words(sender).fault);
    ASSERT_TRUE(failure.has_value()) << each.describe();
    EXPECT_EQ(failure->reason, DeviceFault::timeout) << each.describe();
    EXPECT_EQ(failure->awaited.value, 1 - sender) << each.describe();
  }
}

/// Stores an LL flag in every word of both parities of LL slots. `half`: bytes of a parity.
void fill_flags(std::byte* slots, std::size_t half, std::uint64_t flag) {
  for (std::size_t parity = 0; parity < 2; ++parity) {
    const std::uint64_t word = (flag + parity) << 32 | 0x5a5a5a5a;
    for (std::size_t i = 0; i < half; i += sizeof word)
      std::memcpy(slots + parity * half + i, &word, sizeof word);
  }
}

/// Starts the counters of calls over LL packets at `epoch`, with words of the epoch `left_over` and its successor.
void start_ll_at(SimulatedGpus& gpus, std::uint64_t epoch, std::uint64_t left_over) {
  const auto ranks = static_cast<std::size_t>(gpus.shape().ranks);
  for (int r = 0; r < gpus.shape().ranks; ++r) {
    const cuda::Launcher& launcher = gpus.launcher(r);
    const cuda::ScratchRegion& push = *cuda::kLLOneShot.scratch[0];
    launcher.head<EpochCounter>(push, r)->shares = epoch * EpochCounter::kPerKernel;
    fill_flags(launcher.scratch(push, r) + cuda::kScratchAlignment, ranks * 2 * cuda::kLLSlotBytes,
               left_over);
    auto& channels = *launcher.head<cuda::ChannelCounts>(cuda::kChannelScratch, r);
    for (cuda::SentMessages& sent : channels.sent) {
      sent.shares = epoch * EpochCounter::kPerKernel;
      sent.taken = epoch;
    }
    for (cuda::MessageCounter& received : channels.received)
      received.shares = epoch * EpochCounter::kPerKernel;
    fill_flags(launcher.scratch(cuda::kChannelScratch, r) + cuda::align_scratch(sizeof(cuda::ChannelCounts)),
               (ranks - 1) * 2 * cuda::kMaxLLBytes, left_over);
  }
}

// Flags wrap after 2^32 epochs. Words as old as that must have been rewritten before.
TEST(LLPackets, AreRewrittenBeforeTheirFlagsReturn) {
  constexpr int kRanks = 3;
  for (const std::uint64_t period : {kScrubPeriod, 4 * kScrubPeriod}) {
    CheckedCalls calls(kernels(), shape_of(kRanks), period);
    // The even call 4 calls after those that rewrite, and the next one, would find flags of their own epochs.
    start_ll_at(calls.gpus(), period - 4, period + 6);
    for (int i = 0; i < 12; ++i) {
      const std::size_t count = i < 8 ? 3 : 15'000;
      calls.queue({.algorithm = &cuda::kLLOneShot, .count = count});
      calls.queue({.algorithm = &cuda::kPointToPoint, .collective = Collective::all_to_all, .count = count});
      if (i % 4 == 3) {
        ASSERT_EQ(calls.finish(), "");
      }
    }
  }
}

TEST(CopyEngines, RefuseDifferentWindows) {
  constexpr int kRanks = 3;
  for (const DeviceAlgorithm* const algorithm : {&cuda::kCopyEngine, &cuda::kCopyEngineTwoShot}) {
    CheckedCalls calls(kernels(), shape_of(kRanks), 6);
    Case each = random_case(calls.random(), *algorithm, kRanks, 1);
    each.count = 5000;
    each.in_place = each.shifted = false;
    const std::vector<CollectiveCall> made = calls.prepare(each);
    for (const CollectiveCall& call : made) {
      cuda::SymmetricOutput output = CheckedCalls::output_of(made);
      output.window += call.rank == 1 ? 16 : 0;
      algorithm->run(calls.gpus().launcher(call.rank), call, each.limits, &output);
    }
    ASSERT_NO_THROW(calls.gpus().simulation().run());
    for (int r = 0; r < kRanks; ++r) {
      const std::optional<DeviceFailure> failure = parse_fault(calls.gpus().words(r).fault);
      ASSERT_TRUE(failure.has_value()) << each.describe();
      EXPECT_EQ(failure->reason, DeviceFault::misplaced);
    }
  }
}

TEST(Kernels, ExistForEveryGroupThatLoadsThem) {
  for (int ranks = 1; ranks <= kMaxDevices; ++ranks) {
    for (const DeviceAlgorithm* const algorithm : cuda::device_algorithms()) {
      if (!algorithm->takes(ranks)) continue;
      for (const cuda::ReductionKernel* const kernel : algorithm->kernels) {
        for (const DType type : {DType::bf16, DType::f64, DType::i32}) {
          if (kernel->types == TypeClass::floats && type == DType::i32) continue;
          for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max})
            EXPECT_NO_THROW((void)kernels().reduction(*kernel, type, op, ranks)) << ranks << " ranks";
        }
      }
      for (const cuda::PlainKernel* const kernel : algorithm->plain_kernels)
        EXPECT_NO_THROW((void)kernels().plain(kernel->name));
    }
  }
}

TEST(OneRank, Multiplies) {
  for (const DType type : {DType::bf16, DType::f64, DType::i32}) {
    for (const std::size_t count : {1, 5, 1000, 10'001}) {
      CheckedCalls calls(kernels(), shape_of(1), count);
      const Case each{.algorithm = &cuda::kLLOneShot,
                      .type = type,
                      .op = ReduceOp::premul_sum,
                      .count = count,
                      .shifted = count == 5};
      cuda::kAlone.run(calls.gpus().launcher(0), calls.prepare(each).front(), {}, nullptr);
      EXPECT_EQ(calls.finish(), "");
    }
  }
}

}  // namespace
}  // namespace onehop::ptx
