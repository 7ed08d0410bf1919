// SPDX-License-Identifier: Apache-2.0
// Plans of collectives between GPUs, and of lists of small ones.
#include <gtest/gtest.h>

#include "collective/plan_testing.h"
#include "kernel/cuda/call_params.h"

namespace onehop {
namespace {

using namespace plan_testing;

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
      EXPECT_EQ(plan->protocol, DeviceProtocol::direct);
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

TEST(DevicePlan, AReduceScatterGoesByWhatCarriesItsTypeAndIsQuickest) {
  const auto protocol = [](int ranks, std::size_t block, DType type) {
    PlanRequest each = request(ranks, block);
    each.type = type;
    return plan_device_reduce_scatter(each).protocol;
  };
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    EXPECT_EQ(protocol(ranks, 4 * kKiB, DType::bf16), DeviceProtocol::packets);
    EXPECT_EQ(protocol(ranks, 64 * kKiB, DType::bf16), DeviceProtocol::mail_one_shot);
    EXPECT_EQ(protocol(ranks, 8 * kMiB, DType::e4m3), DeviceProtocol::mail_one_shot);
    EXPECT_EQ(protocol(ranks, 8 * kMiB + 16, DType::f64), DeviceProtocol::streams);
    EXPECT_EQ(protocol(ranks, cuda::kPacketSlotBytes, DType::i8), DeviceProtocol::packets);
    EXPECT_EQ(protocol(ranks, cuda::kPacketSlotBytes + 1, DType::u64), DeviceProtocol::streams);
    for (const std::size_t bytes : kSizes) {
      for (const DType type : {DType::bf16, DType::i32}) {
        PlanRequest each = request(ranks, bytes);
        each.type = type;
        each.resident_blocks = ranks == 3 ? 5 : 132;
        const DevicePlan plan = plan_device_reduce_scatter(each);
        ASSERT_TRUE(carries(plan.protocol, type));
        if (plan.protocol == DeviceProtocol::streams) continue;
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
  const auto is_as_all_reduce = [](const DevicePlan& plan) {
    return plan.protocol == DeviceProtocol::packets || plan.protocol == DeviceProtocol::mail_one_shot ||
           plan.protocol == DeviceProtocol::mail_two_shot;
  };
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    for (const DType type : {DType::bf16, DType::i32}) {
      const bool floats = type == DType::bf16;
      const std::size_t limit = floats ? cuda::kDiscardBytes : cuda::kPacketSlotBytes;
      for (const std::size_t bytes : {std::size_t{16}, 16 * kKiB, 256 * kKiB, limit}) {
        const DevicePlan small = of(ranks, bytes, type);
        EXPECT_TRUE(is_as_all_reduce(small));
        EXPECT_TRUE(carries(small.protocol, type));
        if (!floats) {
          EXPECT_EQ(small.protocol, DeviceProtocol::packets);
        }
      }
      const DevicePlan large = of(ranks, limit + 16, type);
      EXPECT_FALSE(is_as_all_reduce(large));
      EXPECT_EQ(large.algorithm, ranks == 2 ? Algorithm::one_shot : Algorithm::two_shot);
      for (const Algorithm forced : {Algorithm::one_shot, Algorithm::two_shot}) {
        for (const std::size_t bytes : {std::size_t{100}, limit, limit + 16}) {
          const DevicePlan plan = of(ranks, bytes, type, forced);
          EXPECT_EQ(plan.algorithm, forced);
          const bool packets = forced == Algorithm::one_shot || floats;
          EXPECT_EQ(is_as_all_reduce(plan), bytes <= limit && packets);
        }
      }
    }
  }
}

TEST(DevicePlan, ABroadcastGoesInPiecesWhereMoreThanTwoRanksGainByThem) {
  const auto protocol = [](Collective collective, int ranks, std::size_t bytes, bool symmetric = false) {
    CollectiveCall call;
    call.collective = collective;
    call.type = DType::u8;
    call.count = bytes;
    call.ranks = ranks;
    call.symmetric = symmetric;
    return plan_device_exchange(call).protocol;
  };
  const std::size_t limit = cuda::pair_bundle_bytes(4) / 3;
  EXPECT_EQ(protocol(Collective::broadcast, 4, limit), DeviceProtocol::streams);
  EXPECT_EQ(protocol(Collective::broadcast, 4, limit + 1), DeviceProtocol::streams_two_shot);
  EXPECT_EQ(protocol(Collective::broadcast, 2, 64 * kMiB), DeviceProtocol::streams);
  EXPECT_EQ(protocol(Collective::broadcast, 2, 64 * kMiB, true), DeviceProtocol::direct);
  EXPECT_EQ(protocol(Collective::broadcast, 4, 64 * kMiB, true), DeviceProtocol::streams_two_shot);
  EXPECT_EQ(protocol(Collective::all_gather, 4, 64 * kMiB), DeviceProtocol::streams);
  EXPECT_EQ(protocol(Collective::all_gather, 4, 64 * kMiB, true), DeviceProtocol::direct);
  EXPECT_EQ(protocol(Collective::all_gather, 4, 16 * kMiB, true), DeviceProtocol::streams);
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
        each.type = DType::i32;  // uses packets at every size
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

}  // namespace
}  // namespace onehop
