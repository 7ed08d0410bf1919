// SPDX-License-Identifier: Apache-2.0
// Exchange through a store, descriptions of stores, and the job in the environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"
#include "support/scoped_variable.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

void run_exchange(int size, const std::function<void(int rank, onehop_store_exchange_t*)>& body) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop_store_exchange_t* exchange = nullptr;
        ASSERT_OK(onehop_store_exchange_create(store, "test", rank, size, &exchange));
        body(rank, exchange);
        onehop_store_exchange_destroy(exchange);
      });
    }
  }
  onehop_store_destroy(store);
}

TEST(CApiStoreExchange, GathersBroadcastsAndWaits) {
  run_exchange(3, [](int rank, onehop_store_exchange_t* exchange) {
    const std::string own = "rank " + std::to_string(rank);
    onehop_payloads_t* all = nullptr;
    ASSERT_OK(
        onehop_store_exchange_all_gather(exchange, own.data(), own.size(), ONEHOP_TIMEOUT_DEFAULT, &all));
    ASSERT_EQ(onehop_payloads_count(all), 3u);
    EXPECT_STREQ(static_cast<const char*>(onehop_payloads_data(all, 2)), "rank 2");
    onehop_payloads_destroy(all);
    char* value = nullptr;
    std::size_t bytes = 0;
    ASSERT_OK(onehop_store_exchange_broadcast(exchange, own.data(), rank == 1 ? own.size() : 0, 1,
                                              ONEHOP_TIMEOUT_DEFAULT, &value, &bytes));
    EXPECT_EQ(bytes, 6u);
    EXPECT_EQ(take_text(value), "rank 1");
    EXPECT_OK(onehop_store_exchange_barrier(exchange, ONEHOP_TIMEOUT_DEFAULT));
  });
}

TEST(CApiStoreExchange, ADeadlineNamesTheRankThatDidNotCome) {
  run_exchange(2, [](int rank, onehop_store_exchange_t* exchange) {
    if (rank == 1) return;
    EXPECT_EQ(onehop_store_exchange_barrier(exchange, 1), ONEHOP_ERROR_TIMEOUT);
    EXPECT_EQ(onehop_last_error_rank(), 1);
  });
}

TEST(CApiStoreExchange, APayloadThatNoStoreHoldsIsRefusedUnreadAlsoByARankThatIsAlone) {
  run_exchange(1, [](int, onehop_store_exchange_t* exchange) {
    onehop_payloads_t* all = nullptr;
    char* value = nullptr;
    std::size_t bytes = 0;
    EXPECT_EQ(onehop_store_exchange_all_gather(exchange, "x", SIZE_MAX, 0, &all),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("a store takes at most"));
    EXPECT_EQ(onehop_store_exchange_broadcast(exchange, "x", SIZE_MAX, 0, 0, &value, &bytes),
              ONEHOP_ERROR_INVALID_ARGUMENT);
  });
}

TEST(CApiStoreExchange, RefusesWhatIsNoRankAndNullPointers) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  onehop_store_exchange_t* exchange = nullptr;
  EXPECT_EQ(onehop_store_exchange_create(store, "p", 2, 2, &exchange), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(exchange, nullptr);
  expect_null_refused(onehop_store_exchange_create(nullptr, "p", 0, 1, &exchange), "store");
  expect_null_refused(onehop_store_exchange_create(store, nullptr, 0, 1, &exchange), "prefix");
  expect_null_refused(onehop_store_exchange_create(store, "p", 0, 1, nullptr), "exchange");
  ASSERT_OK(onehop_store_exchange_create(store, "p", 0, 1, &exchange));
  onehop_payloads_t* all = nullptr;
  char* value = nullptr;
  std::size_t bytes = 0;
  expect_null_refused(onehop_store_exchange_all_gather(nullptr, "x", 1, 0, &all), "exchange");
  expect_null_refused(onehop_store_exchange_all_gather(exchange, nullptr, 1, 0, &all), "payload");
  expect_null_refused(onehop_store_exchange_all_gather(exchange, "x", 1, 0, nullptr), "payloads");
  expect_null_refused(onehop_store_exchange_broadcast(nullptr, "x", 1, 0, 0, &value, &bytes), "exchange");
  expect_null_refused(onehop_store_exchange_broadcast(exchange, "x", 1, 0, 0, nullptr, &bytes), "value");
  expect_null_refused(onehop_store_exchange_broadcast(exchange, "x", 1, 0, 0, &value, nullptr),
                      "value_bytes");
  expect_null_refused(onehop_store_exchange_barrier(nullptr, 0), "exchange");
  EXPECT_EQ(onehop_store_exchange_barrier(exchange, -2), ONEHOP_ERROR_INVALID_ARGUMENT);
  onehop_store_exchange_destroy(exchange);
  onehop_store_exchange_destroy(nullptr);
  onehop_store_destroy(store);
}

