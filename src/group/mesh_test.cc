// SPDX-License-Identifier: Apache-2.0
#include "group/mesh.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>

#include "os/memfd.h"
#include "os/random.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using testing::Exit;
using ::testing::HasSubstr;
using testing::Processes;
using testing::run_threads;
using Mesh = IpcChannel::Mesh;
using Sockets = std::vector<std::vector<os::UniqueFd>>;

// Allowed beyond the promised 100 ms, for a machine that is busy with other tests.
constexpr Duration kSlack = seconds{5};

Sockets socket_mesh(int size) {
  Sockets all(static_cast<std::size_t>(size));
  for (auto& row : all) row.resize(static_cast<std::size_t>(size));
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) std::tie(all[a][b], all[b][a]) = os::socket_pair();
  }
  return all;
}

std::vector<std::shared_ptr<Mesh>> thread_meshes(int size) {
  Sockets sockets = socket_mesh(size);
  std::vector<std::shared_ptr<Mesh>> meshes;
  for (int r = 0; r < size; ++r) {
    meshes.push_back(std::make_shared<Mesh>(Rank{r}, size, std::move(sockets[static_cast<std::size_t>(r)])));
  }
  return meshes;
}

/// Rank r's mesh in the process that is rank r, where the other ranks' sockets are closed.
std::shared_ptr<Mesh> own_mesh(Sockets& sockets, Rank rank) {
  std::vector<os::UniqueFd> own = std::move(sockets[static_cast<std::size_t>(rank.value)]);
  const int size = static_cast<int>(sockets.size());
  sockets.clear();
  return std::make_shared<Mesh>(rank, size, std::move(own));
}

Deadline soon() {
  return Deadline::after(seconds{20});
}

/// A file that holds `mark`.
os::UniqueFd marked_file(int mark) {
  os::UniqueFd fd = os::create_sealed_memfd("mark", 4096);
  EXPECT_EQ(::pwrite(fd.get(), &mark, sizeof mark, 0), static_cast<ssize_t>(sizeof mark));
  return fd;
}
int mark_of(int fd) {
  int mark = -1;
  EXPECT_EQ(::pread(fd, &mark, sizeof mark, 0), static_cast<ssize_t>(sizeof mark));
  return mark;
}

void expect_all_gathered(Mesh& mesh, int round) {
  const int me = mesh.rank().value;
  const os::UniqueFd own = marked_file(1000 * round + me);
  const std::vector<os::UniqueFd> all = mesh.all_gather_fds(own.get(), soon());
  ASSERT_EQ(all.size(), static_cast<std::size_t>(mesh.size()));
  for (int r = 0; r < mesh.size(); ++r) {
    const int fd = all[static_cast<std::size_t>(r)].get();
    if (r == me) {
      EXPECT_EQ(fd, -1);
      continue;
    }
    EXPECT_EQ(mark_of(fd), 1000 * round + r);
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(Mesh, RingGathersDescriptorsOfThreads) {
  for (const int size : {2, 3, 5, 8}) {
    const auto meshes = thread_meshes(size);
    run_threads(size, [&](Rank rank) {
      for (int round = 0; round < 5; ++round)
        expect_all_gathered(*meshes[static_cast<std::size_t>(rank.value)], round);
    });
  }
}

TEST(Mesh, RingGathersDescriptorsOfProcesses) {
  Sockets sockets = socket_mesh(4);
  Processes processes(4, [&](Rank rank) {
    const auto mesh = own_mesh(sockets, rank);
    for (int round = 0; round < 5; ++round) expect_all_gathered(*mesh, round);
    return std::string();
  });
  sockets.clear();
  for (const Exit& exit : processes.wait(seconds{30})) EXPECT_EQ(exit.code, 0) << exit.text;
}

TEST(Mesh, BroadcastsADescriptorOrNoneFromAnyRoot) {
  const auto meshes = thread_meshes(3);
  run_threads(3, [&](Rank rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank.value)];
    for (int root = 0; root < 3; ++root) {
      const os::UniqueFd own = marked_file(root);
      const os::UniqueFd got = mesh.broadcast_fds(rank == Rank{root} ? own.get() : -1, Rank{root}, soon());
      if (rank == Rank{root}) {
        EXPECT_FALSE(got);
      } else {
        EXPECT_EQ(mark_of(got.get()), root);
      }
      EXPECT_FALSE(mesh.broadcast_fds(-1, Rank{root}, soon()));
    }
  });
}

