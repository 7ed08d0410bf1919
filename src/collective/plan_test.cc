// SPDX-License-Identifier: Apache-2.0
#include "collective/plan.h"

#include <gtest/gtest.h>

#include "kernel/cuda/call_params.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

constexpr std::size_t kKiB = 1 << 10;
constexpr std::size_t kMiB = 1 << 20;

const std::size_t kSizes[] = {
    0,         1,         2,          64,       65,        4096,      8 * kKiB,  8 * kKiB + 1,
    16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB + 3, 10 * kMiB, 11 * kMiB, 64 * kMiB, std::size_t{1} << 40};

PlanRequest request(int ranks, std::size_t bytes) {
  return {.ranks = ranks, .bytes = bytes, .forced = {}};
}

Algorithm legacy(DType type, std::size_t bytes, ReduceOp op = ReduceOp::sum,
                 std::size_t staging_bytes = 64 * kMiB) {
  return plan_all_reduce({.ranks = 4,
                          .bytes = bytes,
                          .type = type,
                          .op = op,
                          .policy = AlgorithmPolicy::legacy,
                          .forced = {},
                          .staging_bytes = staging_bytes})
      .algorithm;
}

TEST(Plan, TheTunedPolicyFindsAnAlgorithmForEverySizeTypeAndOp) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    for (const std::size_t bytes : kSizes) {
      for (int type = 0; type < kDTypeCount; ++type) {
        for (int op = 0; op < kReduceOpCount; ++op) {
          PlanRequest each = request(ranks, bytes);
          each.type = static_cast<DType>(type);
          each.op = static_cast<ReduceOp>(op);
          EXPECT_NE(plan_all_reduce(each).algorithm, Algorithm::none);
        }
      }
    }
  }
}

TEST(Plan, TheTunedPolicyGoesFromOneShotToTwoShotOnce) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    EXPECT_EQ(plan_all_reduce(request(ranks, 0)).algorithm, Algorithm::one_shot);
    EXPECT_EQ(plan_all_reduce(request(ranks, 1)).algorithm, Algorithm::one_shot);
    EXPECT_EQ(plan_all_reduce(request(ranks, 64 * kMiB)).algorithm, Algorithm::two_shot);
    bool two_shot = false;
    for (std::size_t bytes = 0; bytes <= 512 * kKiB; bytes += 64) {
      const bool now = plan_all_reduce(request(ranks, bytes)).algorithm == Algorithm::two_shot;
      EXPECT_TRUE(now || !two_shot) << bytes;
      two_shot = now;
    }
  }
}

TEST(Plan, ChunksFitTheStagingBufferAndEveryElementSize) {
  for (const std::size_t staging :
       {64 * kKiB, 65 * kKiB + 1, 100 * kKiB + 63, kMiB, 10 * kMiB, std::size_t{1} << 34}) {
    const host::StagingLayout layout(staging);
    for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
      for (const std::size_t bytes : kSizes) {
        for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
          PlanRequest each = request(ranks, bytes);
          each.forced = algorithm;
          each.staging_bytes = staging;
          const Plan plan = plan_all_reduce(each);
          ASSERT_EQ(plan.algorithm, algorithm);
          ASSERT_GT(plan.chunk, 0u);
          ASSERT_EQ(plan.chunk % 64, 0u);
          ASSERT_LE(layout.input_offset(1) + plan.chunk, layout.result_offset(0));
          if (algorithm == Algorithm::two_shot) {
            ASSERT_LE(host::Part(plan.chunk, ranks, 0).bytes, layout.result_bytes);
            ASSERT_LE(layout.result_offset(1) + layout.result_bytes, staging);
          }
        }
      }
    }
  }
}

TEST(Plan, ForcingOverridesThePolicy) {
  for (const AlgorithmPolicy policy : {AlgorithmPolicy::tuned, AlgorithmPolicy::legacy}) {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      PlanRequest each = request(2, 20 * kMiB);
      each.policy = policy;
      each.forced = algorithm;
      EXPECT_EQ(plan_all_reduce(each).algorithm, algorithm);
    }
  }
}

