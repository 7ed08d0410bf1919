// SPDX-License-Identifier: Apache-2.0
// Plans of all-reduces between host ranks.
#include <gtest/gtest.h>

#include "collective/plan_testing.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

using namespace plan_testing;

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

}  // namespace
}  // namespace onehop