TEST(CApiStoreDescribe, SaysWhatAStoreIsAlsoOneOfCallbacks) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  char* text = nullptr;
  ASSERT_OK(onehop_store_describe(store, &text));
  EXPECT_EQ(take_text(text), "memory store");
  expect_null_refused(onehop_store_describe(store, nullptr), "description");
  expect_null_refused(onehop_store_describe(nullptr, &text), "store");
  onehop_store_destroy(store);

  onehop_store_callbacks_t table;
  onehop_store_callbacks_init(&table, sizeof table);
  table.set = [](void*, const char*, const void*, std::size_t, std::int64_t) -> onehop_status_t { return 0; };
  table.get = [](void*, const char*, std::int64_t, onehop_reply_t*) -> onehop_status_t { return 0; };
  table.add = [](void*, const char*, std::int64_t, std::int64_t, std::int64_t*) -> onehop_status_t {
    return 0;
  };
  table.compare_set = [](void*, const char*, const void*, std::size_t, const void*, std::size_t, std::int64_t,
                         onehop_reply_t*) -> onehop_status_t { return 0; };
  table.delete_key = [](void*, const char*, std::int64_t, int*) -> onehop_status_t { return 0; };
  for (const char* const name : {static_cast<const char*>(nullptr), "etcd at 10.0.0.1"}) {
    table.description = name;
    ASSERT_OK(onehop_store_callbacks(&table, &store));
    ASSERT_OK(onehop_store_describe(store, &text));
    EXPECT_EQ(take_text(text), name != nullptr ? name : "callback store");
    onehop_store_destroy(store);
  }
}

TEST(CApiJob, WithoutALauncherIsNotFound) {
  onehop_job_info_t job;
  onehop_job_info_init(&job, sizeof job);
  EXPECT_EQ(onehop_job_from_env(&job), ONEHOP_ERROR_NOT_FOUND);
  EXPECT_THAT(onehop_last_error(), HasSubstr("onehop launch"));
  onehop_store_t* store = nullptr;
  EXPECT_EQ(onehop_store_from_env(0, &store), ONEHOP_ERROR_NOT_FOUND);
  EXPECT_EQ(store, nullptr);
}

TEST(CApiJob, ReadsWhatALauncherSays) {
  std::string directory = (std::filesystem::temp_directory_path() / "onehop-c-job-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  {
    const testing::ScopedVariable rank("ONEHOP_RANK", "2");
    const testing::ScopedVariable size("ONEHOP_SIZE", "4");
    const testing::ScopedVariable local("LOCAL_RANK", "1");
    const testing::ScopedVariable where("ONEHOP_STORE", "file:" + directory);
    onehop_job_info_t job;
    onehop_job_info_init(&job, sizeof job);
    ASSERT_OK(onehop_job_from_env(&job));
    EXPECT_EQ(job.rank, 2);
    EXPECT_EQ(job.world_size, 4);
    EXPECT_EQ(job.local_rank, 1);
    EXPECT_STREQ(job.launcher, "onehop");
    onehop_store_t* store = nullptr;
    ASSERT_OK(onehop_store_from_env(ONEHOP_TIMEOUT_DEFAULT, &store));
    EXPECT_OK(onehop_store_set(store, "key", "v", 1, ONEHOP_TIMEOUT_DEFAULT));
    EXPECT_OK(onehop_store_delete(store, "key", ONEHOP_TIMEOUT_DEFAULT, nullptr));
    onehop_store_destroy(store);
    const testing::ScopedVariable odd("ONEHOP_RANK", "two");
    job.rank = 77;
    EXPECT_EQ(onehop_job_from_env(&job), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("ONEHOP_RANK"));
    EXPECT_EQ(job.rank, 77) << "results are written only on success";
  }
  expect_null_refused(onehop_job_from_env(nullptr), "job");
  expect_null_refused(onehop_store_from_env(0, nullptr), "store");
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace onehop