TEST(Plan, TheLegacyPolicyHasItsLimitsAtExactly256KiBAnd10MiB) {
  struct Row {
    DType type;
    std::size_t bytes;
    Algorithm expected;
  };
  const Row rows[] = {
      {DType::f32, 0, Algorithm::one_shot},
      {DType::f32, 4, Algorithm::one_shot},
      {DType::f32, 256 * kKiB, Algorithm::one_shot},
      {DType::f32, 256 * kKiB + 4, Algorithm::two_shot},
      {DType::f32, 10 * kMiB, Algorithm::two_shot},
      {DType::f32, 10 * kMiB + 4, Algorithm::none},
      {DType::bf16, 256 * kKiB, Algorithm::one_shot},
      {DType::bf16, 256 * kKiB + 4, Algorithm::two_shot},
      {DType::bf16, 10 * kMiB, Algorithm::two_shot},
      {DType::bf16, 10 * kMiB + 4, Algorithm::none},
      {DType::bf16, 2, Algorithm::none},  // an odd count: not a multiple of 4 bytes
      {DType::bf16, 34, Algorithm::none},
      {DType::bf16, 256 * kKiB + 2, Algorithm::none},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(legacy(row.type, row.bytes), row.expected) << to_string(row.type) << " " << row.bytes;
  }
}

TEST(Plan, TheLegacyPolicyTakesSumsOfF32AndBf16Only) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto each = static_cast<DType>(type);
    const bool taken = each == DType::f32 || each == DType::bf16;
    EXPECT_EQ(legacy(each, 1024), taken ? Algorithm::one_shot : Algorithm::none) << to_string(each);
    EXPECT_EQ(legacy(each, kMiB), taken ? Algorithm::two_shot : Algorithm::none) << to_string(each);
  }
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
    EXPECT_EQ(legacy(DType::f32, 1024, op), Algorithm::none) << to_string(op);
  }
}

TEST(Plan, TheLegacyPolicyTakesNoMoreThanTheBufferHolds) {
  EXPECT_EQ(legacy(DType::f32, 128 * kKiB, ReduceOp::sum, 128 * kKiB), Algorithm::one_shot);
  EXPECT_EQ(legacy(DType::f32, 128 * kKiB + 4, ReduceOp::sum, 128 * kKiB), Algorithm::none);
  EXPECT_EQ(legacy(DType::f32, 2 * kMiB, ReduceOp::sum, 2 * kMiB), Algorithm::two_shot);
  EXPECT_EQ(legacy(DType::f32, 2 * kMiB + 4, ReduceOp::sum, 2 * kMiB), Algorithm::none);
}

TEST(Plan, LegacyAlignmentIsFourBytesOfBothPointers) {
  alignas(64) static const std::byte data[64] = {};
  for (std::size_t in = 0; in < 8; ++in) {
    for (std::size_t out = 0; out < 8; ++out) {
      EXPECT_EQ(legacy_alignment_ok(data + in, data + out), in % 4 == 0 && out % 4 == 0) << in << " " << out;
    }
  }
}

TEST(Part, CoversTheChunkInWholeLinesInRankOrder) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    for (std::size_t bytes = 0; bytes < 10000; bytes += bytes < 300 ? 1 : 97) {
      std::size_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const host::Part part(bytes, ranks, r);
        ASSERT_EQ(part.offset, next);
        ASSERT_TRUE(part.offset % 64 == 0 || part.bytes == 0);
        next += part.bytes;
      }
      ASSERT_EQ(next, bytes);
    }
  }
}

