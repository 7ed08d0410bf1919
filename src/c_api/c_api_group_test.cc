// SPDX-License-Identifier: Apache-2.0
// Groups, buffers and all-reduce through the C API, with threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

TEST(CApiGroup, RanksJoinAndAgreeWhoTheyAre) {
  std::vector<std::string> ids(3);
  run_ranks(3, [&](onehop_group_t* group) {
    EXPECT_EQ(onehop_group_size(group), 3);
    const int rank = onehop_group_rank(group);
    ASSERT_TRUE(rank >= 0 && rank < 3);
    ids[static_cast<std::size_t>(rank)] = onehop_group_id(group);
    EXPECT_OK(onehop_group_check(group));
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
  });
  EXPECT_EQ(ids[0].size(), 32u);
  EXPECT_EQ(ids[1], ids[0]);
  EXPECT_EQ(ids[2], ids[0]);
}

TEST(CApiGroup, OneRankIsAGroup) {
  run_ranks(1, [](onehop_group_t* group) {
    EXPECT_EQ(onehop_group_size(group), 1);
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
    std::vector<float> in(100, 2.0F);
    std::vector<float> out(in.size());
    EXPECT_OK(onehop_all_gather(group, in.data(), out.data(), in.size(), ONEHOP_DTYPE_F32, nullptr, nullptr,
                                nullptr));
    EXPECT_EQ(out, in);
    onehop_group_t* part = nullptr;
    ASSERT_OK(onehop_group_split(group, 5, 0, &part));
    EXPECT_EQ(onehop_group_size(part), 1);
    onehop_group_destroy(part);
  });
}

TEST(CApiGroup, VerifiedPeersAreNotRequiredByDefaultAndMeanNothingToHostRanks) {
  onehop_join_options_t options;
  onehop_join_options_init(&options, sizeof options);
  EXPECT_EQ(options.require_verified_peers, 0);
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  options.rank = 0;
  options.world_size = 1;
  options.require_verified_peers = 1;
  onehop_group_t* group = nullptr;
  EXPECT_OK(onehop_group_join(store, &options, &group));
  onehop_group_destroy(group);
  // Options as a program passes them that was compiled before the field existed.
  onehop_join_options_init(&options, offsetof(onehop_join_options_t, require_verified_peers));
  options.rank = 0;
  options.world_size = 1;
  group = nullptr;
  EXPECT_OK(onehop_group_join(store, &options, &group));
  onehop_group_destroy(group);
  onehop_store_destroy(store);
}

TEST(CApiGroup, AllReduceSumsInAndOutOfPlace) {
  run_ranks(2, [](onehop_group_t* group) {
    const int rank = onehop_group_rank(group);
    std::vector<float> in(1001, static_cast<float>(rank + 1));
    std::vector<float> out(in.size());
    onehop_call_options_t options;
    onehop_call_options_init(&options, sizeof options);
    for (const int wanted : {ONEHOP_ALGORITHM_ONE_SHOT, ONEHOP_ALGORITHM_TWO_SHOT}) {
      options.algorithm = wanted;
      onehop_algorithm_t used = ONEHOP_ALGORITHM_NONE;
      EXPECT_OK(onehop_all_reduce(group, in.data(), out.data(), in.size(), ONEHOP_DTYPE_F32, ONEHOP_OP_SUM,
                                  nullptr, &options, &used));
      EXPECT_EQ(used, wanted);
      EXPECT_EQ(out, std::vector<float>(in.size(), 3.0F));
    }
    EXPECT_OK(onehop_all_reduce(group, in.data(), in.data(), in.size(), ONEHOP_DTYPE_F32, ONEHOP_OP_MAX,
                                nullptr, nullptr, nullptr));
    EXPECT_EQ(in, std::vector<float>(in.size(), 2.0F));
    EXPECT_OK(onehop_all_reduce(group, nullptr, nullptr, 0, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr, nullptr,
                                nullptr));
  });
}

