// SPDX-License-Identifier: Apache-2.0
// Descriptors and bytes between ranks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kDefault = ONEHOP_TIMEOUT_DEFAULT;

/// Channels of `size` ranks without a group.
void run_channels(int size, const std::function<void(int rank, onehop_ipc_channel_t*)>& body) {
  onehop_store_t* store = nullptr;
  ASSERT_OK(onehop_store_memory(&store));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop_ipc_channel_t* channel = nullptr;
        ASSERT_OK(onehop_ipc_channel_connect(store, "test", rank, size, kDefault, &channel));
        EXPECT_EQ(onehop_ipc_channel_rank(channel), rank);
        EXPECT_EQ(onehop_ipc_channel_size(channel), size);
        body(rank, channel);
        onehop_ipc_channel_destroy(channel);
      });
    }
  }
  onehop_store_destroy(store);
}

/// A file of `bytes` bytes, by which tests recognize it.
int file_of(int bytes) {
  const int fd = ::memfd_create("c_api", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, bytes), 0);
  return fd;
}
int bytes_of(int fd) {
  struct stat found {};
  return ::fstat(fd, &found) == 0 ? static_cast<int>(found.st_size) : -1;
}

TEST(CApiIpcChannel, PassesDescriptorsAndBytes) {
  run_channels(3, [](int rank, onehop_ipc_channel_t* channel) {
    const int own = file_of(100 + rank);
    const int right = (rank + 1) % 3;
    const int left = (rank + 2) % 3;
    EXPECT_OK(onehop_ipc_channel_send_fd(channel, right, own, kDefault));
    int received = -1;
    ASSERT_OK(onehop_ipc_channel_recv_fd(channel, left, kDefault, &received));
    EXPECT_EQ(bytes_of(received), 100 + left);
    EXPECT_EQ(::fcntl(received, F_GETFD), FD_CLOEXEC);
    ::close(received);

    std::array<int, 3> all{-1, -1, -1};
    ASSERT_OK(onehop_ipc_channel_all_gather_fds(channel, own, kDefault, all.data()));
    for (int r = 0; r < 3; ++r) {
      const int fd = all[static_cast<std::size_t>(r)];
      EXPECT_EQ(bytes_of(fd), 100 + r);
      if (r == rank) {
        EXPECT_EQ(fd, own);
      } else {
        ::close(fd);
      }
    }
    ASSERT_OK(onehop_ipc_channel_broadcast_fd(channel, rank == 1 ? own : -1, 1, kDefault, &received));
    EXPECT_EQ(bytes_of(received), 101);
    if (rank != 1) ::close(received);
    ASSERT_OK(onehop_ipc_channel_broadcast_fd(channel, -1, 0, kDefault, &received));
    EXPECT_EQ(received, -1);

    const std::string text = std::to_string(rank);
    onehop_payloads_t* payloads = nullptr;
    ASSERT_OK(onehop_ipc_channel_all_gather(channel, text.data(), text.size(), kDefault, &payloads));
    EXPECT_STREQ(static_cast<const char*>(onehop_payloads_data(payloads, 2)), "2");
    onehop_payloads_destroy(payloads);
    EXPECT_OK(onehop_ipc_channel_barrier(channel, kDefault));
    ::close(own);
  });
}

TEST(CApiIpcChannel, OfAGroupFailsOnceTheGroupHasLeftAndOutlivesItsHandle) {
  run_ranks(2, [](onehop_group_t* group) {
    onehop_ipc_channel_t* channel = nullptr;
    ASSERT_OK(onehop_group_channel(group, &channel));
    EXPECT_EQ(onehop_ipc_channel_rank(channel), onehop_group_rank(group));
    EXPECT_OK(onehop_ipc_channel_barrier(channel, kDefault));
    onehop_group_leave(group);
    EXPECT_NE(onehop_ipc_channel_barrier(channel, kDefault), ONEHOP_OK);
    onehop_ipc_channel_destroy(channel);
  });
}

