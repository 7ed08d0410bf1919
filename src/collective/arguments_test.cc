// SPDX-License-Identifier: Apache-2.0
#include "collective/arguments.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace onehop {
namespace {

constexpr int kRanks = 4;
const CallOptions kDefaults;

alignas(64) std::array<std::byte, 1024> g_memory;
std::byte* at(std::size_t offset) {
  return g_memory.data() + offset;
}

/// A block of `count` f32 at `in` and one at `out`.
Arguments call(const std::byte* in, std::byte* out, std::size_t count = 16) {
  return {.kind = CallKind::all_reduce,
          .in = in,
          .out = out,
          .count = count,
          .op = ReduceOp::sum,
          .options = kDefaults};
}

CallDefect defect_of(const Arguments& arguments) {
  return find_defect(arguments, kRanks);
}

TEST(FindDefect, AcceptsDataThatIsApartOrTouches) {
  EXPECT_EQ(defect_of(call(at(0), at(64))), CallDefect::none);
  EXPECT_EQ(defect_of(call(at(64), at(0))), CallDefect::none);
  EXPECT_EQ(defect_of(call(at(4), at(512))), CallDefect::none);
}

TEST(FindDefect, TakesOverlapsForWhatTheyAre) {
  EXPECT_EQ(defect_of(call(at(0), at(0))), CallDefect::none);
  EXPECT_EQ(defect_of(call(at(0), at(60))), CallDefect::overlap);
  EXPECT_EQ(defect_of(call(at(60), at(0))), CallDefect::overlap);
  Arguments never = call(at(0), at(0));
  never.in_place = std::nullopt;
  EXPECT_EQ(defect_of(never), CallDefect::in_place);
  never.out = at(4);
  EXPECT_EQ(defect_of(never), CallDefect::overlap);
}

TEST(FindDefect, KnowsWhereInPlaceIsWhenOneSideHasSeveralBlocks) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int block = 0; block < kRanks; ++block) {
      const std::size_t offset = static_cast<std::size_t>(block) * 64;
      Arguments gather = call(at(offset), at(0));
      gather.out_blocks = kRanks;
      gather.in_place = rank;
      EXPECT_EQ(defect_of(gather), block == rank ? CallDefect::none : CallDefect::overlap);
      Arguments scatter = call(at(0), at(offset));
      scatter.in_blocks = kRanks;
      scatter.in_place = -rank;
      EXPECT_EQ(defect_of(scatter), block == rank ? CallDefect::none : CallDefect::overlap);
    }
  }
  Arguments behind = call(at(256), at(0));
  behind.out_blocks = kRanks;
  behind.in_place = 0;
  EXPECT_EQ(defect_of(behind), CallDefect::none);
  behind.in = at(252);
  EXPECT_EQ(defect_of(behind), CallDefect::overlap);
}

TEST(FindDefect, LooksOnlyAtPointersThatTheRankNeeds) {
  EXPECT_EQ(defect_of(call(nullptr, at(0))), CallDefect::null_input);
  EXPECT_EQ(defect_of(call(at(0), nullptr)), CallDefect::null_output);
  EXPECT_EQ(defect_of(call(at(2), at(64))), CallDefect::misaligned);
  EXPECT_EQ(defect_of(call(at(64), at(1))), CallDefect::misaligned);
  EXPECT_EQ(defect_of(call(nullptr, nullptr, 0)), CallDefect::none);
  EXPECT_EQ(defect_of(call(at(1), at(1), 0)), CallDefect::none);
  for (const std::byte* const in : std::array<const std::byte*, 3>{nullptr, at(1), at(68)}) {
    Arguments receiver = call(in, at(64));
    receiver.in_blocks = 0;
    EXPECT_EQ(defect_of(receiver), CallDefect::none);
  }
  Arguments sender = call(at(64), at(66));
  sender.out_blocks = 0;
  EXPECT_EQ(defect_of(sender), CallDefect::none);
}

TEST(FindDefect, RefusesRootsThatAreNoRank) {
  for (const int root : {-1, kRanks, 1 << 20, -(1 << 20)}) {
    Arguments each = call(at(0), at(64));
    each.root = Rank{root};
    EXPECT_EQ(defect_of(each), CallDefect::unknown_root) << root;
  }
  for (int root = 0; root < kRanks; ++root) {
    Arguments each = call(at(0), at(64));
    each.root = Rank{root};
    EXPECT_EQ(defect_of(each), CallDefect::none) << root;
  }
}

