// SPDX-License-Identifier: Apache-2.0
// The stress program's arithmetic against the reference, and its plan on host ranks. This proves its expected
// results without a GPU.
#include "gpu/stress_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "onehop/onehop.h"

#include "conformance/reference.h"
#include "gpu/stress_call.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop::testing {
namespace {

constexpr std::uint32_t kRound = 12345;

void append(Bytes& bytes, DType type, std::int64_t value) {
  const std::uint64_t bits = stored_bits(type, value);
  const auto* const raw = reinterpret_cast<const std::byte*>(&bits);
  bytes.insert(bytes.end(), raw, raw + size_of(type));
}

TEST(StressValues, AreReducedAsTheReferenceReducesThem) {
  constexpr std::uint32_t kCount = 300;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
        StressOp call;
        call.type = static_cast<DType>(type);
        call.ops = static_cast<std::uint32_t>(op);
        call.folds = 1;
        call.key = 70 + static_cast<std::uint32_t>(ranks);
        const auto how = static_cast<ReduceOp>(op);
        const Reduction expected_of{how, how == ReduceOp::premul_sum ? stress_factor(call) : 1};
        std::vector<Bytes> inputs(static_cast<std::size_t>(ranks));
        Bytes expected;
        for (std::uint32_t i = 0; i < kCount; ++i) {
          for (int r = 0; r < ranks; ++r) {
            append(inputs[static_cast<std::size_t>(r)], call.type, stress_input(call, kRound, r, ranks, i));
          }
          append(expected, call.type, stress_result(call, kRound, ranks, i));
        }
        EXPECT_EQ(expected, reduced(call.type, expected_of, inputs))
            << describe(call) << " over " << ranks << " ranks";
        EXPECT_NE(inputs[0], inputs[1]) << describe(call);
      }
    }
  }
}

TEST(StressValues, ChangeFromRoundToRound) {
  StressOp op;
  op.type = DType::u32;
  op.folds = 1;
  int same = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    same += stress_result(op, 1, 4, i) == stress_result(op, 2, 4, i) ? 1 : 0;
    same += stress_input(op, 1, 0, 4, i) == stress_input(op, 1, 0, 4, i + 1) ? 1 : 0;
  }
  EXPECT_LT(same, 5);
}

TEST(StressPlan, IsTheSameOnAllRanksButForAlignmentAndMemory) {
  StressPlan zero(5, 0, 4);
  StressPlan one(5, 1, 4);
  int displaced = 0;
  int elsewhere = 0;
  for (int round = 0; round < 300; ++round) {
    const StressBatch a = zero.batch(kMaxStressOps, 0);
    const StressBatch b = one.batch(kMaxStressOps, 0);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(describe(a[i]), describe(b[i]));
      ASSERT_EQ(a[i].key, b[i].key);
      ASSERT_EQ(a[i].checked, b[i].checked);
      displaced += a[i].in % kStressSymmetric != b[i].in % kStressSymmetric ? 1 : 0;
      elsewhere += a[i].in / kStressSymmetric != b[i].in / kStressSymmetric ? 1 : 0;
    }
  }
  EXPECT_GT(displaced, 100);
  EXPECT_GT(elsewhere, 100);
}

/// Bytes of one of the arena's memories.
struct Extent {
  std::uint32_t begin;
  std::uint32_t end;

  Extent(std::uint32_t offset, std::uint32_t bytes)
      : begin(offset % kStressSymmetric), end(offset % kStressSymmetric + bytes) {}
  [[nodiscard]] bool holds(const Extent& other) const { return begin <= other.begin && other.end <= end; }
};