TEST(DevicePlan, FindsALaunchForEverySizeTypeAndNumberOfRanks) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    for (int type = 0; type < kDTypeCount; ++type) {
      const int resident = ranks == 3 ? 33 : ranks == 5 ? 1 : 132;
      for (std::size_t bytes = 8; bytes <= std::size_t{1} << 34; bytes = bytes * 3 / 8 * 8) {
        for (const std::optional<Algorithm> forced :
             {std::optional<Algorithm>(), std::optional(Algorithm::one_shot),
              std::optional(Algorithm::two_shot)}) {
          const DevicePlan plan = plan_device_all_reduce({.ranks = ranks,
                                                          .bytes = bytes,
                                                          .type = static_cast<DType>(type),
                                                          .forced = forced,
                                                          .staging_bytes = 16 << 20,
                                                          .resident_blocks = resident});
          ASSERT_EQ(plan.algorithm, forced.value_or(plan.algorithm));
          ASSERT_NE(plan.algorithm, Algorithm::none);
          ASSERT_TRUE(carries(plan.protocol, static_cast<DType>(type)));
          ASSERT_GT(plan.launch_bytes, 0u);
          ASSERT_EQ(plan.launch_bytes % 16, 0u);
          const auto layout = cuda::SegmentLayout::of(ranks, 16 << 20);
          if (plan.protocol == DeviceProtocol::chunks) {
            ASSERT_GE(plan.launch_bytes, bytes);
            ASSERT_LE(plan.shape.grid, cuda::kMaxChunkedBlocks);
            ASSERT_TRUE(plan.chunk >= 16 && plan.chunk % 16 == 0 && plan.chunk <= layout.chunk_bytes)
                << plan.chunk;
            ASSERT_EQ(static_cast<int>(plan.shape.block),
                      cuda::crew(cuda::kernel_ranks(ranks, true)).threads());
          } else {
            ASSERT_LT(plan.launch_bytes, std::size_t{1} << 31) << "packets are counted in 32 bits";
          }
          const auto most = static_cast<unsigned>(cuda::max_threads(cuda::kernel_ranks(ranks, true)));
          ASSERT_TRUE(plan.shape.block >= 32 && plan.shape.block <= most && plan.shape.block % 32 == 0)
              << plan.shape.block;
          ASSERT_TRUE(plan.shape.grid >= 1 && plan.shape.grid <= static_cast<unsigned>(resident))
              << plan.shape.grid;
        }
      }
    }
  }
}

TEST(DevicePlan, PicksWhatWasMeasuredToBeQuickest) {
  const auto pick = [](int ranks, std::size_t bytes, DType type) {
    return plan_device_all_reduce(
               {.ranks = ranks, .bytes = bytes, .type = type, .forced = {}, .staging_bytes = 16 << 20})
        .protocol;
  };
  EXPECT_EQ(pick(2, 1 << 10, DType::bf16), DeviceProtocol::packets);
  EXPECT_EQ(pick(2, 2 << 20, DType::bf16), DeviceProtocol::mail_one_shot);
  EXPECT_EQ(pick(4, 1 << 10, DType::bf16), DeviceProtocol::packets);
  EXPECT_EQ(pick(4, 64 << 10, DType::bf16), DeviceProtocol::mail_one_shot);
  EXPECT_EQ(pick(4, 1 << 20, DType::bf16), DeviceProtocol::mail_two_shot);
  EXPECT_EQ(pick(4, 16 << 20, DType::bf16), DeviceProtocol::mail_two_shot);
  EXPECT_EQ(pick(4, 64 << 20, DType::bf16), DeviceProtocol::chunks);
  EXPECT_EQ(pick(4, 64 << 10, DType::i32), DeviceProtocol::packets);
  EXPECT_EQ(pick(4, 1 << 20, DType::i32), DeviceProtocol::chunks);
}