TEST(CApiGroup, BuffersReachPeersAndSignalsOrderTheWrites) {
  run_ranks(2, [](onehop_group_t* group) {
    const int rank = onehop_group_rank(group);
    const int other = 1 - rank;
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 4096, &buffer));
    EXPECT_EQ(onehop_buffer_bytes(buffer), 4096u);
    onehop_buffer_t* part = nullptr;
    ASSERT_OK(onehop_buffer_sub(buffer, 1024, 512, &part));
    onehop_buffer_destroy(buffer);  // The sub-buffer keeps the memory.
    EXPECT_EQ(onehop_buffer_bytes(part), 512u);

    void* peer = nullptr;
    ASSERT_OK(onehop_buffer_peer(part, other, &peer));
    *static_cast<int*>(peer) = 100 + rank;
    EXPECT_OK(onehop_buffer_put_signal(part, other, 3));
    EXPECT_OK(onehop_buffer_wait_signal(part, other, 3, ONEHOP_TIMEOUT_DEFAULT));
    EXPECT_EQ(*static_cast<int*>(onehop_buffer_local(part)), 100 + other);
    EXPECT_OK(onehop_buffer_barrier(part, 0, ONEHOP_TIMEOUT_DEFAULT));

    EXPECT_EQ(onehop_buffer_wait_signal(part, other, 3, 1), ONEHOP_ERROR_TIMEOUT);
    EXPECT_OK(
        onehop_buffer_barrier(part, 0, ONEHOP_TIMEOUT_DEFAULT));  // no rank leaves while the other waits
    EXPECT_EQ(onehop_buffer_peer(part, 2, &peer), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_buffer_sub(part, 256, 512, &buffer), ONEHOP_ERROR_INVALID_ARGUMENT);
    onehop_buffer_destroy(part);
  });
}

TEST(CApiGroup, BuffersHaveAsManyChannelsAsTheirOptionsSay) {
  run_ranks(2, [](onehop_group_t* group) {
    const int other = 1 - onehop_group_rank(group);
    onehop_buffer_options_t options;
    onehop_buffer_options_init(&options, sizeof options);
    EXPECT_EQ(options.channels, 16);
    options.channels = 33;
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_group_allocate_with(group, 64, &options, &buffer));
    EXPECT_EQ(onehop_buffer_channels(buffer), 33);
    EXPECT_OK(onehop_buffer_put_signal(buffer, other, 32));
    EXPECT_OK(onehop_buffer_wait_signal(buffer, other, 32, ONEHOP_TIMEOUT_DEFAULT));
    EXPECT_EQ(onehop_buffer_wait_signal(buffer, other, 33, 0), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(onehop_buffer_barrier(buffer, 32, ONEHOP_TIMEOUT_DEFAULT));
    onehop_buffer_destroy(buffer);
  });
}

TEST(CApiGroup, HostMemoryCannotBeRegisteredAndTheGroupStaysUsable) {
  run_ranks(2, [](onehop_group_t* group) {
    float data = 0;
    onehop_buffer_t* buffer = nullptr;
    EXPECT_EQ(onehop_group_register_buffer(group, &data, sizeof data, &buffer), ONEHOP_ERROR_UNSUPPORTED);
    EXPECT_THAT(onehop_last_error(), HasSubstr("Group::allocate"));
    EXPECT_EQ(buffer, nullptr);
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
  });
}

TEST(CApiGroup, SplitMakesGroupsByColorAndNullForNegativeOnes) {
  run_ranks(3, [](onehop_group_t* group) {
    const int rank = onehop_group_rank(group);
    onehop_group_t* part = nullptr;
    // Ranks 0 and 1 swap numbers; rank 2 stays out.
    ASSERT_OK(onehop_group_split(group, rank == 2 ? -1 : 7, -rank, &part));
    if (rank == 2) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    EXPECT_EQ(onehop_group_size(part), 2);
    EXPECT_EQ(onehop_group_rank(part), 1 - rank);
    EXPECT_EQ(onehop_group_parent_rank(part, 0), 1);
    EXPECT_EQ(onehop_group_parent_rank(part, 1), 0);
    EXPECT_EQ(onehop_group_parent_rank(part, 2), -1);
    EXPECT_EQ(onehop_group_parent_rank(group, 0), -1);
    EXPECT_OK(onehop_group_barrier(part, ONEHOP_TIMEOUT_DEFAULT));
    onehop_group_destroy(part);
  });
}

