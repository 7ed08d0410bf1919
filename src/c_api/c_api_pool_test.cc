// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBytes = 1 << 20;
constexpr int kDevice = ONEHOP_DEVICE_HOST;

void* take(std::size_t bytes) {
  return onehop_pool_malloc(bytes, kDevice, nullptr);
}
void give_back(void* data) {
  onehop_pool_free(data, 0, kDevice, nullptr);
}

// The ranks are threads of one process, in which only one rank's device can be served at a time: rank 0's.

TEST(CApiPool, HandsOutSymmetricMemoryToAFramework) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_pool_t* pool = nullptr;
    ASSERT_OK(onehop_pool_create(group, kBytes, &pool));
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_pool_buffer(pool, &buffer));
    EXPECT_EQ(onehop_buffer_bytes(buffer), kBytes);
    if (onehop_group_rank(group) == 0) {
      ASSERT_OK(onehop_pool_use(pool));
      void* const first = take(1000);
      void* const second = take(1);
      EXPECT_EQ(first, onehop_buffer_local(buffer));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 512, 0u);
      std::size_t offset = 0;
      EXPECT_OK(onehop_pool_offset(pool, second, &offset));
      EXPECT_EQ(offset, 1024u);
      void* peer = nullptr;
      EXPECT_OK(onehop_buffer_peer(buffer, 1, &peer));
      static_cast<std::byte*>(peer)[offset] = std::byte{42};
      give_back(first);
      EXPECT_EQ(take(700), first) << "what was freed is handed out again";
      give_back(first);
      give_back(second);
    }
    EXPECT_OK(onehop_buffer_barrier(buffer, 0, ONEHOP_TIMEOUT_DEFAULT));
    if (onehop_group_rank(group) == 1) {
      EXPECT_EQ(static_cast<std::byte*>(onehop_buffer_local(buffer))[1024], std::byte{42});
    }
    onehop_buffer_destroy(buffer);
    onehop_pool_destroy(pool);
  });
}

TEST(CApiPool, SaysWhyItHasNothingToGive) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_pool_t* pool = nullptr;
    ASSERT_OK(onehop_pool_create(group, kBytes, &pool));
    if (onehop_group_rank(group) == 0) {
      EXPECT_EQ(take(1), nullptr);
      EXPECT_THAT(onehop_last_error(), HasSubstr("no symmetric pool is in use for device -1"));
      ASSERT_OK(onehop_pool_use(pool));
      EXPECT_EQ(take(kBytes + 1), nullptr);
      EXPECT_THAT(onehop_last_error(), HasSubstr("no 1048577 bytes in one piece"));
      EXPECT_EQ(onehop_pool_malloc(1, 5, nullptr), nullptr);
      EXPECT_THAT(onehop_last_error(), HasSubstr("device 5"));
      int local = 0;
      give_back(&local);
      EXPECT_THAT(onehop_last_error(), HasSubstr("did not come from onehop_pool_malloc"));
      give_back(nullptr);
    }
    onehop_pool_destroy(pool);
  });
}

TEST(CApiPool, KeepsWhatAFrameworkHasAfterItIsReplacedAndDestroyed) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_pool_t* first = nullptr;
    onehop_pool_t* second = nullptr;
    ASSERT_OK(onehop_pool_create(group, kBytes, &first));
    ASSERT_OK(onehop_pool_create(group, kBytes, &second));
    if (onehop_group_rank(group) == 0) {
      ASSERT_OK(onehop_pool_use(first));
      auto* const data = static_cast<std::byte*>(take(kBytes));
      ASSERT_NE(data, nullptr);
      ASSERT_OK(onehop_pool_use(second));
      onehop_pool_destroy(first);
      data[kBytes - 1] = std::byte{7};
      void* const other = take(kBytes);
      EXPECT_NE(other, nullptr) << "of the second pool";
      give_back(data);
      onehop_pool_destroy(second);
      EXPECT_EQ(take(1), nullptr);
      give_back(other);
    } else {
      onehop_pool_destroy(first);
      onehop_pool_destroy(second);
    }
  });
}

TEST(CApiPool, NullHandlesAreHarmless) {
  onehop_pool_destroy(nullptr);
  std::size_t offset = 0;
  onehop_buffer_t* buffer = nullptr;
  for (const onehop_status_t status :
       {onehop_pool_create(nullptr, 1, nullptr), onehop_pool_use(nullptr),
        onehop_pool_offset(nullptr, nullptr, &offset), onehop_pool_buffer(nullptr, &buffer)}) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("must not be NULL"));
  }
}

}  // namespace
}  // namespace onehop