TEST(FindDefect, RefusesCountsWhoseBytesCannotBeAddedUp) {
  constexpr std::size_t kLimit = (std::size_t{1} << 56) / 4;
  EXPECT_EQ(defect_of(call(nullptr, nullptr, kLimit + 1)), CallDefect::too_large);
  EXPECT_EQ(defect_of(call(nullptr, nullptr, SIZE_MAX)), CallDefect::too_large);
  EXPECT_EQ(defect_of(call(nullptr, nullptr, kLimit)), CallDefect::null_input);
  Arguments many = call(nullptr, nullptr, kLimit / kRanks);
  many.out_blocks = kRanks;
  EXPECT_EQ(defect_of(many), CallDefect::null_input);
  ++many.count;
  EXPECT_EQ(defect_of(many), CallDefect::too_large);
}

TEST(FindDefect, LetsOnlyReductionsToWholeArraysChooseTheirAlgorithm) {
  CallOptions options;
  for (int kind = 2; kind <= static_cast<int>(CallKind::scatter); ++kind) {
    const Arguments each{
        .kind = static_cast<CallKind>(kind), .in = at(0), .out = at(64), .count = 1, .options = options};
    const bool choice = each.kind == CallKind::all_reduce || each.kind == CallKind::reduce;
    options.algorithm = Algorithm::two_shot;
    EXPECT_EQ(defect_of(each), choice ? CallDefect::none : CallDefect::unsuitable_algorithm)
        << to_text(each.kind);
    options.algorithm = Algorithm::one_shot;
    EXPECT_EQ(defect_of(each), CallDefect::none);
    for (const int algorithm : {0, 3, 99}) {
      options.algorithm = static_cast<Algorithm>(algorithm);
      EXPECT_EQ(defect_of(each), CallDefect::unknown_algorithm);
    }
  }
}

TEST(FindDefect, RefusesTypesAndOpsThatDoNotExist) {
  Arguments type = call(at(0), at(64));
  type.type = static_cast<DType>(kDTypeCount);
  EXPECT_EQ(defect_of(type), CallDefect::unknown_type);
  Arguments op = call(at(0), at(64));
  op.op = static_cast<ReduceOp>(kReduceOpCount);
  EXPECT_EQ(defect_of(op), CallDefect::unknown_op);
}

TEST(FindDefect, LetsOnlyPremultipliedSumsHaveAFactor) {
  CallOptions options;
  const auto with = [&](std::optional<ReduceOp> op, DType type, double factor) {
    options.factor = factor;
    Arguments each{.kind = op ? CallKind::all_reduce : CallKind::all_gather,
                   .in = at(0),
                   .out = at(512),
                   .count = 16,
                   .type = type,
                   .options = options};
    each.op = op;
    return defect_of(each);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double factor : {0.5, 0.0, -1.0, nan}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      EXPECT_EQ(with(op, DType::f32, factor), CallDefect::factor_without_use) << to_string(op);
    }
    EXPECT_EQ(with(std::nullopt, DType::f32, factor), CallDefect::factor_without_use);
    EXPECT_EQ(with(ReduceOp::premul_sum, DType::bf16, factor), CallDefect::none) << factor;
  }
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::i32, 0.5), CallDefect::factor_not_of_type);
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::u8, -1), CallDefect::factor_not_of_type);
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::i8, -1), CallDefect::none);
  EXPECT_EQ(with(ReduceOp::premul_sum, static_cast<DType>(kDTypeCount), 2), CallDefect::unknown_type);
}

TEST(DescribeCall, CarriesARootThatIsNoRankAsFarAsItGoes) {
  Arguments each = call(at(0), at(64));
  EXPECT_EQ(describe_call(each, CallDefect::none).root, -1);
  each.root = Rank{3};
  EXPECT_EQ(describe_call(each, CallDefect::none).root, 3);
  each.root = Rank{1 << 20};
  EXPECT_EQ(describe_call(each, CallDefect::none).root, INT8_MAX);
}

}  // namespace
}  // namespace onehop
