// SPDX-License-Identifier: Apache-2.0
// Properties of a group, byte strings, deadlines, and all ranks of a group in one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array<int, 3> kHostRanks{ONEHOP_DEVICE_HOST, ONEHOP_DEVICE_HOST, ONEHOP_DEVICE_HOST};

/// A group of host ranks that are all held by one thread.
struct LocalGroup {
  std::array<onehop_group_t*, 3> ranks{};

  LocalGroup() {
    onehop_join_options_t options;
    onehop_join_options_init(&options, sizeof options);
    options.name = "local";
    options.timeout_ms = 20'000;
    EXPECT_OK(onehop_group_join_local(kHostRanks.data(), kHostRanks.size(), &options, ranks.data()));
  }
  ~LocalGroup() {
    for (onehop_group_t* each : ranks) onehop_group_destroy(each);
  }
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  onehop_status_t run(onehop_status_t (*body)(onehop_group_t*, void*), void* context = nullptr) {
    return onehop_groups_run(ranks.data(), ranks.size(), body, context);
  }
};

TEST(CApiLocalGroup, OneThreadHoldsAllRanksAndEachTellsWhatItIs) {
  const LocalGroup group;
  for (int r = 0; r < 3; ++r) {
    const onehop_group_t* const rank = group.ranks[static_cast<std::size_t>(r)];
    ASSERT_NE(rank, nullptr);
    EXPECT_EQ(onehop_group_rank(rank), r);
    EXPECT_EQ(onehop_group_size(rank), 3);
    EXPECT_EQ(onehop_group_device(rank), ONEHOP_DEVICE_HOST);
    EXPECT_STREQ(onehop_group_name(rank), "local");
    EXPECT_STREQ(onehop_group_tuning_file(rank), "");
    EXPECT_EQ(onehop_group_timeout(rank), 20'000);
    EXPECT_EQ(onehop_group_share_by(rank), ONEHOP_SHARE_BY_POSIX_FD) << "what automatic is on the host";
  }
}

TEST(CApiLocalGroup, AFailureIsUnreportedUntilACallHasReturnedIt) {
  LocalGroup group;
  onehop_group_t* const rank = group.ranks[0];
  EXPECT_OK(onehop_group_unreported_failure(rank));
  onehop_group_abort(group.ranks[2], "no more");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(onehop_group_unreported_failure(rank), ONEHOP_ERROR_ABORTED) << "which is no such call";
    EXPECT_THAT(onehop_last_error(), HasSubstr("no more"));
    EXPECT_EQ(onehop_last_error_rank(), 2);
  }
  EXPECT_EQ(onehop_group_check(rank), ONEHOP_ERROR_ABORTED);
  EXPECT_OK(onehop_group_unreported_failure(rank));
  onehop_group_leave(group.ranks[2]);
  EXPECT_EQ(onehop_group_unreported_failure(group.ranks[2]), ONEHOP_ERROR_ABORTED)
      << "its own failure, too, and after leaving";
}

// In processes of their own, which end.
TEST(CApiWatchDeathTest, EndsAProcessThatMakesNoCallsAfterAFailure) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const LocalGroup group;
    if (onehop_group_watch(group.ranks[0], 100) != ONEHOP_OK) std::_Exit(2);
    onehop_group_abort(group.ranks[1], "no more");
    std::this_thread::sleep_for(std::chrono::seconds{20});
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1), "rank 0 of .*: this process ends");
}

TEST(CApiWatchDeathTest, OnlyLogsWithANegativeGrace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const LocalGroup group;
    if (onehop_group_watch(group.ranks[0], 0) != ONEHOP_OK) std::_Exit(2);
    if (onehop_group_watch(group.ranks[0], -1) != ONEHOP_OK) std::_Exit(2);  // replaces the grace
    onehop_group_abort(group.ranks[1], "no more");
    std::this_thread::sleep_for(std::chrono::seconds{1});
    std::_Exit(7);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "rank 0 of .*: the group has failed");
}

TEST(CApiLocalGroup, RunsABodyForEveryRankAndCountsWhatItDid) {
  LocalGroup group;
  std::atomic<int> ran = 0;
  EXPECT_OK(group.run(
      [](onehop_group_t* rank, void* context) -> onehop_status_t {
        ++*static_cast<std::atomic<int>*>(context);
        float value = 1;
        onehop_call_options_t options;
        onehop_call_options_init(&options, sizeof options);
        options.algorithm = ONEHOP_ALGORITHM_TWO_SHOT;
        const onehop_status_t status = onehop_all_reduce(rank, &value, &value, 1, ONEHOP_DTYPE_F32,
                                                         ONEHOP_OP_SUM, nullptr, &options, nullptr);
        EXPECT_EQ(value, 3);
        return status;
      },
      &ran));
  EXPECT_EQ(ran, 3);
  std::array<std::uint64_t, 5> counts{9, 9, 9, 9, 9};
  ASSERT_OK(onehop_group_usage(group.ranks[0], counts.data(), counts.size()));
  EXPECT_THAT(counts, ElementsAre(0, 0, 1, 0, 0));
  counts.fill(9);
  ASSERT_OK(onehop_group_usage(group.ranks[0], counts.data(), 2));
  EXPECT_THAT(counts, ElementsAre(0, 0, 9, 9, 9));
}

