// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "call/check_call.h"

namespace onehop {
namespace {

constexpr int kRanks = 4;

alignas(64) std::array<std::byte, 1024> g_memory;
std::byte* at(std::size_t offset) {
  return g_memory.data() + offset;
}

constexpr std::array<std::size_t, kRanks> kZeros{};
constexpr Blocks kNoElements{.counts = kZeros, .offsets = kZeros};

/// Blocks of `count` f32 at `in` and `out`, on rank 1 of 4.
CollectiveCall call(const std::byte* in, std::byte* out, std::size_t count = 16,
                    Collective collective = Collective::all_reduce) {
  CollectiveCall call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.root = Rank{1};
  call.rank = 1;
  call.ranks = kRanks;
  return call;
}

TEST(FindArgumentError, AcceptsDataThatIsApartOrTouches) {
  EXPECT_EQ(find_argument_error(call(at(0), at(64))), ArgumentError::none);
  EXPECT_EQ(find_argument_error(call(at(64), at(0))), ArgumentError::none);
  EXPECT_EQ(find_argument_error(call(at(4), at(512))), ArgumentError::none);
}

TEST(FindArgumentError, TakesOverlapsForWhatTheyAre) {
  EXPECT_EQ(find_argument_error(call(at(0), at(0))), ArgumentError::none);
  EXPECT_EQ(find_argument_error(call(at(0), at(60))), ArgumentError::overlap);
  EXPECT_EQ(find_argument_error(call(at(60), at(0))), ArgumentError::overlap);
  CollectiveCall never = call(at(0), at(0), 4, Collective::all_to_all);
  EXPECT_EQ(find_argument_error(never), ArgumentError::in_place);
  never.out = at(4);
  EXPECT_EQ(find_argument_error(never), ArgumentError::overlap);
}

TEST(FindArgumentError, KnowsWhereInPlaceIsWhenOneSideHasSeveralBlocks) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int block = 0; block < kRanks; ++block) {
      const std::size_t offset = static_cast<std::size_t>(block) * 64;
      CollectiveCall gather = call(at(offset), at(0), 16, Collective::all_gather);
      CollectiveCall scatter = call(at(0), at(offset), 16, Collective::reduce_scatter);
      gather.rank = scatter.rank = rank;
      const ArgumentError expected = block == rank ? ArgumentError::none : ArgumentError::overlap;
      EXPECT_EQ(find_argument_error(gather), expected);
      EXPECT_EQ(find_argument_error(scatter), expected);
    }
  }
  CollectiveCall behind = call(at(256), at(0), 16, Collective::all_gather);
  EXPECT_EQ(find_argument_error(behind), ArgumentError::none);
  behind.in = at(252);
  EXPECT_EQ(find_argument_error(behind), ArgumentError::overlap);
}

TEST(FindArgumentError, LooksOnlyAtPointersThatTheRankNeeds) {
  EXPECT_EQ(find_argument_error(call(nullptr, at(0))), ArgumentError::null_input);
  EXPECT_EQ(find_argument_error(call(at(0), nullptr)), ArgumentError::null_output);
  EXPECT_EQ(find_argument_error(call(at(2), at(64))), ArgumentError::misaligned);
  EXPECT_EQ(find_argument_error(call(at(64), at(1))), ArgumentError::misaligned);
  EXPECT_EQ(find_argument_error(call(nullptr, nullptr, 0)), ArgumentError::none);
  EXPECT_EQ(find_argument_error(call(at(1), at(1), 0)), ArgumentError::none);
  for (const std::byte* const in : std::array<const std::byte*, 3>{nullptr, at(1), at(68)}) {
    CollectiveCall receiver = call(in, at(64), 16, Collective::broadcast);
    EXPECT_NE(find_argument_error(receiver), ArgumentError::none) << "the root passes its input";
    receiver.root = Rank{0};
    EXPECT_EQ(find_argument_error(receiver), ArgumentError::none);
  }
  CollectiveCall sender = call(at(64), at(66), 16, Collective::reduce);
  EXPECT_EQ(find_argument_error(sender), ArgumentError::misaligned);
  sender.root = Rank{0};
  EXPECT_EQ(find_argument_error(sender), ArgumentError::none);
}