TEST(DevicePlan, CopyEnginesCarryLongMessagesWhereTheyHaveMemory) {
  const auto plan = [](int ranks, std::size_t bytes, std::size_t copy_bytes) {
    return plan_device_all_reduce({.ranks = ranks,
                                   .bytes = bytes,
                                   .type = DType::bf16,
                                   .forced = {},
                                   .staging_bytes = 16 << 20,
                                   .copy_bytes = copy_bytes});
  };
  EXPECT_EQ(plan(4, 256 * kMiB, 0).protocol, DeviceProtocol::chunks);
  EXPECT_EQ(plan(4, 256 * kMiB, 256 * kMiB).protocol, DeviceProtocol::chunks) << "rounds of 16 MiB";
  EXPECT_EQ(plan(4, 255 * kMiB, 1024 * kMiB).protocol, DeviceProtocol::chunks) << "not two rounds of 32 MiB";
  const DevicePlan two = plan(4, 256 * kMiB, 1024 * kMiB);
  EXPECT_EQ(two.protocol, DeviceProtocol::copies);
  EXPECT_EQ(two.algorithm, Algorithm::two_shot);
  EXPECT_EQ(two.chunk, 32 * kMiB);
  EXPECT_EQ(two.shape.grid, 132u);
  EXPECT_EQ(two.shape.block, 512u);
  EXPECT_EQ(plan(4, 1024 * kMiB, 1024 * kMiB).chunk, 64 * kMiB);
  EXPECT_EQ(plan(4, 1025 * kMiB, 1024 * kMiB).protocol, DeviceProtocol::chunks) << "more than 4 rounds";
  EXPECT_EQ(plan(2, 4096 * kMiB, 512 * kMiB).protocol, DeviceProtocol::copies)
      << "2 ranks: any number of rounds";
  for (const std::size_t bytes : {256 * kMiB + 8, 333 * kMiB + 2, 1000 * kMiB - 2}) {
    const DevicePlan odd = plan(4, bytes, 1024 * kMiB);
    EXPECT_EQ(odd.protocol, DeviceProtocol::copies);
    EXPECT_EQ(odd.chunk % 16, 0u);
    EXPECT_LE(odd.chunk, cuda::SegmentLayout::of(4, 16 << 20, 1024 * kMiB).round_bytes);
  }
}

TEST(DevicePlan, CopyEnginesBringLongMessagesStraightToSymmetricMemoryInTwoHalvesOfEqualPieces) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    PlanRequest request{.ranks = ranks, .bytes = n * (64 << 20), .type = DType::bf16, .forced = {}};
    for (const std::size_t more : {std::size_t{0}, std::size_t{2}, n * 512 + 2, std::size_t{1} << 30}) {
      request.bytes = n * (64 << 20) + more;
      const std::optional<DevicePlan> plan = plan_direct_all_reduce(request);
      ASSERT_TRUE(plan.has_value());
      EXPECT_EQ(plan->algorithm, Algorithm::two_shot);
      EXPECT_EQ(plan->protocol, DeviceProtocol::copies);
      EXPECT_EQ(plan->launch_bytes % (n * 512), 0u);
      EXPECT_LE(plan->launch_bytes, request.bytes);
      EXPECT_LT(request.bytes - plan->launch_bytes, n * 512);
      const std::size_t piece = plan->launch_bytes / n;
      EXPECT_EQ(plan->chunk % 512, 0u);
      EXPECT_GE(plan->chunk, piece - plan->chunk);
      EXPECT_LE(plan->chunk, piece - plan->chunk + 512);
      EXPECT_GT(plan->shape.grid, 0u);
      EXPECT_LE(plan->shape.grid, static_cast<unsigned>(request.resident_blocks));
    }
    request.forced = Algorithm::one_shot;
    EXPECT_FALSE(plan_direct_all_reduce(request).has_value());
    request.forced = Algorithm::two_shot;
    EXPECT_TRUE(plan_direct_all_reduce(request).has_value());
    request.bytes = n * (64 << 20) - 2;
    EXPECT_FALSE(plan_direct_all_reduce(request).has_value());
    request = {.ranks = ranks, .bytes = n << 30, .policy = AlgorithmPolicy::legacy, .forced = {}};
    EXPECT_FALSE(plan_direct_all_reduce(request).has_value());
  }
}

TEST(DevicePlan, LegacyDeclinesWhatTheLegacyPolicyDeclines) {
  const PlanRequest declined{
      .ranks = 2, .bytes = 1024, .type = DType::i32, .policy = AlgorithmPolicy::legacy, .forced = {}};
  EXPECT_EQ(plan_device_all_reduce(declined).algorithm, Algorithm::none);
}

// --- lists ---

ListPlan list(const PlanRequest& each, const std::vector<std::size_t>& bytes) {
  return plan_device_list(each, bytes);
}

