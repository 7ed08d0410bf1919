// SPDX-License-Identifier: Apache-2.0
// A child created by the raw clone system call runs no fork handlers: it keeps copies of its parent's
// sockets, which then outlive the parent. The parent's death must still be detected at once, and not only at
// the deadline.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault/world.h"
#include "os/process_watch.h"
#include "os/socket.h"
#include "support/ranks.h"

namespace onehop::fault::stray_child_test {
namespace {

using std::chrono::seconds;
using testing::TempDir;

bool can_watch_processes() {
  const auto [one, other] = os::socket_pair();
  return os::ProcessWatch::of_peer(one.get()).watches();
}

/// Leaves a copy of this process, with all its sockets, that ends by itself. It closes the standard streams,
/// since the test runner reads them to their end.
void leave_stray_child() {
  if (::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) != 0) return;
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) ::close(stream);
  ::alarm(8);
  while (true) ::pause();
}

void expect_noticed(bool split) {
  if (!can_watch_processes()) GTEST_SKIP() << "this kernel gives no pidfds";
  const TempDir directory;
  World world(3, [&](World& self, Rank rank) {
    Group group = Group::join(file_store(directory.path() + "/store"), {.rank = rank, .size = 3});
    if (split) group = *group.split(0);
    group.barrier();
    if (rank == Rank{2}) {
      leave_stray_child();
      (void)::kill(::getpid(), SIGKILL);
    }
    Attempt& attempt = self.card(rank).attempts[0];
    attempt.run([&] {
      attempt.begin_call();
      group.barrier(seconds{30});
    });
  });
  ASSERT_TRUE(world.finish(seconds{60}));
  for (const Rank rank : {Rank{0}, Rank{1}}) {
    const Attempt& attempt = world.card(rank).attempts[0];
    EXPECT_EQ(attempt.error(), ErrorCode::peer_lost) << attempt.text();
    EXPECT_EQ(attempt.origin, 2) << attempt.text();
    EXPECT_LT(attempt.call_ms(), 5000 + world.lateness_ms()) << attempt.text();
  }
}

TEST(StrayChild, DoesNotHideItsParentsDeath) {
  expect_noticed(false);
}

TEST(StrayChild, DoesNotHideItsParentsDeathFromASubGroup) {
  expect_noticed(true);
}

}  // namespace
}  // namespace onehop::fault::stray_child_test
