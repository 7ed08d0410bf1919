// SPDX-License-Identifier: Apache-2.0
// Collectives through the C API, with threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr onehop_dtype_t kI32 = ONEHOP_DTYPE_I32;

/// Rank r's block for rank b is {10 r + b, -(10 r + b)}.
std::vector<int> blocks_of(int rank) {
  std::vector<int> blocks;
  for (int b = 0; b < kRanks; ++b) {
    blocks.push_back(10 * rank + b);
    blocks.push_back(-(10 * rank + b));
  }
  return blocks;
}

TEST(CApiCollectives, MoveBlocksWhereTheyBelong) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    const std::vector<int> in = blocks_of(me);
    std::vector<int> out(in.size());
    EXPECT_OK(onehop_all_gather(group, in.data(), out.data(), 2, kI32, nullptr, nullptr, nullptr));
    EXPECT_THAT(out, ElementsAre(0, 0, 10, -10, 20, -20));
    EXPECT_OK(onehop_all_to_all(group, in.data(), out.data(), 2, kI32, nullptr, nullptr, nullptr));
    EXPECT_THAT(out, ElementsAre(me, -me, 10 + me, -10 - me, 20 + me, -20 - me));
    std::vector<int> block(2);
    EXPECT_OK(onehop_broadcast(group, me == 1 ? in.data() : nullptr, block.data(), 2, kI32, 1, nullptr,
                               nullptr, nullptr));
    EXPECT_THAT(block, ElementsAre(10, -10));
    EXPECT_OK(onehop_scatter(group, me == 2 ? in.data() : nullptr, block.data(), 2, kI32, 2, nullptr, nullptr,
                             nullptr));
    EXPECT_THAT(block, ElementsAre(20 + me, -20 - me));
    EXPECT_OK(onehop_gather(group, in.data(), me == 0 ? out.data() : nullptr, 2, kI32, 0, nullptr, nullptr,
                            nullptr));
    if (me == 0) {
      EXPECT_THAT(out, ElementsAre(0, 0, 10, -10, 20, -20));
    }
  });
}

TEST(CApiCollectives, ReduceToOneRankAndToBlocks) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    const std::vector<int> in = blocks_of(me);
    std::vector<int> block(2);
    EXPECT_OK(onehop_reduce_scatter(group, in.data(), block.data(), 2, kI32, ONEHOP_OP_SUM, nullptr, nullptr,
                                    nullptr));
    EXPECT_THAT(block, ElementsAre(30 + 3 * me, -30 - 3 * me));
    onehop_call_options_t options;
    onehop_call_options_init(&options, sizeof options);
    options.algorithm = ONEHOP_ALGORITHM_TWO_SHOT;
    onehop_algorithm_t used = ONEHOP_ALGORITHM_NONE;
    EXPECT_OK(onehop_reduce(group, in.data(), me == 2 ? block.data() : nullptr, 2, kI32, ONEHOP_OP_MAX, 2,
                            nullptr, &options, &used));
    EXPECT_EQ(used, ONEHOP_ALGORITHM_TWO_SHOT);
    if (me == 2) {
      EXPECT_THAT(block, ElementsAre(20, 0));
    }
  });
}

TEST(CApiCollectives, APremultipliedSumTakesItsFactorFromTheOptions) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    onehop_call_options_t options;
    onehop_call_options_init(&options, sizeof options);
    EXPECT_EQ(options.factor, 1);
    float value = static_cast<float>(me + 1);
    options.factor = 0.5;
    EXPECT_OK(onehop_all_reduce(group, &value, &value, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_PREMUL_SUM, nullptr,
                                &options, nullptr));
    EXPECT_EQ(value, 3);
    EXPECT_EQ(onehop_all_reduce(group, &value, &value, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr, &options,
                                nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("factor 0.5"));
    int whole = me;
    EXPECT_EQ(
        onehop_all_reduce(group, &whole, &whole, 1, kI32, ONEHOP_OP_PREMUL_SUM, nullptr, &options, nullptr),
        ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("i32, premul_sum, factor 0.5"));
    // A caller compiled before `factor` existed does not set it.
    onehop_call_options_init(&options, offsetof(onehop_call_options_t, factor));
    options.factor = 7;
    EXPECT_OK(
        onehop_all_reduce(group, &whole, &whole, 1, kI32, ONEHOP_OP_PREMUL_SUM, nullptr, &options, nullptr));
    EXPECT_EQ(whole, 3);
  });
}

TEST(CApiCollectives, ThePromiseOfSymmetricMemoryIsMadeByAllRanks) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    const std::vector<int> in = blocks_of(me);
    std::vector<int> out(in.size());
    onehop_call_options_t options;
    onehop_call_options_init(&options, sizeof options);
    EXPECT_EQ(options.symmetric, 0);
    options.symmetric = me == 1 ? 1 : 0;
    EXPECT_EQ(onehop_all_to_all(group, in.data(), out.data(), 2, kI32, nullptr, &options, nullptr),
              ONEHOP_ERROR_MISMATCH);
    EXPECT_THAT(onehop_last_error(), HasSubstr("symmetric"));
    options.symmetric = 1;
    EXPECT_OK(onehop_all_to_all(group, in.data(), out.data(), 2, kI32, nullptr, &options, nullptr));
  });
}