TEST(ListPlan, SmallCallsGoTogetherUpToWhatOneShotAndASlotTake) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    const PlanRequest each = request(ranks, 0);
    const std::size_t limit = ranks <= 4 ? 256 * kKiB : 128 * kKiB;
    EXPECT_EQ(list(each, {8, 1, 100, 4 * kKiB}).calls, 4u);
    EXPECT_EQ(list(each, {limit - 8, 8}).calls, 2u);
    EXPECT_EQ(list(each, {limit - 8, 8, 1}).calls, 2u);
    EXPECT_EQ(list(each, {limit - 8, 9}).calls, 1u) << "every message begins with a packet of its own";
    EXPECT_EQ(list(each, {limit - 7, 8}).calls, 1u);
    EXPECT_EQ(list(each, {limit, 1}).calls, 1u);
    EXPECT_EQ(list(each, {100, 64 * kMiB, 100}).calls, 1u);
    EXPECT_EQ(list(each, {64 * kMiB, 100, 100}).calls, 1u);
    EXPECT_EQ(list(each, {100, 100, 64 * kMiB}).calls, 2u);
    EXPECT_EQ(list(each, {100}).calls, 1u);
  }
}

TEST(ListPlan, HoldsSoManyMessagesAndAnyNumberOfEmptyCalls) {
  const std::vector<std::size_t> full(cuda::kMaxListed, 40);
  std::vector<std::size_t> more = full;
  more.push_back(0);
  EXPECT_EQ(list(request(2, 0), more).calls, cuda::kMaxListed + 1);
  more.push_back(1);
  EXPECT_EQ(list(request(2, 0), more).calls, cuda::kMaxListed + 1);
  EXPECT_EQ(list(request(2, 0), std::vector<std::size_t>(100)).calls, 1u) << "nothing to launch";
  EXPECT_EQ(list(request(2, 0), {0, 8}).calls, 2u);
  EXPECT_EQ(list(request(2, 0), {8, 0}).calls, 2u);
}

TEST(ListPlan, HoldsNoCallThatTakesTwoShotOrNone) {
  PlanRequest each = request(4, 0);
  each.forced = Algorithm::two_shot;
  EXPECT_EQ(list(each, {8, 8}).calls, 1u);
  each.forced = Algorithm::one_shot;
  EXPECT_EQ(list(each, {8, 8}).calls, 2u);
  EXPECT_EQ(list(each, {8, kMiB}).calls, 1u);
  each.forced.reset();
  each.policy = AlgorithmPolicy::legacy;
  EXPECT_EQ(list(each, {8, 8}).calls, 2u);
  EXPECT_EQ(list(each, {8, 6}).calls, 1u) << "the legacy policy declines 6 bytes";
  const Tuning two_shot = {.device = "",
                           .rows = {{.backend = Backend::cuda,
                                     .ranks = 4,
                                     .types = TypeClass::any,
                                     .way = DeviceWay{.protocol = DeviceProtocol::chunks, .blocks = 8}}}};
  each = request(4, 0);
  each.tuning = &two_shot;
  EXPECT_EQ(list(each, {8, 8}).calls, 1u);
}

TEST(ListPlan, IsLaunchedAsAMessageOfAllItsPackets) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{1000}, 4 * kKiB}) {
        PlanRequest each = request(ranks, 0);
        each.op = op;
        each.resident_blocks = ranks == 3 ? 5 : 132;
        const ListPlan together = list(each, std::vector<std::size_t>(20, bytes));
        ASSERT_EQ(together.calls, 20u);
        each.forced = Algorithm::one_shot;
        each.type = DType::i32;  // by packets at every size
        each.bytes = 20 * ((bytes + 7) / 8 * 8);
        const DevicePlan one = plan_device_all_reduce(each);
        ASSERT_EQ(one.protocol, DeviceProtocol::packets);
        EXPECT_EQ(together.shape.grid, one.shape.grid);
        EXPECT_EQ(together.shape.block, one.shape.block);
        EXPECT_EQ(together.shape.early, one.shape.early);
      }
    }
  }
}

// --- tables ---

Tuning one_row(Backend backend, int ranks, TypeClass types, const Way& way, std::uint64_t up_to = kNoLimit) {
  return {.device = "",
          .rows = {{.backend = backend, .ranks = ranks, .types = types, .up_to = up_to, .way = way}}};
}