TEST(Mesh, GathersBytesOfDifferentSizesUpToItsLimit) {
  const auto meshes = thread_meshes(4);
  run_threads(4, [&](Rank rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank.value)];
    for (int round = 0; round < 8; ++round) {
      const auto payload = [&](int r) {
        return std::string(kMaxPayload * static_cast<std::size_t>(r) / 3, static_cast<char>('a' + r));
      };
      const std::vector<std::string> all = mesh.all_gather(payload(rank.value), soon(), "test");
      for (int r = 0; r < 4; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], payload(r));
    }
  });
}

TEST(Mesh, SeveralMeshesAtOnceDoNotMix) {
  constexpr int kMeshes = 4;
  std::vector<std::vector<std::shared_ptr<Mesh>>> meshes;
  for (int i = 0; i < kMeshes; ++i) meshes.push_back(thread_meshes(3));
  run_threads(3 * kMeshes, [&](Rank thread) {
    const int which = thread.value / 3;
    Mesh& mesh = *meshes[static_cast<std::size_t>(which)][static_cast<std::size_t>(thread.value % 3)];
    for (int round = 0; round < 10; ++round) expect_all_gathered(mesh, 10 * which + round);
  });
}

TEST(Mesh, SendsOfSeveralThreadsToOneRankAllArrive) {
  constexpr int kThreads = 4;
  constexpr int kEach = 100;
  const auto meshes = thread_meshes(2);
  run_threads(kThreads + 1, [&](Rank thread) {
    if (thread.value < kThreads) {
      for (int i = 0; i < kEach; ++i)
        meshes[0]->send(Rank{1}, std::string(1, static_cast<char>('a' + thread.value)), soon(), "test");
      return;
    }
    std::map<std::string, int> counts;
    for (int i = 0; i < kThreads * kEach; ++i) ++counts[meshes[1]->recv(Rank{0}, soon(), "test")];
    for (const auto& [who, count] : counts) EXPECT_EQ(count, kEach) << who;
  });
}

TEST(Mesh, RanksThatSendMoreThanSocketsHoldToEachOtherDoNotBlock) {
  const auto meshes = thread_meshes(2);
  run_threads(2, [&](Rank rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank.value)];
    const Rank other{1 - rank.value};
    for (int i = 0; i < 50; ++i) mesh.send(other, std::string(kMaxPayload, 'x'), soon(), "test");
    for (int i = 0; i < 50; ++i) EXPECT_EQ(mesh.recv(other, soon(), "test").size(), kMaxPayload);
  });
}

TEST(Mesh, ASendThatTimesOutLeavesNoGap) {
  const auto meshes = thread_meshes(2);
  const std::string large(kMaxPayload, 'x');
  int sent = 0;
  const Error error = error_of([&] {
    for (; sent < 10000; ++sent)
      meshes[0]->send(Rank{1}, large, Deadline::after(milliseconds{50}), "filling");
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{1});
  EXPECT_THAT(error.message(), HasSubstr("rank 0 waited 50 ms to send to rank 1"));
  for (int i = 0; i < sent; ++i) EXPECT_EQ(meshes[1]->recv(Rank{0}, soon(), "test"), large);
  meshes[0]->send(Rank{1}, "after", soon(), "test");
  EXPECT_EQ(meshes[1]->recv(Rank{0}, soon(), "test"), "after");
}

TEST(Mesh, CallsInDifferentOrderAreAMismatchOnAllRanks) {
  const auto meshes = thread_meshes(3);
  run_threads(3, [&](Rank rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank.value)];
    const Error error = error_of([&] {
      if (rank == Rank{1}) {
        (void)mesh.all_gather("", soon(), "test");
      } else {
        (void)mesh.all_gather_fds(-1, soon());
      }
      (void)mesh.all_gather("", soon(), "the next call");
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("ranks disagree"));
    EXPECT_THAT(error.message(), HasSubstr("calls all_gather_fds"));
  });
}