TEST(CApiGroup, AbortEndsEveryRanksCallsAndNamesWhoDidIt) {
  run_ranks(2, [](onehop_group_t* group) {
    if (onehop_group_rank(group) == 1) {
      onehop_group_abort(group, "enough");
    } else {
      EXPECT_EQ(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_ERROR_ABORTED);
      EXPECT_THAT(onehop_last_error(), HasSubstr("enough"));
      EXPECT_EQ(onehop_last_error_rank(), 1);
    }
    EXPECT_EQ(onehop_group_check(group), ONEHOP_ERROR_ABORTED);
    onehop_group_leave(group);
  });
}

TEST(CApiGroup, ShrinkFormsAGroupOfTheRanksThatAreLeft) {
  run_ranks(3, [](onehop_group_t* group) {
    const int rank = onehop_group_rank(group);
    if (rank == 1) {
      onehop_group_leave(group);
      return;
    }
    EXPECT_EQ(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_ERROR_PEER_LOST);
    onehop_group_t* left = nullptr;
    EXPECT_EQ(onehop_group_shrink(group, ONEHOP_TIMEOUT_DEFAULT, nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_group_shrink(group, -5, &left), ONEHOP_ERROR_INVALID_ARGUMENT);
    ASSERT_OK(onehop_group_shrink(group, ONEHOP_TIMEOUT_DEFAULT, &left));
    EXPECT_EQ(onehop_group_size(left), 2);
    EXPECT_EQ(onehop_group_parent_rank(left, onehop_group_rank(left)), rank);
    EXPECT_OK(onehop_group_barrier(left, ONEHOP_TIMEOUT_DEFAULT));
    onehop_group_destroy(left);
  });
}

TEST(CApiGroup, AGroupOfOneReducesByItself) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  onehop_join_options_t options;
  onehop_join_options_init(&options, sizeof options);
  options.rank = 0;
  options.world_size = 1;
  onehop_group_t* group = nullptr;
  ASSERT_OK(onehop_group_join(store, &options, &group));
  const float in[] = {1, 2, 3};
  float out[] = {0, 0, 0};
  EXPECT_OK(onehop_all_reduce(group, in, out, 3, ONEHOP_DTYPE_F32, ONEHOP_OP_AVG, nullptr, nullptr, nullptr));
  EXPECT_EQ(out[2], 3);
  onehop_group_destroy(group);
  onehop_store_destroy(store);
}

TEST(CApiGroup, ATuningFileThatIsNotThereFailsOnAllRanks) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop_join_options_t options;
        onehop_join_options_init(&options, sizeof options);
        EXPECT_EQ(options.tuning, nullptr);
        options.rank = rank;
        options.world_size = 2;
        options.tuning = "/nonexistent/table";
        onehop_group_t* group = nullptr;
        EXPECT_EQ(onehop_group_join(store, &options, &group), ONEHOP_ERROR_NOT_FOUND);
        EXPECT_THAT(onehop_last_error(),
                    HasSubstr("rank 0: tuning file '/nonexistent/table' does not exist"));
      });
    }
  }
  onehop_store_destroy(store);
}