TEST(CApiLocalGroup, TheFirstFailureOfABodyComesBackWithItsMessageAndRank) {
  LocalGroup group;
  EXPECT_EQ(group.run([](onehop_group_t* rank, void*) -> onehop_status_t {
    if (onehop_group_rank(rank) == 2) onehop_group_abort(rank, "no more");
    return onehop_group_barrier(rank, ONEHOP_TIMEOUT_DEFAULT);
  }),
            ONEHOP_ERROR_ABORTED);
  EXPECT_THAT(onehop_last_error(), HasSubstr("no more"));
  EXPECT_EQ(onehop_last_error_rank(), 2);
}

TEST(CApiLocalGroup, AStatusOfTheBodysOwnComesBackAsItIsAndAnUnknownOneAsASystemError) {
  LocalGroup group;
  const auto odd = [](onehop_group_t* rank, void* status) {
    return onehop_group_rank(rank) == 1 ? *static_cast<int*>(status) : ONEHOP_OK;
  };
  int status = ONEHOP_ERROR_NOT_FOUND;
  EXPECT_EQ(group.run(odd, &status), ONEHOP_ERROR_NOT_FOUND);
  EXPECT_THAT(onehop_last_error(), AllOf(HasSubstr("groups[1]"), HasSubstr("not_found")));
  status = 4711;
  EXPECT_EQ(group.run(odd, &status), ONEHOP_ERROR_SYSTEM);
  EXPECT_THAT(onehop_last_error(), HasSubstr("4711"));
  EXPECT_EQ(group.run([](onehop_group_t*, void*) -> onehop_status_t { throw std::runtime_error("mine"); }),
            ONEHOP_ERROR_SYSTEM);
  EXPECT_THAT(onehop_last_error(), HasSubstr("mine"));
}

TEST(CApiLocalGroup, NothingIsHandedOutWhenAGroupCannotBeFormed) {
  onehop_group_t* groups[2] = {};
  const int devices[2] = {ONEHOP_DEVICE_HOST, -7};
  EXPECT_EQ(onehop_group_join_local(devices, 2, nullptr, groups), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(groups[0], nullptr);
  EXPECT_EQ(groups[1], nullptr);
}

TEST(CApiGroupBytes, GathersEveryonesPayloadInRankOrder) {
  run_ranks(3, [](onehop_group_t* group) {
    const std::string own(static_cast<std::size_t>(onehop_group_rank(group)) * 2, 'x');
    onehop_payloads_t* all = nullptr;
    ASSERT_OK(onehop_group_all_gather_bytes(group, own.data(), own.size(), &all));
    ASSERT_EQ(onehop_payloads_count(all), 3u);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(onehop_payloads_bytes(all, r), 2 * r);
      const auto* const data = static_cast<const char*>(onehop_payloads_data(all, r));
      EXPECT_EQ(std::string(data), std::string(2 * r, 'x')) << "a NUL follows";
    }
    EXPECT_EQ(onehop_payloads_data(all, 3), nullptr);
    EXPECT_EQ(onehop_payloads_bytes(all, 3), 0u);
    onehop_payloads_destroy(all);

    // Too long on one rank: all ranks get the error, and the group stays usable.
    const std::string huge(onehop_group_rank(group) == 1 ? (64 << 10) + 1 : 1, 'y');
    all = nullptr;
    EXPECT_EQ(onehop_group_all_gather_bytes(group, huge.data(), huge.size(), &all),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_last_error_rank(), 1);
    EXPECT_EQ(all, nullptr);
    ASSERT_OK(onehop_group_all_gather_bytes(group, nullptr, 0, &all));
    onehop_payloads_destroy(all);
  });
}

TEST(CApiGroupBytes, APayloadThatIsTooLongIsRefusedUnreadAndTheGroupStaysUsable) {
  LocalGroup group;
  EXPECT_OK(group.run([](onehop_group_t* each, void*) {
    onehop_payloads_t* all = nullptr;
    const bool odd = onehop_group_rank(each) == 1;
    EXPECT_EQ(onehop_group_all_gather_bytes(each, "x", odd ? SIZE_MAX : 1, &all),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("bytes of rank 1 exceed the 65536"));
    EXPECT_EQ(onehop_last_error_rank(), 1);
    EXPECT_OK(onehop_group_barrier(each, ONEHOP_TIMEOUT_DEFAULT));
    return onehop_status_t{ONEHOP_OK};
  }));
}

TEST(CApiGroupSynchronize, OfHostRanksSaysWhetherTheGroupIsUsable) {
  run_ranks(2, [](onehop_group_t* group) {
    EXPECT_OK(onehop_group_synchronize(group, nullptr, ONEHOP_TIMEOUT_DEFAULT));
    EXPECT_OK(onehop_group_synchronize(group, nullptr, 0));
    EXPECT_EQ(onehop_group_synchronize(group, nullptr, -2), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("-2 ms"));
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
    onehop_group_leave(group);
    EXPECT_NE(onehop_group_synchronize(group, nullptr, 0), ONEHOP_OK);
  });
}

