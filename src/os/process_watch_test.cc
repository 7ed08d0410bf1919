// SPDX-License-Identifier: Apache-2.0
#include "os/process_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "os/private_dir.h"
#include "os/socket.h"

namespace onehop::os {
namespace {

const Duration kDeathSeen{5000};

bool dies_soon(const ProcessWatch& watch) {
  pollfd entry{.fd = watch.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(kDeathSeen.count())) == 1 && watch.has_died();
}

/// A process that connects to `path`, sends a message, and waits to be killed. With `copies`, a child that it
/// creates by the raw system call also holds its socket; the message is that child's process id.
pid_t connect_from_child(const std::string& path, bool copies) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const UniqueFd socket = connect_unix(path, Deadline::after(kDeathSeen));
  pid_t copy = 0;
  if (copies) {
    copy = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    // SYS_pause does not exist on every architecture.
    while (copy == 0) (void)::syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
  }
  (void)send_message(socket.get(), {reinterpret_cast<const char*>(&copy), sizeof copy}, -1,
                     Deadline::after(kDeathSeen));
  while (true) ::pause();
}

TEST(ProcessWatch, SeesADeathThatACopyOfTheSocketHides) {
  const PrivateDir dir = PrivateDir::create("test");
  const std::string path = dir.path() + "/s";
  const UniqueFd listener = listen_unix(path);
  for (const bool copies : {false, true}) {
    const pid_t child = connect_from_child(path, copies);
    const UniqueFd socket = accept_unix(listener.get(), Deadline::after(kDeathSeen));
    ASSERT_TRUE(socket);
    Message message;
    ASSERT_TRUE(recv_message(socket.get(), message, Deadline::after(kDeathSeen)));
    pid_t copy = 0;
    ASSERT_EQ(message.bytes.copy(reinterpret_cast<char*>(&copy), sizeof copy), sizeof copy);
    ASSERT_EQ(copy > 0, copies);
    const ProcessWatch watch = ProcessWatch::of_peer(socket.get());
    ASSERT_TRUE(watch.watches());
    EXPECT_FALSE(watch.has_died());
    (void)::kill(child, SIGSTOP);
    ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
    EXPECT_FALSE(watch.has_died()) << "a stopped process lives";
    (void)::kill(child, SIGKILL);
    EXPECT_TRUE(dies_soon(watch));  // not yet reaped
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(watch.has_died());
    EXPECT_EQ(peer_closed(socket.get()), !copies);
    if (copies) (void)::kill(copy, SIGKILL);
  }
}

TEST(ProcessWatch, WatchesTheProcessThatListens) {
  const PrivateDir dir = PrivateDir::create("test");
  const UniqueFd listener = listen_unix(dir.path() + "/s");
  const UniqueFd socket = connect_unix(dir.path() + "/s", Deadline::after(kDeathSeen));
  const ProcessWatch watch = ProcessWatch::of_peer(socket.get());
  EXPECT_TRUE(watch.watches());
  EXPECT_FALSE(watch.has_died());
}

TEST(ProcessWatch, OfNobodySeesNoDeath) {
  EXPECT_FALSE(ProcessWatch().watches());
  EXPECT_FALSE(ProcessWatch().has_died());
  EXPECT_FALSE(ProcessWatch::of_peer(-1).watches());
}

}  // namespace
}  // namespace onehop::os