TEST(CApiGroup, ArgumentsThatAllRanksRefuseLeaveTheGroupUsable) {
  run_ranks(2, [](onehop_group_t* group) {
    float value = 1;
    EXPECT_EQ(onehop_all_reduce(group, nullptr, &value, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr, nullptr,
                                nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("its input is null"));
    EXPECT_EQ(onehop_all_reduce(group, &value, &value, 1, 99, ONEHOP_OP_SUM, nullptr, nullptr, nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("its element type is unknown"));
    EXPECT_EQ(onehop_all_reduce(group, &value, &value, 1, ONEHOP_DTYPE_F32, -1, nullptr, nullptr, nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    onehop_call_options_t options;
    onehop_call_options_init(&options, sizeof options);
    options.algorithm = ONEHOP_ALGORITHM_NONE;
    EXPECT_EQ(onehop_all_reduce(group, &value, &value, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr, &options,
                                nullptr),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(onehop_group_check(group));
  });
}

TEST(CApiGroup, ASizeBeyondAnyGroupIsRefusedAtOnce) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  onehop_join_options_t options;
  onehop_join_options_init(&options, sizeof options);
  options.rank = 0;
  options.world_size = INT_MAX;
  options.timeout_ms = 0;
  onehop_group_t* group = nullptr;
  EXPECT_EQ(onehop_group_join(store, &options, &group), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("at most 64 host ranks or 8 GPUs"));
  const std::string name(100'000, 'n');
  options.world_size = 1;
  options.name = name.c_str();
  EXPECT_EQ(onehop_group_join(store, &options, &group), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("must have 1 to 128 characters"));
  onehop_store_destroy(store);
}

TEST(CApiGroup, NullHandlesAreHarmless) {
  onehop_group_destroy(nullptr);
  onehop_group_abort(nullptr, "x");
  onehop_group_leave(nullptr);
  onehop_buffer_destroy(nullptr);
  EXPECT_EQ(onehop_group_rank(nullptr), -1);
  EXPECT_EQ(onehop_group_size(nullptr), 0);
  EXPECT_STREQ(onehop_group_id(nullptr), "");
  EXPECT_EQ(onehop_buffer_local(nullptr), nullptr);
  EXPECT_EQ(onehop_buffer_bytes(nullptr), 0u);
  EXPECT_EQ(onehop_buffer_channels(nullptr), 0);
  onehop_buffer_options_init(nullptr, 0);
  for (const onehop_status_t status :
       {onehop_group_check(nullptr), onehop_group_barrier(nullptr, 0), onehop_buffer_barrier(nullptr, 0, 0),
        onehop_buffer_put_signal(nullptr, 0, 0), onehop_buffer_wait_signal(nullptr, 0, 0, 0),
        onehop_group_join(nullptr, nullptr, nullptr),
        onehop_group_register_buffer(nullptr, nullptr, 0, nullptr),
        onehop_group_allocate_with(nullptr, 0, nullptr, nullptr),
        onehop_group_register_buffer_with(nullptr, nullptr, 0, nullptr, nullptr),
        onehop_group_from_env(nullptr, nullptr),
        onehop_all_reduce(nullptr, nullptr, nullptr, 0, 0, 0, nullptr, nullptr, nullptr)}) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("must not be NULL"));
  }
}

/// An interrupt check that asks for the end at its third call.
int third_call(void* calls) {
  return ++*static_cast<int*>(calls) == 3 ? 1 : 0;
}

TEST(CApiInterrupt, EndsACollectiveOnAllRanksAndNamesTheRank) {
  run_ranks(2, [](onehop_group_t* group) {
    if (onehop_group_rank(group) == 1) {
      int calls = 0;
      onehop_set_interrupt_check(third_call, &calls);
      EXPECT_EQ(onehop_group_barrier(group, 60'000), ONEHOP_ERROR_ABORTED);
      onehop_set_interrupt_check(nullptr, nullptr);
      EXPECT_EQ(calls, 3);
    } else {
      // Waits for the failure without taking part in the barrier.
      while (onehop_group_check(group) == ONEHOP_OK)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(onehop_group_barrier(group, 60'000), ONEHOP_ERROR_ABORTED);
    EXPECT_EQ(onehop_last_error_rank(), 1);
    EXPECT_THAT(onehop_last_error(), HasSubstr("interrupted"));
  });
}

TEST(CApiInterrupt, EndsTheWaitForASignalAndTheGroupStaysUsable) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 64, &buffer));
    if (onehop_group_rank(group) == 0) {
      int calls = 0;
      onehop_set_interrupt_check(third_call, &calls);
      EXPECT_EQ(onehop_buffer_wait_signal(buffer, 1, 0, 60'000), ONEHOP_ERROR_ABORTED);
      onehop_set_interrupt_check(nullptr, nullptr);
    }
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
    onehop_buffer_destroy(buffer);
  });
}

TEST(CApiInterrupt, EndsJoiningWhileRanksAreMissing) {
  for (const int rank : {0, 1}) {
    onehop_store_t* store = nullptr;
    ASSERT_OK(onehop_store_memory(&store));
    onehop_join_options_t options;
    onehop_join_options_init(&options, sizeof options);
    options.rank = rank;
    options.world_size = 2;
    options.timeout_ms = 60'000;
    int calls = 0;
    onehop_set_interrupt_check(third_call, &calls);
    onehop_group_t* group = nullptr;
    EXPECT_EQ(onehop_group_join(store, &options, &group), ONEHOP_ERROR_ABORTED);
    onehop_set_interrupt_check(nullptr, nullptr);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(group, nullptr);
    onehop_store_destroy(store);
  }
}

}  // namespace
}  // namespace onehop