TEST(Mesh, AReceiveTimesOutNamingWhomItWaitedFor) {
  const auto meshes = thread_meshes(3);
  const auto start = std::chrono::steady_clock::now();
  const Error error =
      error_of([&] { (void)meshes[0]->recv(Rank{2}, Deadline::after(milliseconds{100}), "test"); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds{200} + kSlack);
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{2});
  EXPECT_THAT(error.message(), HasSubstr("rank 0 waited 100 ms for rank 2"));
  // The error concerned the caller alone.
  meshes[2]->send(Rank{0}, "late", soon(), "test");
  EXPECT_EQ(meshes[0]->recv(Rank{2}, soon(), "test"), "late");
}

TEST(Mesh, AFailureReportEndsEveryRanksWaitWithThatError) {
  const auto meshes = thread_meshes(4);
  run_threads(4, [&](Rank rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank.value)];
    if (rank == Rank{2}) {
      mesh.fail_group(Error(ErrorCode::system, "disk on fire", Rank{2}));
    } else {
      const Error error = error_of([&] { (void)mesh.all_gather("", soon(), "test"); });
      EXPECT_EQ(error.code(), ErrorCode::system);
      EXPECT_EQ(error.origin(), Rank{2});
      EXPECT_EQ(error.message(), "disk on fire");
    }
    EXPECT_EQ(error_of([&] { mesh.check("later"); }).message(), "disk on fire");
    EXPECT_FALSE(mesh.usable());
  });
}

TEST(Mesh, AFailureThatReachedOneRankReachesAll) {
  Sockets sockets = socket_mesh(3);
  const std::vector<os::UniqueFd> of_rank_1 = std::move(sockets[1]);
  Mesh first(Rank{0}, 3, std::move(sockets[0]));
  Mesh last(Rank{2}, 3, std::move(sockets[2]));
  // Rank 1 is delayed after the first of its two reports.
  const Error error(ErrorCode::system, "disk on fire", Rank{1});
  const std::string report =
      encode(MeshMessage{.kind = MessageKind::failure, .payload = encode(Status::of(error, Rank{1}))});
  ASSERT_EQ(os::send_message(of_rank_1[0].get(), report, -1, soon()), os::SendStatus::sent);

  EXPECT_NO_THROW(last.check("test"));
  EXPECT_EQ(error_of([&] { first.check("test"); }).message(), "disk on fire");
  const Error heard = error_of([&] { last.check("test"); });
  EXPECT_EQ(heard.message(), "disk on fire");
  EXPECT_EQ(heard.origin(), Rank{1});
}

TEST(Mesh, TheFirstFailureIsKept) {
  const auto meshes = thread_meshes(2);
  meshes[0]->fail_group(Error(ErrorCode::system, "first", Rank{0}));
  meshes[0]->fail_group(Error(ErrorCode::system, "second", Rank{0}));
  EXPECT_EQ(error_of([&] { meshes[0]->check("test"); }).message(), "first");
  EXPECT_EQ(error_of([&] { meshes[1]->check("test"); }).message(), "first");
}