PlanRequest with(const Tuning& tuning, int ranks, std::size_t bytes, DType type = DType::bf16) {
  PlanRequest each = request(ranks, bytes);
  each.type = type;
  each.staging_bytes = 16 * kMiB;
  each.tuning = &tuning;
  return each;
}

bool same(const DevicePlan& a, const DevicePlan& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol && a.launch_bytes == b.launch_bytes &&
         a.shape.grid == b.shape.grid && a.shape.block == b.shape.block && a.shape.early == b.shape.early;
}

bool same(const Plan& a, const Plan& b) {
  return a.algorithm == b.algorithm && a.chunk == b.chunk;
}

TEST(TunedPlan, ARowDecidesUpToItsSize) {
  const Tuning host = one_row(Backend::host, 2, TypeClass::any, HostWay{Algorithm::two_shot, 64 << 10}, 4096);
  EXPECT_TRUE(same(plan_all_reduce(with(host, 2, 4096)), {Algorithm::two_shot, 64 << 10}));
  EXPECT_EQ(plan_all_reduce(with(host, 2, 4097)).algorithm, Algorithm::one_shot);
  EXPECT_EQ(plan_all_reduce(with(host, 3, 4096)).algorithm, Algorithm::one_shot);

  const Tuning cuda = one_row(Backend::cuda, 4, TypeClass::floats,
                              DeviceWay{DeviceProtocol::mail_two_shot, 32, 128}, 64 * kMiB);
  const DevicePlan plan = plan_device_all_reduce(with(cuda, 4, 64 * kMiB));
  EXPECT_EQ(plan.algorithm, Algorithm::two_shot);
  EXPECT_EQ(plan.protocol, DeviceProtocol::mail_two_shot);
  EXPECT_EQ(plan.shape.grid, 32u);
  EXPECT_EQ(plan.shape.block, 128u);
  EXPECT_EQ(plan_device_all_reduce(with(cuda, 4, 64 * kMiB + 16)).protocol, DeviceProtocol::chunks);
  EXPECT_EQ(plan_device_all_reduce(with(cuda, 4, 1 * kMiB, DType::i32)).protocol, DeviceProtocol::chunks);
}

TEST(TunedPlan, ADefaultRowIsAsGoodAsNone) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    const Tuning tuning = one_row(backend, 4, TypeClass::any, DefaultWay{});
    for (const std::size_t bytes : kSizes) {
      PlanRequest without = with(tuning, 4, bytes);
      without.tuning = nullptr;
      EXPECT_TRUE(same(plan_all_reduce(with(tuning, 4, bytes)), plan_all_reduce(without)));
      EXPECT_TRUE(same(plan_device_all_reduce(with(tuning, 4, bytes)), plan_device_all_reduce(without)));
    }
  }
}

TEST(TunedPlan, ForcedAlgorithmsAndTheLegacyPolicyWinOverARow) {
  const Tuning host = one_row(Backend::host, 2, TypeClass::any, HostWay{Algorithm::two_shot, 64 << 10});
  const Tuning cuda =
      one_row(Backend::cuda, 2, TypeClass::floats, DeviceWay{DeviceProtocol::mail_two_shot, 32, 128});
  PlanRequest forced = with(host, 2, kMiB);
  forced.forced = Algorithm::one_shot;
  EXPECT_EQ(plan_all_reduce(forced).algorithm, Algorithm::one_shot);
  forced.tuning = &cuda;
  EXPECT_EQ(plan_device_all_reduce(forced).protocol, DeviceProtocol::mail_one_shot);

  PlanRequest old = with(host, 2, 1024);
  old.policy = AlgorithmPolicy::legacy;
  EXPECT_EQ(plan_all_reduce(old).algorithm, Algorithm::one_shot);
  old.tuning = &cuda;
  EXPECT_EQ(plan_device_all_reduce(old).algorithm, Algorithm::one_shot);
}

