// The stress program's arithmetic against the reference, and its plan on host ranks: no GPU is needed to know
// that what it expects is right.
#include "gpu/stress_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <tuple>

#include "onehop/onehop.h"

#include "conformance/reference.h"
#include "support/ranks.h"

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
        call.key = 77;
        std::vector<Bytes> inputs(static_cast<std::size_t>(ranks));
        Bytes expected;
        for (std::uint32_t i = 0; i < kCount; ++i) {
          for (int r = 0; r < ranks; ++r) {
            append(inputs[static_cast<std::size_t>(r)], call.type, stress_input(call, kRound, r, ranks, i));
          }
          append(expected, call.type, stress_result(call, kRound, ranks, i));
        }
        EXPECT_EQ(expected, reduced(call.type, static_cast<ReduceOp>(op), inputs))
            << describe(call) << " over " << ranks << " ranks";
        EXPECT_NE(inputs[0], inputs[1]) << describe(call);
      }
    }
  }
}

TEST(StressValues, ChangeFromRoundToRound) {
  StressOp op;
  op.type = DType::u32;
  int same = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    same += stress_result(op, 1, 4, i) == stress_result(op, 2, 4, i) ? 1 : 0;
    same += stress_input(op, 1, 0, 4, i) == stress_input(op, 1, 0, 4, i + 1) ? 1 : 0;
  }
  EXPECT_LT(same, 5);
}

TEST(StressPlan, IsTheSameOnAllRanksButForAlignment) {
  StressPlan zero(5, 0);
  StressPlan one(5, 1);
  int displaced = 0;
  for (int round = 0; round < 300; ++round) {
    const StressBatch a = zero.batch(kMaxStressOps, 0);
    const StressBatch b = one.batch(kMaxStressOps, 0);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(describe(a[i]), describe(b[i]));
      ASSERT_EQ(a[i].key, b[i].key);
      ASSERT_EQ(a[i].checked, b[i].checked);
      displaced += a[i].in != b[i].in ? 1 : 0;
    }
  }
  EXPECT_GT(displaced, 100);
}

/// Every result is looked at, or overwritten by the next call, which is a sum of integers.
TEST(StressPlan, LeavesNothingUncheckedAndNothingOverlapping) {
  StressPlan plan(6, 3);
  constexpr std::uint32_t kBegin = 1024;
  std::set<std::tuple<DType, ReduceOp>> seen;
  bool large = false;
  bool deep = false;
  for (int round = 0; round < 2000; ++round) {
    const StressBatch batch = plan.batch(kMaxStressOps, kBegin);
    ASSERT_GE(batch.size(), 1u);
    std::uint32_t end = kBegin;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const StressOp& op = batch[i];
      const std::uint32_t bytes = op.count * element_bytes(op.type);
      ASSERT_EQ(op.in % element_bytes(op.type), 0u);
      ASSERT_EQ(op.out % element_bytes(op.type), 0u);
      ASSERT_LE(bytes, 4u << 20);
      if (op.depth == 1) {
        ASSERT_GE(op.in, end);
        end = op.in + bytes;
      } else {
        ASSERT_EQ(op.in, batch[i - 1].out);
        ASSERT_EQ(op.count, batch[i - 1].count);
      }
      if (op.out != op.in) {
        ASSERT_GE(op.out, end);
        end = op.out + bytes;
      }
      if (!op.checked) {
        ASSERT_LT(i + 1, batch.size());
        ASSERT_EQ(batch[i + 1].out, op.out);
        ASSERT_EQ(reduction(batch[i + 1], batch[i + 1].depth - 1), ReduceOp::sum);
        ASSERT_FALSE(is_float(op.type));
      }
      seen.insert({op.type, reduction(op, op.depth - 1)});
      large = large || bytes > 1u << 20;
      deep = deep || op.depth == kMaxStressChain;
    }
    ASSERT_LE(end, kBegin + StressPlan::kPartBytes);
  }
  EXPECT_EQ(seen.size(), std::size_t{kDTypeCount * kReduceOpCount});
  EXPECT_TRUE(large && deep);
}

TEST(StressPlan, IsRightOnHostRanks) {
  for (const int ranks : {2, 3, 8}) {
    run_thread_group(ranks, [&](Group& group) {
      const int rank = group.rank().value;
      const auto arena = std::make_unique<std::byte[]>(StressPlan::kPartBytes);
      StressPlan plan(9, rank);
      for (std::uint32_t round = 0; round < 12; ++round) {
        const StressBatch batch = plan.batch(24, 0);
        for (const StressOp& op : batch) {
          const unsigned bytes = element_bytes(op.type);
          for (std::uint32_t i = 0; op.depth == 1 && i < op.count; ++i) {
            const std::uint64_t bits = stored_bits(op.type, stress_input(op, round, rank, group.size(), i));
            std::memcpy(&arena[op.in + std::size_t{i} * bytes], &bits, bytes);
          }
        }
        for (const StressOp& op : batch) {
          (void)all_reduce(group, &arena[op.in], &arena[op.out], op.count, op.type,
                           reduction(op, op.depth - 1));
        }
        for (const StressOp& op : batch) {
          const unsigned bytes = element_bytes(op.type);
          for (std::uint32_t i = 0; op.checked && i < op.count; ++i) {
            std::uint64_t got = 0;
            std::memcpy(&got, &arena[op.out + std::size_t{i} * bytes], bytes);
            ASSERT_EQ(got, stored_bits(op.type, stress_result(op, round, group.size(), i)))
                << describe(op) << ", element " << i;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace onehop::testing