/// Every result is checked, or overwritten by the next call, which is a sum of integers.
TEST(StressPlan, LeavesNothingUncheckedAndNothingOverlapping) {
  constexpr int kRanks = 4;
  constexpr int kRank = 3;
  constexpr std::uint32_t kBegin = 1024;
  StressPlan plan(6, kRank, kRanks);
  std::set<std::tuple<Collective, DType, ReduceOp>> reductions;
  std::set<std::tuple<Collective, DType, bool>> moves;
  std::set<std::tuple<Collective, Collective>> links;
  std::set<std::tuple<Collective, int>> roots;
  std::set<Collective> in_place;
  int operations = 0;
  int all_reduces = 0;
  std::size_t longest_list = 0;
  bool large = false;
  bool deep = false;
  for (int round = 0; round < 4000; ++round) {
    const StressBatch batch = plan.batch(kMaxStressOps, kBegin);
    ASSERT_GE(batch.size(), 1u);
    std::uint32_t end = kBegin;
    std::size_t list = 1;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const StressOp& op = batch[i];
      const std::uint32_t element = element_bytes(op.type);
      const Extent in(op.in, input_count(op, kRank, kRanks) * element);
      const Extent out(op.out, output_count(op, kRank, kRanks) * element);
      ASSERT_EQ(in.begin % element, 0u);
      ASSERT_EQ(out.begin % element, 0u);
      ASSERT_LE(std::max(in.end - in.begin, out.end - out.begin), 4u << 20) << describe(op);
      if (op.depth == 1) {
        ASSERT_GE(in.begin, end);
        ASSERT_GE(out.begin, end);
        if (op.in_place) {
          ASSERT_EQ(op.in / kStressSymmetric, op.out / kStressSymmetric);
          ASSERT_TRUE(in.holds(out) || out.holds(in) || in.begin == in.end || out.begin == out.end);
        } else {
          ASSERT_GE(out.begin, in.end);
        }
        end = std::max(in.end, out.end);
      } else {
        const StressOp& last = batch[i - 1];
        ASSERT_EQ(op.depth, last.depth + 1);
        ASSERT_EQ(op.in, last.out);
        for (int r = 0; r < kRanks; ++r) {
          // A rank that reads has all of its input from the previous call.
          if (input_count(op, r, kRanks) == 0) continue;
          ASSERT_EQ(input_count(op, r, kRanks), output_count(last, r, kRanks)) << describe(op);
        }
        if (!op.in_place) {
          ASSERT_GE(out.begin, end);
          end = out.end;
        }
        links.insert({last.kind, op.kind});
      }
      if (!op.checked) {
        ASSERT_LT(i + 1, batch.size());
        const StressOp& next = batch[i + 1];
        ASSERT_EQ(next.kind, Collective::all_reduce);
        ASSERT_EQ(next.out, op.out);
        ASSERT_EQ(output_count(next, kRank, kRanks), output_count(op, kRank, kRanks));
        ASSERT_EQ(reduction(next, next.folds - 1), ReduceOp::sum);
        ASSERT_FALSE(is_float(op.type));
      }
      ASSERT_FALSE(op.raw && op.folds > 0) << describe(op);
      if (reduces(op.kind))
        reductions.insert({op.kind, op.type, reduction(op, op.folds - 1)});
      else
        moves.insert({op.kind, op.type, op.raw});
      roots.insert({op.kind, op.root});
      if (op.in_place) in_place.insert(op.kind);
      list = op.together ? list + 1 : 1;
      longest_list = std::max(longest_list, list);
      if (op.together) {
        ASSERT_GT(i, 0u);
        for (const StressOp& each : {batch[i - 1], op}) {
          ASSERT_EQ(each.kind, Collective::all_reduce);
          ASSERT_EQ(each.depth, 1);
        }
      } else {
        ++operations;
        all_reduces += op.kind == Collective::all_reduce ? 1 : 0;
      }
      large = large || out.end - out.begin > 1u << 20;
      deep = deep || op.depth == kMaxStressChain;
    }
    ASSERT_LE(end, kBegin + StressPlan::kPartBytes);
  }
  EXPECT_EQ(reductions.size(), std::size_t{3 * kDTypeCount * kReduceOpCount});
  EXPECT_EQ(moves.size(), std::size_t{7 * kDTypeCount * 2});
  EXPECT_EQ(roots.size(), std::size_t{kStressKindCount * kRanks});
  EXPECT_EQ(in_place.size(), 7u);
  // After an all-reduce, an all-gather, a broadcast or a ring of everything: 6. After parts: 2, from 4 kinds.
  // After one rank: 2, from 2 kinds. A ring may leave parts, too.
  EXPECT_EQ(links.size(), std::size_t{4 * 6 + 4 * 2 + 2 * 2});
  EXPECT_NEAR(static_cast<double>(all_reduces) / operations, 0.5, 0.05);
  EXPECT_TRUE(large && deep);
  EXPECT_GT(longest_list, 40u);
}

TEST(StressPlan, MakesOnlyTheCollectivesThatWereNamed) {
  const auto kinds = parse_stress_kinds("gather,scatter,gather");
  ASSERT_EQ(kinds, (std::vector{Collective::gather, Collective::scatter}));
  StressPlan plan(3, 0, 2, kinds);
  std::set<Collective> seen;
  for (int round = 0; round < 50; ++round) {
    for (const StressOp& op : plan.batch(kMaxStressOps, 0)) seen.insert(op.kind);
  }
  EXPECT_EQ(seen, (std::set{Collective::gather, Collective::scatter}));
  for (const char* const wrong : {"", "gather,", "gather,all-reduce"}) {
    EXPECT_THROW((void)parse_stress_kinds(wrong), std::invalid_argument) << wrong;
  }
}

TEST(StressPlan, IsRightOnHostRanks) {
  for (const int ranks : {2, 3, kSanitized ? 5 : 8}) {
    run_thread_group(ranks, [&](Group& group) {
      const int rank = group.rank().value;
      const auto ordinary = std::make_unique<std::byte[]>(StressPlan::kPartBytes);
      const SymmetricBuffer symmetric = group.allocate(StressPlan::kPartBytes);
      const StressArena arena{.ordinary = ordinary.get(), .symmetric = symmetric.local()};
      StressPlan plan(9, rank, ranks);
      std::set<Collective> seen;
      for (std::uint32_t round = 0; round < 24; ++round) {
        const StressBatch batch = plan.batch(kMaxStressOps, 0);
        for (const StressOp& op : batch) {
          const unsigned bytes = element_bytes(op.type);
          for (std::uint32_t i = 0; op.depth == 1 && i < input_count(op, rank, ranks); ++i) {
            const std::uint64_t bits = input_bits(op, round, rank, ranks, i);
            std::memcpy(arena.at(op.in) + std::size_t{i} * bytes, &bits, bytes);
          }
        }
        make_calls(group, arena, batch, {});
        for (const StressOp& op : batch) seen.insert(op.kind);
        for (const StressOp& op : batch) {
          const unsigned bytes = element_bytes(op.type);
          for (std::uint32_t i = 0; op.checked && i < output_count(op, rank, ranks); ++i) {
            std::uint64_t got = 0;
            std::memcpy(&got, arena.at(op.out) + std::size_t{i} * bytes, bytes);
            ASSERT_EQ(got, output_bits(op, round, rank, ranks, i)) << describe(op) << ", element " << i;
          }
        }
      }
      EXPECT_EQ(seen.size(), std::size_t{kStressKindCount});
    });
  }
}

}  // namespace
}  // namespace onehop::testing