TEST(CApiIpcChannel, AReceiveThatFailsConcernsNobodyElse) {
  std::latch refused(2);  // no rank sends before all have failed to receive
  run_channels(2, [&](int rank, onehop_ipc_channel_t* channel) {
    int fd = 77;
    EXPECT_EQ(onehop_ipc_channel_recv_fd(channel, 1 - rank, 1, &fd), ONEHOP_ERROR_TIMEOUT);
    EXPECT_EQ(onehop_ipc_channel_recv_fd(channel, 5, kDefault, &fd), ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_ipc_channel_recv_fd(channel, 1 - rank, -3, &fd), ONEHOP_ERROR_INVALID_ARGUMENT);
    expect_null_refused(onehop_ipc_channel_recv_fd(channel, 1 - rank, kDefault, nullptr), "fd");
    EXPECT_EQ(fd, 77);
    refused.arrive_and_wait();
    EXPECT_OK(onehop_ipc_channel_barrier(channel, kDefault));
  });
}

TEST(CApiIpcChannel, ARefusedPayloadIsHeardByAllAndTheChannelWorksOn) {
  run_channels(2, [](int rank, onehop_ipc_channel_t* channel) {
    onehop_payloads_t* payloads = nullptr;
    EXPECT_EQ(onehop_ipc_channel_all_gather(channel, "x", 1, kDefault, rank == 0 ? nullptr : &payloads),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_last_error_rank(), 0);
    EXPECT_THAT(onehop_last_error(), HasSubstr("rank 0: payloads must not be NULL"));
    EXPECT_EQ(payloads, nullptr);
    EXPECT_OK(onehop_ipc_channel_barrier(channel, kDefault));
  });
}

TEST(CApiIpcChannel, ARefusedDescriptorCallIsHeardByAllAndEndsTheChannel) {
  for (const bool broadcast : {false, true}) {
    run_channels(2, [&](int rank, onehop_ipc_channel_t* channel) {
      std::array<int, 2> fds{-1, -1};
      int* const out = rank == 0 ? nullptr : fds.data();
      const onehop_status_t status = broadcast
                                         ? onehop_ipc_channel_broadcast_fd(channel, -1, 1, kDefault, out)
                                         : onehop_ipc_channel_all_gather_fds(channel, -1, kDefault, out);
      // The root of a broadcast may finish before it hears of the failure.
      if (status != ONEHOP_OK || !broadcast || rank == 0) {
        EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
      }
      EXPECT_EQ(onehop_ipc_channel_barrier(channel, kDefault), ONEHOP_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(onehop_last_error_rank(), 0);
      EXPECT_THAT(onehop_last_error(), HasSubstr("must not be NULL"));
    });
  }
}

TEST(CApiIpcChannel, NullHandlesAreHarmless) {
  onehop_ipc_channel_destroy(nullptr);
  EXPECT_EQ(onehop_ipc_channel_rank(nullptr), -1);
  EXPECT_EQ(onehop_ipc_channel_size(nullptr), 0);
  onehop_ipc_channel_t* channel = nullptr;
  onehop_payloads_t* payloads = nullptr;
  int fd = -1;
  expect_null_refused(onehop_ipc_channel_connect(nullptr, "p", 0, 2, 0, &channel), "store");
  expect_null_refused(onehop_ipc_channel_connect(nullptr, "p", 0, 2, 0, nullptr), "channel");
  expect_null_refused(onehop_group_channel(nullptr, &channel), "group");
  expect_null_refused(onehop_group_channel(nullptr, nullptr), "channel");
  expect_null_refused(onehop_ipc_channel_send_fd(nullptr, 0, -1, 0), "channel");
  expect_null_refused(onehop_ipc_channel_recv_fd(nullptr, 0, 0, &fd), "channel");
  expect_null_refused(onehop_ipc_channel_all_gather_fds(nullptr, -1, 0, &fd), "channel");
  expect_null_refused(onehop_ipc_channel_broadcast_fd(nullptr, -1, 0, 0, &fd), "channel");
  expect_null_refused(onehop_ipc_channel_all_gather(nullptr, "x", 1, 0, &payloads), "channel");
  expect_null_refused(onehop_ipc_channel_barrier(nullptr, 0), "channel");
}

}  // namespace
}  // namespace onehop
