// SPDX-License-Identifier: Apache-2.0
// Views of buffers, pools in buffers, and what buffers of host ranks refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "onehop/c_api.h"
#include "onehop/device/view.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

TEST(CApiBuffer, AViewHasAllThatARankNeeds) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_buffer_t* whole = nullptr;
    onehop_buffer_t* part = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 4096, &whole));
    ASSERT_OK(onehop_buffer_sub(whole, 1024, 512, &part));
    EXPECT_EQ(onehop_buffer_rank(part), onehop_group_rank(group));
    EXPECT_EQ(onehop_buffer_world_size(part), 2);
    onehop_buffer_view_t view;
    onehop_buffer_view_init(&view, sizeof view);
    ASSERT_OK(onehop_buffer_view(part, &view));
    EXPECT_EQ(view.rank, onehop_group_rank(group));
    EXPECT_EQ(view.world_size, 2);
    EXPECT_EQ(view.bytes, 512u);
    EXPECT_EQ(view.offset, 1024u);
    for (int r = 0; r < 2; ++r) {
      void* peer = nullptr;
      ASSERT_OK(onehop_buffer_peer(part, r, &peer));
      EXPECT_EQ(static_cast<char*>(view.peers[r]) + view.offset, peer);
      EXPECT_NE(view.signal_pads[r], nullptr);
    }
    view.size = 3;
    EXPECT_EQ(onehop_buffer_view(part, &view), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("view->size is 3"));
    onehop_buffer_destroy(part);
    onehop_buffer_destroy(whole);
  });
}

TEST(CApiBuffer, OfHostRanksHasNoStreamsAndNoDeviceView) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 4096, &buffer));
    std::vector<std::byte> view(onehop_device_view_bytes());
    EXPECT_EQ(view.size(), sizeof(DeviceView));
    for (const onehop_status_t status :
         {onehop_buffer_device_view(buffer, ONEHOP_TIMEOUT_DEFAULT, view.data(), view.size()),
          onehop_buffer_barrier_on_stream(buffer, nullptr, 0, ONEHOP_TIMEOUT_DEFAULT),
          onehop_buffer_put_signal_on_stream(buffer, nullptr, 0, 0),
          onehop_buffer_wait_signal_on_stream(buffer, nullptr, 0, 0, ONEHOP_TIMEOUT_DEFAULT)}) {
      EXPECT_EQ(status, ONEHOP_ERROR_UNSUPPORTED);
      EXPECT_THAT(onehop_last_error(), HasSubstr("needs a buffer of GPU ranks"));
    }
    EXPECT_EQ(onehop_buffer_device_view(buffer, ONEHOP_TIMEOUT_DEFAULT, view.data(), 8),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("view has 8 bytes"));
    EXPECT_EQ(onehop_buffer_wait_signal_on_stream(buffer, nullptr, 0, 0, -9), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(onehop_buffer_barrier(buffer, 0, ONEHOP_TIMEOUT_DEFAULT)) << "the group is usable";
    onehop_buffer_destroy(buffer);
  });
}

TEST(CApiBuffer, APoolInABufferGivesOutTheSameOffsetsOnAllRanks) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_buffer_t* buffer = nullptr;
    onehop_pool_t* pool = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 8192, &buffer));
    ASSERT_OK(onehop_pool_create_in(buffer, &pool));
    EXPECT_EQ(onehop_pool_free_bytes(pool), 8192u);
    void* first = nullptr;
    void* second = nullptr;
    ASSERT_OK(onehop_pool_allocate(pool, 1000, nullptr, &first));
    ASSERT_OK(onehop_pool_allocate(pool, 1, nullptr, &second));
    std::size_t offset = 1;
    ASSERT_OK(onehop_pool_offset(pool, second, &offset));
    EXPECT_EQ(offset, 1024u);
    EXPECT_EQ(onehop_pool_free_bytes(pool), 8192u - 1024 - 512);
    void* none = nullptr;
    EXPECT_EQ(onehop_pool_allocate(pool, 8192, nullptr, &none), ONEHOP_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(onehop_pool_allocate(pool, 0, nullptr, &none), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(none, nullptr);
    ASSERT_OK(onehop_pool_deallocate(pool, first, nullptr));
    EXPECT_EQ(onehop_pool_deallocate(pool, first, nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
    ASSERT_OK(onehop_pool_deallocate(pool, second, nullptr));
    EXPECT_EQ(onehop_pool_free_bytes(pool), 8192u);
    onehop_buffer_destroy(buffer);
    onehop_pool_destroy(pool);
  });
}

TEST(CApiBuffer, NullHandlesAreHarmless) {
  EXPECT_EQ(onehop_buffer_rank(nullptr), -1);
  EXPECT_EQ(onehop_buffer_world_size(nullptr), 0);
  EXPECT_EQ(onehop_pool_free_bytes(nullptr), 0u);
  onehop_buffer_view_init(nullptr, 8);
  onehop_buffer_view_t view;
  onehop_buffer_view_init(&view, sizeof view);
  void* data = nullptr;
  onehop_pool_t* pool = nullptr;
  expect_null_refused(onehop_buffer_view(nullptr, &view), "buffer");
  expect_null_refused(onehop_buffer_device_view(nullptr, 0, &view, 1), "buffer");
  expect_null_refused(onehop_buffer_barrier_on_stream(nullptr, nullptr, 0, 0), "buffer");
  expect_null_refused(onehop_buffer_put_signal_on_stream(nullptr, nullptr, 0, 0), "buffer");
  expect_null_refused(onehop_buffer_wait_signal_on_stream(nullptr, nullptr, 0, 0, 0), "buffer");
  expect_null_refused(onehop_pool_create_in(nullptr, &pool), "buffer");
  expect_null_refused(onehop_pool_create_in(nullptr, nullptr), "pool");
  expect_null_refused(onehop_pool_allocate(nullptr, 1, nullptr, &data), "pool");
  expect_null_refused(onehop_pool_allocate(nullptr, 1, nullptr, nullptr), "data");
  expect_null_refused(onehop_pool_deallocate(nullptr, nullptr, nullptr), "pool");
  run_ranks(2, [](onehop_group_t* group) {
    onehop_buffer_t* buffer = nullptr;
    ASSERT_OK(onehop_group_allocate(group, 64, &buffer));
    expect_null_refused(onehop_buffer_view(buffer, nullptr), "view");
    expect_null_refused(onehop_buffer_device_view(buffer, 0, nullptr, onehop_device_view_bytes()), "view");
    onehop_buffer_destroy(buffer);
  });
}

}  // namespace
}  // namespace onehop
