// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "onehop/ipc.h"

#include "base/env.h"
#include "os/memfd.h"
#include "support/errors.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::error_of;
using testing::Exit;
using ::testing::HasSubstr;
using testing::Processes;
using testing::run_threads;
using testing::TempDir;

os::UniqueFd marked(int mark) {
  os::UniqueFd fd = os::create_sealed_memfd("mark", 4096);
  EXPECT_EQ(::pwrite(fd.get(), &mark, sizeof mark, 0), static_cast<ssize_t>(sizeof mark));
  return fd;
}
/// Reads the mark from the descriptor's file and closes it.
int take_mark(int fd) {
  const os::UniqueFd owner(fd);
  int mark = -1;
  EXPECT_EQ(::pread(fd, &mark, sizeof mark, 0), static_cast<ssize_t>(sizeof mark));
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  return mark;
}

/// Makes every call of a channel, on one of three ranks.
void use_channel(IpcChannel& channel) {
  const int me = channel.rank().value;
  ASSERT_EQ(channel.size(), 3);
  const os::UniqueFd own = marked(me);

  const std::vector<int> all = channel.all_gather_fds(own.get());
  ASSERT_EQ(all.size(), 3u);
  for (int r = 0; r < 3; ++r) {
    if (r == me) {
      EXPECT_EQ(all[static_cast<std::size_t>(r)], own.get());
    } else {
      EXPECT_EQ(take_mark(all[static_cast<std::size_t>(r)]), r);
    }
  }

  const int received = channel.broadcast_fds(me == 1 ? own.get() : -1, Rank{1});
  if (me == 1) {
    EXPECT_EQ(received, own.get());
  } else {
    EXPECT_EQ(take_mark(received), 1);
  }
  EXPECT_EQ(channel.broadcast_fds(-1, Rank{2}), -1);
  EXPECT_THAT(channel.all_gather_fds(-1), ElementsAre(-1, -1, -1));

  channel.send_fd(Rank{(me + 1) % 3}, own.get());
  channel.send_fd(Rank{(me + 1) % 3}, -1);
  EXPECT_EQ(take_mark(channel.recv_fd(Rank{(me + 2) % 3})), (me + 2) % 3);
  EXPECT_EQ(channel.recv_fd(Rank{(me + 2) % 3}), -1);

  EXPECT_THAT(channel.all_gather(std::string(static_cast<std::size_t>(me), 'x')), ElementsAre("", "x", "xx"));
  channel.barrier();
}

TEST(IpcChannel, ConnectsThreads) {
  const std::shared_ptr<Store> store = memory_store();
  const int before = testing::footprint().descriptors;
  run_threads(3, [&](Rank rank) {
    IpcChannel channel = IpcChannel::connect(store, "channel", rank, 3);
    use_channel(channel);
    channel.barrier();  // no rank leaves before all are done
  });
  EXPECT_EQ(testing::footprint().descriptors, before);
}

TEST(IpcChannel, ConnectsProcesses) {
  const TempDir dir;
  Processes processes(3, [&](Rank rank) {
    IpcChannel channel = IpcChannel::connect(file_store(dir.path()), "channel", rank, 3);
    use_channel(channel);
    channel.barrier();
    return std::string();
  });
  for (const Exit& exit : processes.wait(seconds{30})) EXPECT_EQ(exit.code, 0) << exit.text;
}

TEST(IpcChannel, SeveralChannelsOfTheSameRanksDoNotMix) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(6, [&](Rank thread) {
    const std::string prefix = thread.value < 3 ? "one" : "other";
    IpcChannel channel = IpcChannel::connect(store, prefix, Rank{thread.value % 3}, 3);
    for (const std::string& each : channel.all_gather(prefix)) EXPECT_EQ(each, prefix);
    use_channel(channel);
    channel.barrier();
  });
}

TEST(IpcChannel, ReceivesFromTheRankThatIsNamedWhoeverWasFirst) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    IpcChannel channel = IpcChannel::connect(store, "channel", rank, 3);
    const os::UniqueFd own = marked(rank.value);
    if (rank == Rank{1}) {
      channel.send_fd(Rank{0}, own.get());
      store->set("rank 1 has sent", "");
    } else if (rank == Rank{2}) {
      (void)store->get("rank 1 has sent");
      channel.send_fd(Rank{0}, own.get());
      store->set("rank 2 has sent", "");
    } else {
      (void)store->get("rank 2 has sent");
      EXPECT_EQ(take_mark(channel.recv_fd(Rank{2})), 2);
      EXPECT_EQ(take_mark(channel.recv_fd(Rank{1})), 1);
    }
    channel.barrier();
  });
}

TEST(IpcChannel, LeavesNoFilesBehind) {
  const TempDir dir;
  const std::optional<std::string> before = env::get("ONEHOP_RUNTIME_DIR");
  ASSERT_EQ(::setenv("ONEHOP_RUNTIME_DIR", dir.path().c_str(), 1), 0);
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    IpcChannel channel = IpcChannel::connect(store, "channel", rank, 2);
    channel.barrier();
    // The ranks are connected, and no longer need the directories of the sockets.
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    channel.barrier();
  });
  ASSERT_EQ(before ? ::setenv("ONEHOP_RUNTIME_DIR", before->c_str(), 1) : ::unsetenv("ONEHOP_RUNTIME_DIR"),
            0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(IpcChannel, NamesTheRankThatDoesNotCome) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    try {
      (void)IpcChannel::connect(store, "channel", rank, 3, milliseconds{200});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("2"));
    }
  });
}

TEST(IpcChannel, ATimeoutThatOneRankCannotUseIsHeardByAll) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    const Duration timeout = rank == Rank{1} ? Duration{-5} : seconds{20};
    const Error error = error_of([&] { (void)IpcChannel::connect(store, "channel", rank, 3, timeout); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_THAT(error.message(), HasSubstr("the timeout of rank 1 must not be negative, got -5 ms"));
  });
}

TEST(IpcChannel, SaysThatItWasMovedFrom) {
  IpcChannel channel = IpcChannel::connect(memory_store(), "channel", Rank{0}, 1);
  const IpcChannel other = std::move(channel);
  EXPECT_EQ(other.size(), 1);
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_THAT(error_of([&] { (void)channel.rank(); }).message(), HasSubstr("moved from"));
  EXPECT_THAT(error_of([&] { channel.barrier(); }).message(), HasSubstr("moved from"));
  EXPECT_THAT(error_of([&] { channel.send_fd(Rank{1}, -1); }).message(), HasSubstr("moved from"));
  // NOLINTEND(bugprone-use-after-move)
}

TEST(IpcChannel, ChecksItsArguments) {
  const std::shared_ptr<Store> store = memory_store();
  EXPECT_THROW((void)IpcChannel::connect(nullptr, "channel", Rank{0}, 2), Error);
  EXPECT_THROW((void)IpcChannel::connect(store, "channel", Rank{2}, 2), Error);
  EXPECT_THROW((void)IpcChannel::connect(store, "channel", Rank{0}, 0), Error);
  EXPECT_THROW((void)IpcChannel::connect(store, "channel", Rank{0}, kMaxHostRanks + 1), Error);
}

}  // namespace
}  // namespace onehop
