// SPDX-License-Identifier: Apache-2.0
// Threads as ranks, used by the tests of the C API.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"

#define ASSERT_OK(call) ASSERT_EQ((call), ONEHOP_OK) << onehop_last_error()
#define EXPECT_OK(call) EXPECT_EQ((call), ONEHOP_OK) << onehop_last_error()

namespace onehop {

/// A call that must refuse a parameter that is NULL.
inline void expect_null_refused(onehop_status_t status, const std::string& name) {
  EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT) << name;
  EXPECT_NE(std::string(onehop_last_error()).find(name + " must not be NULL"), std::string::npos)
      << name << ": " << onehop_last_error();
}

/// The text that the library returned, which is freed.
inline std::string take_text(char* text) {
  const std::string copy(text != nullptr ? text : "");
  onehop_free(text);
  return copy;
}

/// Joins `size` ranks over one memory store, each in its thread, and runs `body` on each.
inline void run_ranks(int size, const std::function<void(onehop_group_t*)>& body) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop_join_options_t options;
        onehop_join_options_init(&options, sizeof options);
        options.rank = rank;
        options.world_size = size;
        onehop_group_t* group = nullptr;
        ASSERT_OK(onehop_group_join(store, &options, &group));
        body(group);
        onehop_group_destroy(group);
      });
    }
  }
  onehop_store_destroy(store);
}

}  // namespace onehop
