// SPDX-License-Identifier: Apache-2.0
// What the tests of libonehop_nccl.so without NCCL, on the host backend, have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "api.h"

namespace onehop::nccl {

// ncclDataType_t and ncclRedOp_t.
inline constexpr DataType kInt32{2};
inline constexpr DataType kInt64{4};
inline constexpr DataType kFloat{7};
inline constexpr RedOp kSum{0};
inline constexpr RedOp kMax{2};
inline constexpr RedOp kAvg{4};

/// There may be an NCCL and GPUs here.
class WithoutNccl : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("ONEHOP_NCCL", "alone", 1);
    ::setenv("ONEHOP_NCCL_DEVICE", "cpu", 1);
    ::setenv("ONEHOP_NCCL_TIMEOUT", "30", 1);
    ::setenv("ONEHOP_LOG", "off", 1);
  }
};

inline void expect_success(Result result) {
  EXPECT_EQ(result, Result::success) << last_error();
}

/// Runs `body` on a thread per rank, each with a communicator of its own.
inline void on_threads(int size, const std::function<void(const Api&, Comm, int rank)>& body) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Comm comm = nullptr;
      expect_success(api.init_rank(&comm, size, id, rank));
      if (comm == nullptr) return;
      body(api, comm, rank);
      expect_success(api.finalize(comm));
      expect_success(api.destroy(comm));
    });
  }
  for (std::thread& each : threads) each.join();
}

/// Of this thread: all ranks of a communicator.
inline std::vector<Comm> all_ranks(const Api& api, int size) {
  std::vector<Comm> comms(static_cast<std::size_t>(size));
  expect_success(api.init_all(comms.data(), size, nullptr));
  return comms;
}

}  // namespace onehop::nccl
