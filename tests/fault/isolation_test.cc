// SPDX-License-Identifier: Apache-2.0
// Isolation of ranks and users. Ranks in containers of their own (PID, network and mount namespaces) form a
// group when they share a directory. Otherwise they fail at once and clearly. Processes of another user see
// nothing and connect to nothing. If they get hold of a socket, they are turned away, with an error that
// names them.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "fault/world.h"
#include "group/connect_mesh.h"
#include "group/messages.h"
#include "os/private_dir.h"
#include "support/ranks.h"

namespace onehop::fault::isolation_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr uid_t kStranger = 65534;
enum Figure { kRefused };  ///< errno of what this machine does not permit

/// Runs `body` in new namespaces, as their first process where that matters. Returns errno if that is
/// refused.
int in_namespaces(int flags, bool private_tmp, const std::function<void()>& body) {
  if (::unshare(flags) != 0) return errno;
  if (private_tmp && (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                      ::mount("tmpfs", "/tmp", "tmpfs", 0, "size=1m") != 0)) {
    return errno;
  }
  if ((flags & CLONE_NEWUTS) != 0) {  // as a container has its own hostname
    const std::string name = fmt::format("container-{}", ::getpid());
    if (::sethostname(name.data(), name.size()) != 0) return errno;
  }
  if ((flags & CLONE_NEWPID) == 0) {
    body();
    return 0;
  }
  const pid_t first = ::fork();
  if (first < 0) return errno;
  if (first == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  return 0;
}

/// Where ranks share a directory although each has a /tmp of its own: the current directory, or /var/tmp if the
/// tests run below /tmp.
std::filesystem::path base_outside_tmp() {
  const std::filesystem::path current = std::filesystem::current_path();
  const bool below_tmp = current.string().starts_with("/tmp/") || current == "/tmp";
  return below_tmp ? "/var/tmp" : current;
}

/// A directory that the ranks share. It is made the current one, so that socket paths are short.
class SharedDir {
 public:
  SharedDir() : path_((base_outside_tmp() / "onehop-isolation-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  ~SharedDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;
  void enter() const {
    if (::chdir(path_.c_str()) != 0) throw std::runtime_error("chdir failed");
  }

 private:
  std::string path_;
};

void expect_group_in_namespaces(int flags, bool private_tmp, const char* what) {
  const SharedDir shared;
  World world(3, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    shared.enter();
    // The name is short, too: socket paths have a small limit.
    (void)::setenv("ONEHOP_RUNTIME_DIR", ".", 1);
    card.figures[kRefused] = in_namespaces(flags, private_tmp, [&] {
      card.attempts[0].run([&] {
        Group group = Group::join(
            file_store("store"), {.rank = rank, .size = 3, .timeout = seconds{20}, .scratch_bytes = 1 << 20});
        const SymmetricBuffer buffer = group.allocate(4096);
        buffer.barrier(0, seconds{20});
        check_all_reduce(group);
      });
    });
  });
  ASSERT_TRUE(world.finish(seconds{40}));
  if (world.card(Rank{0}).figures[kRefused] != 0) {
    GTEST_SKIP() << what << " are not permitted here: "
                 << std::strerror(static_cast<int>(world.card(Rank{0}).figures[kRefused]));
  }
  for (Rank r{0}; r.value < 3; ++r.value) {
    EXPECT_EQ(world.card(r).attempts[0].state.load(), Attempt::succeeded) << world.card(r).attempts[0].text();
  }
  fmt::print("{}: 3 ranks that share a directory form a group and all-reduce\n", what);
}

TEST(Isolation, RanksInPidNamespacesOfTheirOwnFormAGroup) {
  expect_group_in_namespaces(CLONE_NEWPID, false, "PID namespaces");
}
TEST(Isolation, RanksInNetworkNamespacesOfTheirOwnFormAGroup) {
  expect_group_in_namespaces(CLONE_NEWNET, false, "network namespaces");
}
TEST(Isolation, RanksWithPrivateTmpFormAGroupInASharedDirectory) {
  expect_group_in_namespaces(CLONE_NEWNS, true, "mount namespaces with a /tmp each");
}
TEST(Isolation, RanksInContainersFormAGroup) {
  expect_group_in_namespaces(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS, true,
                             "all namespaces at once");
}

TEST(Isolation, RanksThatShareNoDirectoryFailAtOnceAndSayWhatToDo) {
  const SharedDir shared;
  World world(3, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    shared.enter();
    for (const char* name : {"ONEHOP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "TMP", "TEMP", "TEMPDIR"})
      (void)::unsetenv(name);
    card.figures[kRefused] = in_namespaces(CLONE_NEWNS, true, [&] {
      card.attempts[0].run(
          [&] { (void)Group::join(file_store("store"), {.rank = rank, .size = 3, .timeout = seconds{20}}); });
    });
  });
  ASSERT_TRUE(world.finish(seconds{40}));
  if (world.card(Rank{0}).figures[kRefused] != 0) GTEST_SKIP() << "mount namespaces are not permitted here";
  std::vector<double> times;
  for (Rank r{0}; r.value < 3; ++r.value) {
    const Attempt& attempt = world.card(r).attempts[0];
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
    EXPECT_EQ(attempt.error(), ErrorCode::peer_lost) << attempt.text();
    EXPECT_THAT(attempt.text(), HasSubstr("ONEHOP_RUNTIME_DIR"));
    times.push_back(attempt.call_ms());
  }
  print_spread("ranks that share no directory: time to the error, of a deadline of 20 s", Spread(times));
  EXPECT_LT(Spread(times).max(), 2000 + world.lateness_ms());
}

/// Runs `body` as another user. False when this process may not become one.
bool as_stranger(const std::function<void()>& body) {
  if (::setgid(kStranger) != 0 || ::setuid(kStranger) != 0) return false;
  body();
  return true;
}

TEST(Isolation, AnotherUserSeesNeitherDirectoryNorSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TempDir base;
  ASSERT_EQ(::chmod(base.path().c_str(), 01777), 0);
  ASSERT_EQ(::setenv("ONEHOP_RUNTIME_DIR", base.path().c_str(), 1), 0);
  const os::PrivateDir directory = os::PrivateDir::create("test");
  const std::string path = directory.path() + "/socket";
  const os::UniqueFd listener = os::listen_unix(path);
  World world(1, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    const bool changed = as_stranger([&] {
      card.figures[1] = ::open(directory.path().c_str(), O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
      card.figures[2] = ::open((directory.path() + "/lock").c_str(), O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
      card.attempts[0].run([&] { (void)os::connect_unix(path, Deadline::after(seconds{1})); });
      // A stranger's sweep does not remove it either.
      card.figures[3] = os::reclaim_stale_dirs(base.path());
    });
    card.figures[0] = changed ? 1 : 0;
  });
  ASSERT_TRUE(world.finish(seconds{20}));
  const Card& card = world.card(Rank{0});
  ASSERT_EQ(card.figures[0], 1);
  EXPECT_EQ(card.figures[1], EACCES);
  EXPECT_EQ(card.figures[2], EACCES);
  EXPECT_EQ(card.attempts[0].state.load(), Attempt::failed);
  EXPECT_THAT(card.attempts[0].text(), HasSubstr("EACCES"));
  EXPECT_EQ(card.figures[3], 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  fmt::print("another user: directory, lock and socket all refuse with EACCES\n");
  ASSERT_EQ(::unsetenv("ONEHOP_RUNTIME_DIR"), 0);
}

// The directory is made accessible on purpose, to test the second line of defense.
TEST(Isolation, AConnectionOfAnotherUserIsRefusedByBothEndsNamingTheUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TempDir base;
  ASSERT_EQ(::chmod(base.path().c_str(), 0777), 0);
  const os::Id id = os::random_id();
  const std::vector<std::string> paths{base.path() + "/0", base.path() + "/1"};
  const os::UniqueFd own = os::listen_unix(paths[0]);
  const os::UniqueFd theirs = os::listen_unix(paths[1]);
  ASSERT_EQ(::chmod(paths[0].c_str(), 0777), 0);
  for (const bool honest : {true, false}) {
    World world(2, [&](World& self, Rank rank) {
      Card& card = self.card(rank);
      const MeshPlan plan{
          .id = id, .rank = rank, .paths = paths, .listener = rank.value == 0 ? own.get() : theirs.get()};
      const Deadline deadline = Deadline::after(seconds{honest ? 1 : 10});
      if (rank.value == 0) {
        card.attempts[0].run([&] { (void)connect_mesh(plan, deadline); });
        self.raise(0);
        return;
      }
      (void)as_stranger([&] {
        card.attempts[0].run([&] {
          if (honest) {
            (void)connect_mesh(plan, deadline);
            return;
          }
          // A client that does not check the socket's owner, and knows the right message.
          const os::UniqueFd socket = os::connect_unix(paths[0], deadline);
          (void)os::send_message(socket.get(), encode(MeshHello{.id = id, .rank = 1}), -1, deadline);
          (void)self.await(0, 1, seconds{5});
        });
      });
    });
    ASSERT_TRUE(world.finish(seconds{20}));
    const Attempt& refused = world.card(Rank{honest ? 1 : 0}).attempts[0];
    EXPECT_EQ(refused.state.load(), Attempt::failed) << refused.text();
    EXPECT_EQ(refused.error(), ErrorCode::refused) << refused.text();
    EXPECT_THAT(refused.text(), HasSubstr("65534"));
    EXPECT_THAT(refused.text(), HasSubstr("as user 0"));
    fmt::print("{}\n", refused.text());
  }
}

// A process of the same user that sends garbage or nothing neither ends the join nor delays it for long.
TEST(Isolation, StrayConnectionsAreTurnedAway) {
  const TempDir base;
  const os::Id id = os::random_id();
  const std::vector<std::string> paths{base.path() + "/0", base.path() + "/1"};
  const os::UniqueFd first = os::listen_unix(paths[0]);
  const os::UniqueFd second = os::listen_unix(paths[1]);
  World world(2, [&](World& self, Rank rank) {
    const MeshPlan plan{
        .id = id, .rank = rank, .paths = paths, .listener = rank.value == 0 ? first.get() : second.get()};
    const Deadline deadline = Deadline::after(seconds{10});
    std::vector<os::UniqueFd> strays;
    if (rank.value == 1) {
      const std::string hello = encode(MeshHello{.id = id, .rank = 1});
      for (const std::string& words :
           {std::string("GET / HTTP/1.1"), hello.substr(0, 9),
            encode(MeshHello{.id = os::random_id(), .rank = 1}), encode(MeshHello{.id = id, .rank = -1}),
            encode(MeshHello{.id = id, .rank = 0}), encode(MeshHello{.id = id, .rank = 1 << 30}),
            std::string()}) {
        strays.push_back(os::connect_unix(paths[0], deadline));
        if (!words.empty()) (void)os::send_message(strays.back().get(), words, -1, deadline);
      }
    }
    self.card(rank).attempts[0].run(
        [&] { (void)connect_mesh(plan, deadline)->all_gather("", deadline, "test"); });
  });
  ASSERT_TRUE(world.finish(seconds{30}));
  for (Rank r{0}; r.value < 2; ++r.value) {
    EXPECT_EQ(world.card(r).attempts[0].state.load(), Attempt::succeeded) << world.card(r).attempts[0].text();
  }
  fmt::print("7 stray connections, one of them silent: connected after {:.0f} ms\n",
             world.card(Rank{0}).attempts[0].call_ms());
}

}  // namespace
}  // namespace onehop::fault::isolation_test