TEST(Mesh, ARankThatLeftIsMissedByWhoeverWaitsForItAndByNobodyElse) {
  const auto meshes = thread_meshes(3);
  meshes[1]->send(Rank{0}, "said before", soon(), "test");
  meshes[1]->leave();
  EXPECT_NO_THROW(meshes[0]->check("test"));
  meshes[2]->send(Rank{0}, "hello", soon(), "test");
  EXPECT_EQ(meshes[0]->recv(Rank{2}, soon(), "test"), "hello");
  EXPECT_EQ(meshes[0]->recv(Rank{1}, soon(), "test"), "said before");
  const Error error = error_of([&] { (void)meshes[0]->recv(Rank{1}, soon(), "recv"); });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_EQ(error.origin(), Rank{1});
  EXPECT_EQ(error.message(), "rank 1 has left the group; seen by rank 0 during recv");
  EXPECT_EQ(error_of([&] { meshes[0]->send(Rank{1}, "", soon(), "send"); }).code(), ErrorCode::peer_lost);
  EXPECT_THAT(error_of([&] { meshes[1]->check("test"); }).message(),
              HasSubstr("this rank has left the group"));
}

TEST(Mesh, ARankThatLeavesWithMessagesUnreadHasStillSaidWhatItSaid) {
  const auto meshes = thread_meshes(2);
  meshes[0]->send(Rank{1}, "never read", soon(), "test");
  meshes[1]->send(Rank{0}, "last words", soon(), "test");
  meshes[1]->leave();
  EXPECT_EQ(meshes[0]->recv(Rank{1}, soon(), "test"), "last words");
  EXPECT_THAT(error_of([&] {
                meshes[0]->check_for(
                    Rank{1}, [] { return false; }, "test");
              }).message(),
              HasSubstr("rank 1 has left the group"));
}

TEST(Mesh, WhatARankHasDoneCountsThoughItHasFailedSince) {
  const auto meshes = thread_meshes(2);
  meshes[1]->fail_group(Error(ErrorCode::system, "disk on fire", Rank{1}));
  meshes[0]->check_for(
      Rank{1}, [] { return true; }, "test");
  const auto not_done = [] { return false; };
  EXPECT_EQ(error_of([&] { meshes[0]->check_for(Rank{1}, not_done, "test"); }).message(), "disk on fire");
}

TEST(Mesh, ARankThatLeavesBecauseOfAFailurePassesItOn) {
  Sockets sockets = socket_mesh(3);
  const os::UniqueFd unreported = std::move(sockets[0][2]);  // rank 0 dies before it can tell rank 2
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (int r = 0; r < 3; ++r)
    meshes.push_back(std::make_unique<Mesh>(Rank{r}, 3, std::move(sockets[static_cast<std::size_t>(r)])));
  meshes[0]->fail_group(Error(ErrorCode::system, "disk on fire", Rank{0}));
  EXPECT_EQ(error_of([&] { meshes[1]->check("test"); }).message(), "disk on fire");
  meshes[1]->leave();
  const Error error = error_of([&] { (void)meshes[2]->recv(Rank{1}, soon(), "test"); });
  EXPECT_EQ(error.message(), "disk on fire");
  EXPECT_EQ(error.origin(), Rank{0});
}

TEST(Mesh, LeavingEndsTheWaitOfAnotherThreadOfThisRank) {
  const auto meshes = thread_meshes(2);
  std::latch waiting(1);
  std::thread waiter([&] {
    waiting.count_down();
    const Error error = error_of([&] { (void)meshes[0]->recv(Rank{1}, soon(), "test"); });
    EXPECT_THAT(error.message(), HasSubstr("this rank has left the group"));
  });
  waiting.wait();
  meshes[0]->leave();
  waiter.join();
}

