// SPDX-License-Identifier: Apache-2.0
// IntraNodeComm through the C API, with threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"
#include "onehop/topology.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StrEq;

class CApiIntraNode : public ::testing::Test {
 protected:
  CApiIntraNode() { ::setenv("ENABLE_INTRA_NODE_COMM", "1", 1); }
  ~CApiIntraNode() override { ::unsetenv("ENABLE_INTRA_NODE_COMM"); }

  static void run(int size, const std::function<void(int, onehop_intra_node_comm_t*)>& body,
                  const std::function<void(int, onehop_intra_node_options_t&)>& change = {}) {
    onehop_store_t* store = nullptr;
    ASSERT_OK(onehop_store_memory(&store));
    {
      std::vector<std::jthread> ranks;
      for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back([&, rank] {
          onehop_intra_node_options_t options;
          onehop_intra_node_options_init(&options, sizeof options);
          if (change) change(rank, options);
          onehop_intra_node_comm_t* comm = nullptr;
          ASSERT_OK(onehop_intra_node_comm_create(store, rank, size, change ? &options : nullptr, &comm));
          body(rank, comm);
          onehop_intra_node_comm_destroy(comm);
        });
      }
    }
    onehop_store_destroy(store);
  }
};

TEST_F(CApiIntraNode, FormsAndAllReducesWithTheChosenAlgorithm) {
  const std::uint64_t before = onehop_intra_node_comm_total_usage();
  run(2, [](int, onehop_intra_node_comm_t* comm) {
    int formed = -1;
    ASSERT_OK(onehop_intra_node_comm_rendezvous(comm, &formed));
    EXPECT_EQ(formed, 1);
    EXPECT_THAT(onehop_intra_node_comm_reason(comm), StrEq(""));
    std::vector<float> data(1000, 1);
    const auto select = [&](std::size_t count, onehop_dtype_t dtype) {
      return onehop_intra_node_comm_select(comm, data.data(), count, dtype);
    };
    EXPECT_EQ(select(65536, ONEHOP_DTYPE_F32), ONEHOP_ALGORITHM_ONE_SHOT);
    EXPECT_EQ(select(65537, ONEHOP_DTYPE_F32), ONEHOP_ALGORITHM_TWO_SHOT);
    EXPECT_EQ(select(1000, ONEHOP_DTYPE_F64), ONEHOP_ALGORITHM_NONE);
    EXPECT_EQ(select(1000, 99), ONEHOP_ALGORITHM_NONE);
    const auto reduce = [&](onehop_algorithm_t algorithm) {
      return onehop_intra_node_comm_all_reduce(comm, data.data(), data.size(), ONEHOP_DTYPE_F32, algorithm,
                                               nullptr);
    };
    EXPECT_OK(reduce(ONEHOP_ALGORITHM_ONE_SHOT));
    EXPECT_OK(reduce(ONEHOP_ALGORITHM_TWO_SHOT));
    EXPECT_OK(onehop_intra_node_comm_synchronize(comm, nullptr));
    EXPECT_THAT(data, Each(4));
    for (const onehop_algorithm_t bad : {int{ONEHOP_ALGORITHM_NONE}, -1, 99, 300}) {
      EXPECT_EQ(reduce(bad), ONEHOP_ERROR_INVALID_ARGUMENT);
      EXPECT_THAT(onehop_last_error(), HasSubstr("algorithm"));
    }
    std::uint64_t count = 0;
    EXPECT_OK(onehop_intra_node_comm_usage(comm, ONEHOP_ALGORITHM_TWO_SHOT, &count));
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(onehop_intra_node_comm_usage(comm, 3, &count), ONEHOP_ERROR_INVALID_ARGUMENT);
  });
  EXPECT_EQ(onehop_intra_node_comm_total_usage() - before, 4u);
}

TEST_F(CApiIntraNode, SaysWhyThereIsNone) {
  const std::string pcie = Topology::load(ONEHOP_TEST_TOPOLOGIES "/pcie4.json").to_json();
  run(
      2,
      [](int, onehop_intra_node_comm_t* comm) {
        int formed = -1;
        ASSERT_OK(onehop_intra_node_comm_rendezvous(comm, &formed));
        EXPECT_EQ(formed, 0);
        EXPECT_THAT(onehop_intra_node_comm_reason(comm), HasSubstr("not fully connected by NVLink"));
      },
      [&](int rank, onehop_intra_node_options_t& options) {
        options.device = rank;
        options.topology_json = pcie.c_str();
      });
}

TEST_F(CApiIntraNode, ReportsRealFailuresWithTheirRank) {
  run(
      2,
      [](int, onehop_intra_node_comm_t* comm) {
        int formed = -1;
        EXPECT_EQ(onehop_intra_node_comm_rendezvous(comm, &formed), ONEHOP_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(onehop_last_error_rank(), 1);
        EXPECT_EQ(formed, -1);
      },
      [](int rank, onehop_intra_node_options_t& options) { options.timeout_ms = rank == 1 ? -7 : 20'000; });
}

TEST_F(CApiIntraNode, IsEnabledByItsVariable) {
  int enabled = -1;
  EXPECT_OK(onehop_intra_node_comm_is_enabled(&enabled));
  EXPECT_EQ(enabled, 1);
  ::unsetenv("ENABLE_INTRA_NODE_COMM");
  EXPECT_OK(onehop_intra_node_comm_is_enabled(&enabled));
  EXPECT_EQ(enabled, 0);
  ::setenv("ENABLE_INTRA_NODE_COMM", "perhaps", 1);
  EXPECT_EQ(onehop_intra_node_comm_is_enabled(&enabled), ONEHOP_ERROR_INVALID_ARGUMENT);
}

TEST_F(CApiIntraNode, TakesNullPointersForWhatTheyAre) {
  onehop_intra_node_options_init(nullptr, 0);
  onehop_intra_node_comm_destroy(nullptr);
  EXPECT_THAT(onehop_intra_node_comm_reason(nullptr), StrEq(""));
  EXPECT_EQ(onehop_intra_node_comm_select(nullptr, nullptr, 4, ONEHOP_DTYPE_F32), ONEHOP_ALGORITHM_NONE);
  int formed = 0;
  std::uint64_t count = 0;
  const auto expect_named = [](onehop_status_t status, const char* parameter) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr(parameter));
  };
  expect_named(onehop_intra_node_comm_is_enabled(nullptr), "enabled");
  expect_named(onehop_intra_node_comm_rendezvous(nullptr, &formed), "comm");
  expect_named(onehop_intra_node_comm_usage(nullptr, 1, &count), "comm");
  expect_named(onehop_intra_node_comm_all_reduce(nullptr, nullptr, 0, ONEHOP_DTYPE_F32, 1, nullptr), "comm");
  expect_named(onehop_intra_node_comm_synchronize(nullptr, nullptr), "comm");
  onehop_intra_node_comm_t* comm = nullptr;
  expect_named(onehop_intra_node_comm_create(nullptr, 0, 2, nullptr, &comm), "store");
  EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace onehop
