// SPDX-License-Identifier: Apache-2.0
// The legacy policy, and which kind of algorithm a call asks for.
#include "collective/policy.h"

#include <gtest/gtest.h>

#include <array>

namespace onehop {
namespace {

constexpr std::size_t kKibibyte = 1 << 10;
constexpr std::size_t kMebibyte = 1 << 20;

Algorithm legacy(DType type, std::size_t bytes, ReduceOp op = ReduceOp::sum,
                 std::size_t staging_bytes = 64 * kMebibyte) {
  return legacy_algorithm(type, op, bytes, staging_bytes);
}

TEST(LegacyPolicy, HasItsLimitsAtExactly256KiBAnd10MiB) {
  struct Row {
    DType type;
    std::size_t bytes;
    Algorithm expected;
  };
  const Row rows[] = {
      {DType::f32, 0, Algorithm::one_shot},
      {DType::f32, 4, Algorithm::one_shot},
      {DType::f32, 256 * kKibibyte, Algorithm::one_shot},
      {DType::f32, 256 * kKibibyte + 4, Algorithm::two_shot},
      {DType::f32, 10 * kMebibyte, Algorithm::two_shot},
      {DType::f32, 10 * kMebibyte + 4, Algorithm::none},
      {DType::bf16, 256 * kKibibyte, Algorithm::one_shot},
      {DType::bf16, 256 * kKibibyte + 4, Algorithm::two_shot},
      {DType::bf16, 10 * kMebibyte, Algorithm::two_shot},
      {DType::bf16, 10 * kMebibyte + 4, Algorithm::none},
      {DType::bf16, 2, Algorithm::none},  // an odd count: not a multiple of 4 bytes
      {DType::bf16, 34, Algorithm::none},
      {DType::bf16, 256 * kKibibyte + 2, Algorithm::none},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(legacy(row.type, row.bytes), row.expected) << to_string(row.type) << " " << row.bytes;
  }
}

TEST(LegacyPolicy, AcceptsSumsOfF32AndBf16Only) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto each = static_cast<DType>(type);
    const bool accepted = each == DType::f32 || each == DType::bf16;
    EXPECT_EQ(legacy(each, 1024), accepted ? Algorithm::one_shot : Algorithm::none) << to_string(each);
    EXPECT_EQ(legacy(each, kMebibyte), accepted ? Algorithm::two_shot : Algorithm::none) << to_string(each);
  }
  for (int op = 0; op < kReduceOpCount; ++op) {
    const auto each = static_cast<ReduceOp>(op);
    EXPECT_EQ(legacy(DType::f32, 1024, each), each == ReduceOp::sum ? Algorithm::one_shot : Algorithm::none)
        << to_string(each);
  }
}

TEST(LegacyPolicy, AcceptsNoMoreThanTheStagingAreaHolds) {
  EXPECT_EQ(legacy(DType::f32, 128 * kKibibyte, ReduceOp::sum, 128 * kKibibyte), Algorithm::one_shot);
  EXPECT_EQ(legacy(DType::f32, 128 * kKibibyte + 4, ReduceOp::sum, 128 * kKibibyte), Algorithm::none);
  EXPECT_EQ(legacy(DType::f32, 2 * kMebibyte, ReduceOp::sum, 2 * kMebibyte), Algorithm::two_shot);
  EXPECT_EQ(legacy(DType::f32, 2 * kMebibyte + 4, ReduceOp::sum, 2 * kMebibyte), Algorithm::none);
}

TEST(LegacyPolicy, WantsBothPointersAlignedToFourBytes) {
  alignas(64) static const std::byte data[64] = {};
  for (std::size_t in = 0; in < 8; ++in) {
    for (std::size_t out = 0; out < 8; ++out) {
      EXPECT_EQ(legacy_alignment_ok(data + in, data + out), in % 4 == 0 && out % 4 == 0) << in << " " << out;
    }
  }
}

TEST(RequestedKind, IsThatOfTheCallOrOfTheLegacyPolicy) {
  CollectiveCall call;
  call.collective = Collective::all_reduce;
  call.type = DType::f32;
  call.count = kMebibyte / 4;
  const auto requested = [&](AlgorithmPolicy policy) { return requested_kind(call, policy, 64 * kMebibyte); };
  EXPECT_EQ(requested(AlgorithmPolicy::tuned), std::nullopt);
  EXPECT_EQ(requested(AlgorithmPolicy::legacy), Algorithm::two_shot);
  call.count = 20 * kMebibyte / 4;
  EXPECT_EQ(requested(AlgorithmPolicy::tuned), std::nullopt);
  EXPECT_EQ(requested(AlgorithmPolicy::legacy), Algorithm::none);
  for (const AlgorithmPolicy policy : {AlgorithmPolicy::tuned, AlgorithmPolicy::legacy}) {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      call.options.algorithm = algorithm;
      EXPECT_EQ(requested(policy), algorithm);
      EXPECT_FALSE(is_legacy(call, policy));
    }
  }
}

TEST(RequestedKind, IsLeftOpenByTheLegacyPolicyForOtherCollectives) {
  for (int number = 0; number < kCollectiveCount; ++number) {
    CollectiveCall call;
    call.collective = static_cast<Collective>(number);
    call.type = DType::i8;
    call.count = 3;
    const bool all_reduce = call.collective == Collective::all_reduce;
    EXPECT_EQ(is_legacy(call, AlgorithmPolicy::legacy), all_reduce);
    EXPECT_EQ(requested_kind(call, AlgorithmPolicy::legacy, kMebibyte),
              all_reduce ? std::optional(Algorithm::none) : std::nullopt);
  }
}

}  // namespace
}  // namespace onehop