TEST(Mesh, ADeadProcessIsNoticedByAllWhateverTheyWaitFor) {
  Sockets sockets = socket_mesh(4);
  Processes processes(4, [&](Rank rank) -> std::string {
    const auto mesh = own_mesh(sockets, rank);
    // Rank 3 dies only after the others have stopped waiting for each other, or they would notice the death
    // there.
    if (rank == Rank{3}) {
      for (int r = 0; r < 3; ++r) (void)mesh->recv(Rank{r}, soon(), "start");
      ::kill(::getpid(), SIGKILL);
    }
    mesh->send(Rank{3}, "ready", soon(), "start");
    // Only rank 0 waits for rank 3 here.
    const Error error = error_of([&] {
      try {
        (void)mesh->recv(Rank{(rank.value + 3) % 4}, soon(), "waiting");
      } catch (const Error& noticed) {
        mesh->fail_group(noticed);  // as every call of a group does
        throw;
      }
    });
    if (error.code() != ErrorCode::peer_lost || error.origin() != Rank{3})
      return "unexpected: " + error.message();
    return error.message();
  });
  sockets.clear();
  const std::vector<Exit> exits = processes.wait(seconds{15});
  EXPECT_EQ(exits[3].signal, SIGKILL);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(exits[r].code, 0);
    EXPECT_THAT(exits[r].text, HasSubstr("rank 3 died; noticed by rank"));
    EXPECT_THAT(exits[r].text, HasSubstr("during waiting"));
  }
}

TEST(Mesh, ARankOutOfDescriptorsFailsTheExchangeOnAllRanksInTime) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  Sockets sockets = socket_mesh(3);
  Processes processes(3, [&](Rank rank) {
    const auto mesh = own_mesh(sockets, rank);
    const os::UniqueFd own = marked_file(rank.value);
    if (rank == Rank{1}) {
      // One more than the highest descriptor in use: none is left.
      const rlimit limit{.rlim_cur = static_cast<rlim_t>(::open("/dev/null", O_RDONLY | O_CLOEXEC)) + 1,
                         .rlim_max = 1024};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return std::string("setrlimit failed");
      while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
      }
    }
    (void)mesh->all_gather("", soon(), "start");
    const Error error = error_of([&] {
      (void)mesh->all_gather_fds(own.get(), soon());
      // Two steps from rank 1, a rank may get all descriptors before it hears of the failure.
      (void)mesh->all_gather("", soon(), "the next call");
    });
    if (error.code() != ErrorCode::out_of_resources) return "unexpected: " + error.message();
    return error.message();
  });
  sockets.clear();
  for (const Exit& exit : processes.wait(seconds{15})) {
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.text,
                HasSubstr("could not be received by rank 1: out of file descriptors (raise ulimit -n)"));
  }
}

TEST(Mesh, ReceivedDescriptorsAreClosedWhenNobodyTakesThem) {
  const int before = testing::footprint().descriptors;
  {
    const auto meshes = thread_meshes(2);
    const os::UniqueFd own = marked_file(1);
    for (int i = 0; i < 10; ++i) meshes[0]->send_fd(Rank{1}, own.get(), soon());
    meshes[1]->check("reading what came");
  }
  EXPECT_EQ(testing::footprint().descriptors, before);
}

TEST(Mesh, RefusesRanksThatAreNoPeers) {
  const auto meshes = thread_meshes(2);
  for (const int rank : {-1, 0, 2}) {
    EXPECT_EQ(error_of([&] { meshes[0]->send(Rank{rank}, "", soon(), "test"); }).code(),
              ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { (void)meshes[0]->recv(Rank{rank}, soon(), "test"); }).code(),
              ErrorCode::invalid_argument);
  }
  EXPECT_EQ(
      error_of([&] { meshes[0]->send(Rank{1}, std::string(kMaxPayload + 1, 'x'), soon(), "test"); }).code(),
      ErrorCode::invalid_argument);
}