TEST(CApiCollectives, BlocksOfAllToAllVHaveAnySize) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    // Rank s sends s + r elements to rank r.
    const auto me = static_cast<std::size_t>(onehop_group_rank(group));
    std::vector<std::size_t> counts;
    std::vector<std::size_t> offsets;
    std::size_t total = 0;
    for (std::size_t r = 0; r < kRanks; ++r) {
      counts.push_back(me + r);
      offsets.push_back(total);
      total += me + r;
    }
    const std::vector<int> in(total, static_cast<int>(me) + 1);
    std::vector<int> out(total);
    EXPECT_OK(onehop_all_to_all_v(group, in.data(), counts.data(), offsets.data(), out.data(), counts.data(),
                                  offsets.data(), kI32, nullptr, nullptr, nullptr));
    std::vector<int> expected;
    for (std::size_t s = 0; s < kRanks; ++s) expected.insert(expected.end(), s + me, static_cast<int>(s) + 1);
    EXPECT_EQ(out, expected);

    EXPECT_EQ(onehop_all_to_all_v(group, in.data(), nullptr, offsets.data(), out.data(), counts.data(),
                                  offsets.data(), kI32, nullptr, nullptr, nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("one count and one offset per rank"));
    if (me == 1) ++counts[2];
    EXPECT_EQ(onehop_all_to_all_v(group, in.data(), counts.data(), offsets.data(), out.data(), counts.data(),
                                  offsets.data(), kI32, nullptr, nullptr, nullptr),
              ONEHOP_ERROR_MISMATCH);
    EXPECT_THAT(onehop_last_error(), HasSubstr("rank 1 sends 4 elements to rank 2, which expects 3"));
  });
}

TEST(CApiCollectives, UnusableArgumentsOfOneRankAreRejectedOnAll) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    std::vector<int> data(2 * kRanks);
    EXPECT_EQ(onehop_all_gather(group, me == 1 ? nullptr : data.data() + 2 * me, data.data(), 2, kI32,
                                nullptr, nullptr, nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("rank 1 was rejected: its input is null"));
    EXPECT_EQ(onehop_last_error_rank(), 1);
    EXPECT_EQ(onehop_broadcast(group, data.data(), data.data(), 2, kI32, kRanks, nullptr, nullptr, nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("root 3"));
    EXPECT_OK(onehop_group_check(group));
  });
}

TEST(CApiCollectives, SendAndReceiveInAGroupOfCalls) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    const int right = (me + 1) % kRanks;
    const int left = (me + kRanks - 1) % kRanks;
    const std::vector<int> in(1'000'000, me);  // far more than the channels buffer
    std::vector<int> out(in.size(), -1);
    int largest = me;
    onehop_algorithm_t used = ONEHOP_ALGORITHM_ONE_SHOT;
    EXPECT_OK(onehop_group_call_begin());
    EXPECT_OK(onehop_send(group, in.data(), in.size(), kI32, right, nullptr, nullptr, &used));
    EXPECT_EQ(used, ONEHOP_ALGORITHM_NONE);
    EXPECT_OK(onehop_group_call_begin());
    EXPECT_OK(onehop_send(group, in.data(), 7, kI32, right, nullptr, nullptr, nullptr));
    EXPECT_OK(onehop_group_call_drop());
    EXPECT_OK(onehop_group_call_begin());
    EXPECT_OK(onehop_recv(group, out.data(), out.size(), kI32, left, nullptr, nullptr, nullptr));
    EXPECT_OK(onehop_group_call_end());
    EXPECT_EQ(out.front(), -1) << "only the outermost end makes the calls";
    EXPECT_OK(onehop_group_call_end());
    EXPECT_THAT(out, testing::Each(left));

    if (me == 0) {
      EXPECT_OK(onehop_send(group, &largest, 1, kI32, 1, nullptr, nullptr, &used));
      EXPECT_EQ(used, ONEHOP_ALGORITHM_ONE_SHOT);
    } else if (me == 1) {
      EXPECT_OK(onehop_recv(group, &largest, 1, kI32, 0, nullptr, nullptr, nullptr));
      EXPECT_EQ(largest, 0);
    }
  });
}

TEST(CApiCollectives, AGroupOfCallsThatFailsIsOver) {
  run_ranks(kRanks, [](onehop_group_t* group) {
    int value = 0;
    (void)onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT);  // no rank is still joining
    EXPECT_OK(onehop_group_call_begin());
    EXPECT_OK(onehop_send(group, &value, 1, kI32, onehop_group_rank(group), nullptr, nullptr, nullptr));
    EXPECT_EQ(onehop_group_call_end(), ONEHOP_ERROR_MISMATCH);
    EXPECT_THAT(onehop_last_error(), HasSubstr("sends itself 1 times"));
    EXPECT_EQ(onehop_group_call_end(), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("without onehop_group_call_begin"));
    EXPECT_EQ(onehop_group_call_drop(), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_group_check(group), ONEHOP_ERROR_MISMATCH);
  });
}

TEST(CApiCollectives, NullGroupsAreInvalidArguments) {
  for (const onehop_status_t status :
       {onehop_all_gather(nullptr, nullptr, nullptr, 0, kI32, nullptr, nullptr, nullptr),
        onehop_reduce_scatter(nullptr, nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr),
        onehop_broadcast(nullptr, nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr),
        onehop_reduce(nullptr, nullptr, nullptr, 0, kI32, 0, 0, nullptr, nullptr, nullptr),
        onehop_all_to_all(nullptr, nullptr, nullptr, 0, kI32, nullptr, nullptr, nullptr),
        onehop_all_to_all_v(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kI32, nullptr,
                            nullptr, nullptr),
        onehop_gather(nullptr, nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr),
        onehop_scatter(nullptr, nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr),
        onehop_send(nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr),
        onehop_recv(nullptr, nullptr, 0, kI32, 0, nullptr, nullptr, nullptr)}) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("group must not be NULL"));
  }
}

}  // namespace
}  // namespace onehop