TEST(TunedPlan, BlocksAndThreadsAreCutToWhatThereIs) {
  const Tuning mail =
      one_row(Backend::cuda, 4, TypeClass::floats, DeviceWay{DeviceProtocol::mail_two_shot, kAllBlocks, 512});
  PlanRequest each = with(mail, 4, 64 * kMiB);
  each.resident_blocks = 66;
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, 66u);
  EXPECT_EQ(plan_device_all_reduce(each).shape.block, 512u);
  each.op = ReduceOp::max;
  EXPECT_EQ(plan_device_all_reduce(each).shape.block, 256u) << "kernels for other reductions have no more";
  EXPECT_EQ(plan_device_all_reduce(with(mail, 4, 4 * kKiB)).shape.grid, 1u)
      << "no more than there is work for";

  const Tuning chunks = one_row(Backend::cuda, 4, TypeClass::any,
                                DeviceWay{.protocol = DeviceProtocol::chunks, .blocks = kAllBlocks});
  each = with(chunks, 4, 64 * kMiB);
  each.resident_blocks = 200;
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, cuda::kMaxChunkedBlocks);

  const Tuning copies =
      one_row(Backend::cuda, 4, TypeClass::any, DeviceWay{.protocol = DeviceProtocol::copies, .blocks = 8});
  each = with(copies, 4, 1 * kMiB);
  EXPECT_EQ(plan_device_all_reduce(each).protocol, DeviceProtocol::mail_two_shot) << "no memory for them";
  each.copy_bytes = 1 * kMiB;
  EXPECT_EQ(plan_device_all_reduce(each).protocol, DeviceProtocol::copies);
  EXPECT_EQ(plan_device_all_reduce(each).chunk, 64 * kKiB) << "4 rounds";
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, 8u);
}

TEST(DevicePlan, AReduceScatterGoesByWhatCarriesItsTypeAndIsQuickest) {
  const auto protocol = [](int ranks, std::size_t block, DType type) {
    PlanRequest each = request(ranks, block);
    each.type = type;
    return plan_device_reduce_scatter(each).protocol;
  };
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    EXPECT_EQ(protocol(ranks, 4 * kKiB, DType::bf16), ScatterProtocol::packets);
    EXPECT_EQ(protocol(ranks, 64 * kKiB, DType::bf16), ScatterProtocol::mail);
    EXPECT_EQ(protocol(ranks, 8 * kMiB, DType::e4m3), ScatterProtocol::mail);
    EXPECT_EQ(protocol(ranks, 8 * kMiB + 16, DType::f64), ScatterProtocol::streams);
    EXPECT_EQ(protocol(ranks, cuda::kPacketSlotBytes, DType::i8), ScatterProtocol::packets);
    EXPECT_EQ(protocol(ranks, cuda::kPacketSlotBytes + 1, DType::u64), ScatterProtocol::streams);
    for (const std::size_t bytes : kSizes) {
      for (const DType type : {DType::bf16, DType::i32}) {
        PlanRequest each = request(ranks, bytes);
        each.type = type;
        each.resident_blocks = ranks == 3 ? 5 : 132;
        const ReduceScatterPlan plan = plan_device_reduce_scatter(each);
        ASSERT_TRUE(carries(plan.protocol, type));
        if (plan.protocol == ScatterProtocol::streams) continue;
        ASSERT_TRUE(plan.launch_bytes > 0 && plan.launch_bytes % 16 == 0);
        ASSERT_TRUE(plan.shape.grid >= 1 && plan.shape.grid <= static_cast<unsigned>(each.resident_blocks));
        ASSERT_TRUE(plan.shape.block % 32 == 0 && plan.shape.block <= 512);
      }
    }
  }
}