/// Ranks 1 and 2 of four have a sub-group, in which they are ranks 0 and 1, or are about to have it. Rank 2
/// is still in the split, waiting for rank 3, which is stopped.
class HeldUpInASplit : public ::testing::Test {
 protected:
  HeldUpInASplit() : parents_(thread_meshes(4)) {
    begin();
    held_up_ = std::thread([this] { (void)parents_[2]->recv(Rank{3}, soon(), "split"); });
  }
  void begin() {
    parts_.clear();
    Sockets sockets = socket_mesh(2);
    for (int r = 0; r < 2; ++r) {
      parts_.push_back(std::make_unique<Mesh>(
          Rank{r}, 2, std::move(sockets[static_cast<std::size_t>(r)]), std::vector<os::ProcessWatch>{},
          Mesh::Parent{.mesh = parents_[static_cast<std::size_t>(r) + 1], .ranks = {Rank{1}, Rank{2}}}));
    }
  }
  ~HeldUpInASplit() override {
    parents_[3]->send(Rank{2}, "at last", soon(), "split");
    held_up_.join();
  }

  /// The error of rank 1's wait for rank 2 in the sub-group.
  Error waiting() {
    return error_of([&] { (void)parts_[0]->recv(Rank{1}, Deadline::after(Duration{300}), "waiting"); });
  }

  std::vector<std::shared_ptr<Mesh>> parents_;
  std::vector<std::unique_ptr<Mesh>> parts_;
  std::thread held_up_;
  std::atomic<bool> done_ = false;
};

TEST_F(HeldUpInASplit, ARankIsNotToBlameForTheOneThatItWaitsFor) {
  Error error = waiting();
  // Again if the thread of rank 2 was too late to answer.
  for (int tries = 0; tries < 5 && error.origin() == Rank{2}; ++tries) error = waiting();
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{3});
  EXPECT_EQ(error.message(), "waiting: rank 1 waited 300 ms for rank 2, which waits for rank 3");
}

TEST_F(HeldUpInASplit, ARankIsNotToBlameAlsoWhereOthersUseTheSubGroupAlready) {
  Error error(ErrorCode::system, "", Rank{1});
  // Again if the thread of rank 2, which is rank 1 of the sub-group, was too late to answer.
  for (int tries = 0; tries < 5 && error.origin() == Rank{1}; ++tries) {
    begin();
    for (const auto& part : parts_) part->use_own_numbers();
    error = waiting();
  }
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_TRUE(error.origin().none()) << "the sub-group has no number for rank 3 of its parent";
  EXPECT_THAT(error.message(), HasSubstr("in its parent's numbers: rank 2 waits for rank 3"));
  EXPECT_EQ(error_of([&] { parts_[1]->check("later"); }).message(), error.message());
}

TEST_F(HeldUpInASplit, ARankThatComputesIsToBlameThoughItsParentAnswers) {
  parents_[3]->send(Rank{2}, "at last", soon(), "split");
  held_up_.join();
  // Reads the parent's sockets, as the watch of a rank on a GPU does, and waits for no rank.
  held_up_ = std::thread([&] {
    while (!done_) {
      parents_[2]->check("working");
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    (void)parents_[2]->recv(Rank{3}, soon(), "split");
  });
  EXPECT_EQ(waiting().origin(), Rank{2});
  done_ = true;
}

TEST(Mesh, IsDeadInAForkedChildAndLivesOnInTheParent) {
  const auto meshes = thread_meshes(2);
  Processes child(1, [&](Rank) {
    const Error error = error_of([&] { meshes[0]->send(Rank{1}, "from the child", soon(), "test"); });
    EXPECT_THAT(error.message(), HasSubstr("forked"));
    EXPECT_FALSE(meshes[0]->usable());
    meshes[0]->fail_group(Error(ErrorCode::system, "the child's affair"));
    meshes[0]->leave();
    return std::string();
  });
  EXPECT_EQ(child.wait(seconds{10})[0].code, 0);
  meshes[0]->send(Rank{1}, "from the parent", soon(), "test");
  EXPECT_EQ(meshes[1]->recv(Rank{0}, soon(), "test"), "from the parent");
}

}  // namespace
}  // namespace onehop