TEST(CApiLocalGroup, NullHandlesAreHarmless) {
  EXPECT_EQ(onehop_group_device(nullptr), ONEHOP_DEVICE_HOST);
  EXPECT_STREQ(onehop_group_name(nullptr), "");
  EXPECT_STREQ(onehop_group_tuning_file(nullptr), "");
  EXPECT_EQ(onehop_group_timeout(nullptr), -1);
  EXPECT_EQ(onehop_group_share_by(nullptr), ONEHOP_SHARE_BY_AUTOMATIC);
  EXPECT_EQ(onehop_payloads_count(nullptr), 0u);
  EXPECT_EQ(onehop_payloads_data(nullptr, 0), nullptr);
  EXPECT_EQ(onehop_payloads_bytes(nullptr, 0), 0u);
  onehop_payloads_destroy(nullptr);
  onehop_payloads_t* all = nullptr;
  std::uint64_t count = 0;
  onehop_group_t* group = nullptr;
  onehop_group_t* none = nullptr;
  const auto body = [](onehop_group_t*, void*) -> onehop_status_t { return ONEHOP_OK; };
  expect_null_refused(onehop_group_usage(nullptr, &count, 1), "group");
  expect_null_refused(onehop_group_synchronize(nullptr, nullptr, 0), "group");
  expect_null_refused(onehop_group_all_gather_bytes(nullptr, "x", 1, &all), "group");
  expect_null_refused(onehop_group_join_local(nullptr, 2, nullptr, &group), "devices");
  expect_null_refused(onehop_group_join_local(kHostRanks.data(), 2, nullptr, nullptr), "groups");
  expect_null_refused(onehop_groups_run(nullptr, 1, body, nullptr), "groups");
  expect_null_refused(onehop_groups_run(&none, 1, body, nullptr), "an entry of groups");
  expect_null_refused(onehop_groups_run(&none, 1, nullptr, nullptr), "body");
  EXPECT_OK(onehop_groups_run(nullptr, 0, body, nullptr));
}

TEST(CApiLocalGroup, CountsThatAreNoneAreRefusedUnread) {
  onehop_group_t* group = nullptr;
  std::uint64_t count = 0;
  const auto body = [](onehop_group_t*, void*) -> onehop_status_t { return ONEHOP_OK; };
  const std::vector<int> crowd(100, ONEHOP_DEVICE_HOST);
  std::vector<onehop_group_t*> groups(crowd.size());
  EXPECT_EQ(onehop_group_join_local(nullptr, 0, nullptr, nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("a group of 0 devices"));
  EXPECT_EQ(onehop_group_join_local(crowd.data(), crowd.size(), nullptr, groups.data()),
            ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("64 host ranks"));
  EXPECT_EQ(onehop_group_join_local(crowd.data(), SIZE_MAX, nullptr, &group), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(onehop_groups_run(groups.data(), SIZE_MAX, body, nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(onehop_group_usage(group, &count, SIZE_MAX), ONEHOP_ERROR_INVALID_ARGUMENT);
}

TEST(CApiLocalGroup, WithoutMemoryForThreadsAllIsRefused) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    onehop_join_options_t options;
    onehop_join_options_init(&options, sizeof options);
    options.timeout_ms = 1000;
    options.rank = 0;
    options.world_size = 1;
    onehop_store_t* store = nullptr;
    onehop_group_t* groups[3] = {};
    // Joins on this thread: a later thread would reuse the stack of a thread that has ended.
    if (onehop_store_memory(&store) != ONEHOP_OK) return 1;
    if (onehop_group_join(store, &options, groups) != ONEHOP_OK) return 1;
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0) return 2;
    limit.rlim_cur = 1 << 20;
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 3;
    const auto body = [](onehop_group_t*, void*) -> onehop_status_t { return ONEHOP_OK; };
    if (onehop_groups_run(groups, 1, body, nullptr) != ONEHOP_ERROR_OUT_OF_RESOURCES) return 4;
    if (std::string(onehop_last_error()).find("thread of groups[0]") == std::string::npos) return 5;
    if (onehop_group_join_local(kHostRanks.data(), 3, &options, groups) != ONEHOP_ERROR_OUT_OF_RESOURCES)
      return 6;
    return std::string(onehop_last_error()).find("thread of rank 0") == std::string::npos ? 7 : 0;
  };
  EXPECT_EXIT(std::_Exit(run()), ::testing::ExitedWithCode(0), "");
}

TEST(CApiLocalGroup, OptionsOfABadSizeAreRefused) {
  onehop_join_options_t options{};
  onehop_group_t* groups[3] = {};
  EXPECT_EQ(onehop_group_join_local(kHostRanks.data(), 3, &options, groups), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("_init"));
}

}  // namespace
}  // namespace onehop