TEST(DevicePlan, AReduceIsAnAllReduceWhereThatIsQuickerAndForcedAsAsked) {
  const auto of = [](int ranks, std::size_t bytes, DType type, std::optional<Algorithm> forced = {}) {
    PlanRequest each = request(ranks, bytes);
    each.type = type;
    each.forced = forced;
    return plan_device_reduce(each);
  };
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    for (const DType type : {DType::bf16, DType::i32}) {
      const bool floats = type == DType::bf16;
      const std::size_t limit = floats ? cuda::kDiscardBytes : cuda::kPacketSlotBytes;
      for (const std::size_t bytes : {std::size_t{16}, 16 * kKiB, 256 * kKiB, limit}) {
        const ReducePlan small = of(ranks, bytes, type);
        ASSERT_TRUE(small.of_all);
        EXPECT_TRUE(carries(small.of_all->protocol, type));
        EXPECT_NE(small.of_all->protocol, DeviceProtocol::copies);
        EXPECT_EQ(small.algorithm, small.of_all->algorithm);
        if (!floats) {
          EXPECT_EQ(small.of_all->protocol, DeviceProtocol::packets);
        }
      }
      const ReducePlan large = of(ranks, limit + 16, type);
      EXPECT_FALSE(large.of_all);
      EXPECT_EQ(large.algorithm, ranks == 2 ? Algorithm::one_shot : Algorithm::two_shot);
      for (const Algorithm forced : {Algorithm::one_shot, Algorithm::two_shot}) {
        for (const std::size_t bytes : {std::size_t{100}, limit, limit + 16}) {
          const ReducePlan plan = of(ranks, bytes, type, forced);
          EXPECT_EQ(plan.algorithm, forced);
          const bool packets = forced == Algorithm::one_shot || floats;
          EXPECT_EQ(plan.of_all.has_value(), bytes <= limit && packets);
        }
      }
    }
  }
}

TEST(DevicePlan, AMessageBetweenTwoRanksIsCutFromItsLengthAlone) {
  for (const std::size_t slot : {std::size_t{512}, std::size_t{8} << 10}) {
    for (const unsigned most : {1u, 5u, 336u, 1024u}) {
      for (const std::size_t bytes : kSizes) {
        if (bytes == 0) continue;
        const cuda::PairShape shape = cuda::cut_into_chunks(bytes, slot, most);
        ASSERT_TRUE(shape.chunk % 16 == 0 && shape.chunk <= slot);
        ASSERT_TRUE(shape.streams >= 1 && shape.streams <= most);
        ASSERT_LT(std::size_t{shape.streams - 1} * shape.chunk, bytes) << "a stream without a chunk";
        const std::size_t round = std::size_t{shape.streams} * shape.chunk;
        ASSERT_LE((bytes + round - 1) / round, (bytes + most * slot - 1) / (most * slot)) << "more rounds";
      }
    }
  }
}

TEST(TunedPlan, EveryCandidateIsAPlanOfItsOwnForEverySize) {
  for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
    const DType type = types == TypeClass::floats ? DType::f16 : DType::i64;
    for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
      for (const Way& way : candidate_ways(Backend::cuda, ranks, types)) {
        const Tuning tuning = one_row(Backend::cuda, ranks, types, way);
        for (const std::size_t bytes : kSizes) {
          PlanRequest each = with(tuning, ranks, bytes, type);
          each.resident_blocks = ranks == 3 ? 5 : 132;
          const DevicePlan plan = plan_device_all_reduce(each);
          ASSERT_TRUE(carries(plan.protocol, type));
          if (const auto* wanted = std::get_if<DeviceWay>(&way)) {
            ASSERT_EQ(plan.protocol, wanted->protocol);
            if (wanted->threads != 0) {
              ASSERT_EQ(plan.shape.block, wanted->threads);
            }
            ASSERT_LE(plan.shape.grid, wanted->blocks);
          }
          ASSERT_GT(plan.launch_bytes, 0u);
          ASSERT_TRUE(plan.shape.grid >= 1 && plan.shape.grid <= static_cast<unsigned>(each.resident_blocks));
        }
      }
      for (const Way& way : candidate_ways(Backend::host, ranks, types)) {
        const Tuning tuning = one_row(Backend::host, ranks, types, way);
        const host::StagingLayout layout(64 * kKiB);
        for (const std::size_t bytes : kSizes) {
          PlanRequest each = with(tuning, ranks, bytes, type);
          each.staging_bytes = 64 * kKiB;
          const Plan plan = plan_all_reduce(each);
          ASSERT_TRUE(plan.chunk > 0 && plan.chunk % 64 == 0 && plan.chunk <= layout.input_bytes);
          if (plan.algorithm == Algorithm::two_shot) {
            ASSERT_LE(plan.chunk, layout.max_chunk(ranks));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace onehop