TEST(FindArgumentError, RefusesRootsThatAreNoRank) {
  for (const int root : {-1, kRanks, 1 << 20, -(1 << 20)}) {
    CollectiveCall each = call(at(0), at(64), 16, Collective::broadcast);
    each.root = Rank{root};
    EXPECT_EQ(find_argument_error(each), ArgumentError::unknown_root) << root;
  }
  for (int root = 0; root < kRanks; ++root) {
    CollectiveCall each = call(at(0), at(64), 16, Collective::broadcast);
    each.root = Rank{root};
    EXPECT_EQ(find_argument_error(each), ArgumentError::none) << root;
  }
}

TEST(FindArgumentError, RefusesCountsWhoseBytesCannotBeAddedUp) {
  constexpr std::size_t kLimit = (std::size_t{1} << 56) / 4;
  EXPECT_EQ(find_argument_error(call(nullptr, nullptr, kLimit + 1)), ArgumentError::too_large);
  EXPECT_EQ(find_argument_error(call(nullptr, nullptr, SIZE_MAX)), ArgumentError::too_large);
  EXPECT_EQ(find_argument_error(call(nullptr, nullptr, kLimit)), ArgumentError::null_input);
  CollectiveCall many = call(nullptr, nullptr, kLimit / kRanks, Collective::all_gather);
  EXPECT_EQ(find_argument_error(many), ArgumentError::null_input);
  ++many.count;
  EXPECT_EQ(find_argument_error(many), ArgumentError::too_large);
}

TEST(FindArgumentError, LetsOnlyReductionsToWholeArraysChooseTheirAlgorithm) {
  for (int number = 0; number < kCollectiveCount; ++number) {
    CollectiveCall each = call(at(0), at(64), 1, static_cast<Collective>(number));
    if (each.traits().in == Amount::counted_by_rank) each.in_blocks = each.out_blocks = kNoElements;
    const bool choice = each.collective == Collective::all_reduce || each.collective == Collective::reduce;
    each.options.algorithm = Algorithm::two_shot;
    EXPECT_EQ(find_argument_error(each), choice ? ArgumentError::none : ArgumentError::unsuitable_algorithm)
        << each.traits().name;
    each.options.algorithm = Algorithm::one_shot;
    EXPECT_EQ(find_argument_error(each), ArgumentError::none) << each.traits().name;
    for (const int algorithm : {0, 3, 99}) {
      each.options.algorithm = static_cast<Algorithm>(algorithm);
      EXPECT_EQ(find_argument_error(each), ArgumentError::unknown_algorithm);
    }
  }
}

TEST(FindArgumentError, RefusesTypesAndOpsThatDoNotExist) {
  CollectiveCall type = call(at(0), at(64));
  type.type = static_cast<DType>(kDTypeCount);
  EXPECT_EQ(find_argument_error(type), ArgumentError::unknown_type);
  CollectiveCall op = call(at(0), at(64));
  op.op = static_cast<ReduceOp>(kReduceOpCount);
  EXPECT_EQ(find_argument_error(op), ArgumentError::unknown_op);
}

TEST(FindArgumentError, LetsOnlyPremultipliedSumsHaveAFactor) {
  const auto with = [&](std::optional<ReduceOp> op, DType type, double factor) {
    CollectiveCall each = call(at(0), at(512), 4, op ? Collective::all_reduce : Collective::all_gather);
    each.type = type;
    each.op = op.value_or(ReduceOp::premul_sum);
    each.options.factor = factor;
    return find_argument_error(each);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double factor : {0.5, 0.0, -1.0, nan}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      EXPECT_EQ(with(op, DType::f32, factor), ArgumentError::factor_without_use) << to_string(op);
    }
    EXPECT_EQ(with(std::nullopt, DType::f32, factor), ArgumentError::factor_without_use);
    EXPECT_EQ(with(ReduceOp::premul_sum, DType::bf16, factor), ArgumentError::none) << factor;
  }
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::i32, 0.5), ArgumentError::factor_not_of_type);
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::u8, -1), ArgumentError::factor_not_of_type);
  EXPECT_EQ(with(ReduceOp::premul_sum, DType::i8, -1), ArgumentError::none);
  EXPECT_EQ(with(ReduceOp::premul_sum, static_cast<DType>(kDTypeCount), 2), ArgumentError::unknown_type);
}

TEST(RecordOf, CarriesARootThatIsNoRankAsFarAsItGoes) {
  CollectiveCall each = call(at(0), at(64));
  EXPECT_EQ(record_of(each).root, -1) << "all_reduce has none";
  each.collective = Collective::gather;
  EXPECT_EQ(record_of(each).root, 1);
  each.root = Rank{1 << 20};
  EXPECT_EQ(record_of(each).root, INT8_MAX);
}

}  // namespace
}  // namespace onehop
