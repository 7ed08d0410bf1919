// SPDX-License-Identifier: Apache-2.0
// Groups as users see them: joining, splitting, failing, leaving.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using testing::Exit;
using testing::expect_shared;
using testing::expect_usable;
using ::testing::HasSubstr;
using testing::kSanitized;
using testing::kSlack;
using testing::message_of;
using testing::Processes;
using testing::run_process_group;
using testing::run_thread_group;
using testing::run_threads;
using testing::TempDir;

using Clock = std::chrono::steady_clock;

/// The error that every rank gets, which contains the rank's number, so that one string compares them all.
class SameError {
 public:
  void add(const Error& error) {
    const std::lock_guard lock(mutex_);
    ++errors_[fmt::format("{} of rank {}: {}", to_string(error.code()), error.origin().value,
                          error.message())];
  }
  /// The one text that `count` ranks got.
  [[nodiscard]] std::string of(int count) {
    EXPECT_EQ(errors_.size(), 1u);
    for (const auto& [text, times] : errors_) {
      EXPECT_EQ(times, errors_.size() == 1 ? count : times) << text;
      if (errors_.size() > 1) ADD_FAILURE() << text;
    }
    return errors_.empty() ? "" : errors_.begin()->first;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> errors_;
};

TEST(Group, TellsWhatItIs) {
  JoinOptions options;
  options.name = "mine";
  options.timeout = seconds{17};
  run_thread_group(
      3,
      [](Group& group) {
        EXPECT_EQ(group.size(), 3);
        EXPECT_TRUE(group.device().is_host());
        EXPECT_EQ(group.name(), "mine");
        EXPECT_EQ(group.timeout(), seconds{17});
        EXPECT_EQ(group.id().size(), 32u);
        EXPECT_THAT(group.all_gather(group.id()), ::testing::Each(group.id()));
        EXPECT_THAT(group.all_gather(std::string(1, static_cast<char>('a' + group.rank().value))),
                    ::testing::ElementsAre("a", "b", "c"));
        EXPECT_NO_THROW(group.check());
      },
      options);
}

TEST(Group, BadOptionsAreOneClearLine) {
  const auto join_error = [](
                              int rank, int size,
                              const std::function<void(JoinOptions&)>& change = [](JoinOptions&) {}) {
    JoinOptions options{.rank = Rank{rank}, .size = size};
    options.timeout = milliseconds{200};
    change(options);
    return error_of([&] { (void)Group::join(memory_store(), options); });
  };
  EXPECT_EQ(join_error(0, 0).message(), "rank 0 of a group of 0: the size is the number of ranks, 1 to 64");
  EXPECT_THAT(join_error(2, 2).message(), HasSubstr("rank 2 of a group of 2"));
  EXPECT_THAT(join_error(-1, 2).message(), HasSubstr("rank -1"));
  // At once: every rank of a group that cannot be knows that.
  EXPECT_EQ(join_error(0, kMaxHostRanks + 1).message(),
            "rank 0 of a group of 65: a group holds at most 64 host ranks or 8 GPUs");
  EXPECT_THAT(join_error(0, 2, [](JoinOptions& o) { o.name = "a/b"; }).message(), HasSubstr("'a/b'"));
  EXPECT_THAT(join_error(0, 2, [](JoinOptions& o) { o.name = ""; }).message(), HasSubstr("name"));
  EXPECT_THAT(error_of([] { (void)Group::join(nullptr, {.rank = Rank{0}, .size = 2}); }).message(),
              HasSubstr("store"));
}

TEST(Group, ARankWithUnusableOptionsFailsAllWithItsError) {
  const auto expect = [](const std::function<void(JoinOptions&)>& change, const char* text) {
    SameError same;
    const std::shared_ptr<Store> store = memory_store();
    run_threads(3, [&](Rank rank) {
      JoinOptions options{.rank = rank, .size = 3};
      if (rank == Rank{1}) change(options);
      same.add(error_of([&] { (void)Group::join(store, options); }));
    });
    EXPECT_THAT(same.of(3), HasSubstr(text));
  };
  expect([](JoinOptions& o) { o.scratch_bytes = 100; }, "rank 1: scratch_bytes 100 is not within 64 KiB");
  expect([](JoinOptions& o) { o.timeout = milliseconds{-5}; },
         "rank 1: the timeout must not be negative, got -5 ms");
  expect([](JoinOptions& o) { o.device = DeviceId{-7}; }, "rank 1: device -7 is neither");
}

TEST(Group, MovedFromLeftAndReassignedGroupsSaySo) {
  run_thread_group(2, [](Group& joined) {
    Group group = std::move(joined);
    EXPECT_THAT(error_of([&] { joined.barrier(); }).message(),
                HasSubstr("moved from"));  // NOLINT(bugprone-use-after-move)
    EXPECT_THAT(error_of([&] { (void)joined.rank(); }).message(), HasSubstr("moved from"));
    EXPECT_THAT(error_of([&] { (void)joined.allocate(1); }).message(), HasSubstr("moved from"));
    joined.abort("nothing to abort");
    joined.leave();
    expect_usable(group);
    group.barrier();
    group.leave();
    group.leave();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { group.barrier(); }, [&] { group.check(); }, [&] { (void)group.allocate(1); },
             [&] { (void)group.register_buffer(&group, 1); }, [&] { (void)group.split(0); },
             [&] { (void)group.all_gather(""); }}) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), HasSubstr("has left the group"));
    }
    EXPECT_EQ(group.size(), 2);
  });
}

TEST(Group, IsLeftAndJoinedAgainOverOneStore) {
  const auto body = [](const std::shared_ptr<Store>& store, Rank rank) {
    std::string before;
    for (int i = 0; i < 20; ++i) {
      Group group = Group::join(store, {.rank = rank, .size = 3});
      EXPECT_NE(group.id(), before);
      before = group.id();
      expect_usable(group);
    }
  };
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) { body(store, rank); });
  const TempDir dir;
  Processes processes(3, [&](Rank rank) {
    body(file_store(dir.path()), rank);
    return std::string();
  });
  for (const Exit& exit : processes.wait(seconds{60})) EXPECT_EQ(exit.code, 0) << exit.text;
}

TEST(Group, SeveralAtOnceFromSeveralThreadsAreIndependent) {
  const std::shared_ptr<Store> store = memory_store();
  constexpr int kGroups = 3;
  run_threads(2 * kGroups, [&](Rank thread) {
    const int which = thread.value / 2;
    JoinOptions options{.rank = Rank{thread.value % 2}, .size = 2};
    options.name = fmt::format("group{}", which);
    Group group = Group::join(store, options);
    const SymmetricBuffer buffer = group.allocate(1000);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int32_t> data(static_cast<std::size_t>(100 * (which + 1)), which + 1);
      all_reduce(group, std::span<std::int32_t>(data));
      ASSERT_THAT(data, ::testing::Each(2 * (which + 1)));
      expect_shared(group, buffer, round);
    }
  });
}

TEST(Group, ThreadsOfOneRankMayCallAtOnce) {
  // Calls of one group are serialized in no particular order. These are identical, so any order works.
  run_thread_group(2, [](Group& group) {
    run_threads(3, [&](Rank) {
      for (int i = 0; i < 50; ++i) expect_usable(group);
    });
  });
}

// --- splitting ---

TEST(Split, FormsAGroupPerColorOrderedByKeyThenRank) {
  const auto body = [](Group& group) {
    const int rank = group.rank().value;
    // Keys count down among the even ranks and are all equal among the odd ones.
    std::optional<Group> part = group.split(rank % 2, rank % 2 == 0 ? -rank : 7);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(part->rank().value, rank % 2 == 0 ? 2 - rank / 2 : rank / 2);
    EXPECT_THAT(part->name(), HasSubstr(group.name()));
    EXPECT_NE(part->id(), group.id());
    EXPECT_THAT(part->all_gather(part->id()), ::testing::Each(part->id()));
    expect_usable(*part);
    expect_shared(*part, part->allocate(1000));
    expect_usable(group);

    // Nested groups, after which all of them still work.
    if (rank % 2 == 0) {
      std::optional<Group> pair = part->split(part->rank() == Rank{1} ? -1 : 0);
      EXPECT_EQ(pair.has_value(), part->rank() != Rank{1});
      if (pair) expect_usable(*pair);
      if (pair) pair->barrier();
      part->barrier();
    }
    part->barrier();
    group.barrier();
  };
  run_thread_group(6, body);
  run_process_group(6, body);
}

TEST(Split, ANegativeColorGetsNoGroup) {
  run_thread_group(4, [](Group& group) {
    std::optional<Group> part = group.split(group.rank().value < 2 ? -1 : 5);
    EXPECT_EQ(part.has_value(), group.rank().value >= 2);
    if (part) expect_usable(*part);
    EXPECT_FALSE(group.split(-3).has_value());
    expect_usable(group);
  });
}

TEST(Split, APartFailsAloneAndOutlivesItsParent) {
  run_thread_group(4, [](Group& joined) {
    Group group = std::move(joined);
    std::optional<Group> part = group.split(group.rank().value / 2);
    if (group.rank().value < 2) {
      if (part->rank() == Rank{0}) part->abort("only this part");
      EXPECT_EQ(error_of([&] { part->barrier(); }).code(), ErrorCode::aborted);
    }
    expect_usable(group);
    const bool intact = group.rank().value >= 2;
    group.leave();
    if (intact) expect_usable(*part);
  });
}

// --- failures ---

TEST(Abort, FromAnotherThreadWakesEveryWaiterInTimeWithRankAndReason) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    std::thread aborter;
    if (group.rank() == Rank{1}) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(milliseconds{50});  // most likely all wait by now, but they need not
        group.abort("the user pressed stop");
      });
    }
    const auto start = Clock::now();
    const Error error = error_of([&] {
      // No rank does its part, so all wait: in a collective, for a signal, in a barrier.
      if (group.rank() == Rank{0}) buffer.wait_signal(Rank{1});
      if (group.rank() == Rank{1}) group.barrier();
      buffer.barrier();
    });
    EXPECT_LT(Clock::now() - start, milliseconds{300} + kSlack);
    if (aborter.joinable()) aborter.join();
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_EQ(error.message(), "rank 1 aborted the group: the user pressed stop");
    EXPECT_EQ(error_of([&] { expect_usable(group); }).message(), error.message());
    EXPECT_EQ(error_of([&] { (void)group.allocate(1); }).message(), error.message());
    EXPECT_EQ(error_of([&] { group.check(); }).message(), error.message());
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

TEST(Abort, SurvivorsFormANewGroup) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    // Some ranks may hear of it while they still join.
    const Error error = error_of([&] {
      Group group = Group::join(store, {.rank = rank, .size = 3});
      if (rank == Rank{2}) group.abort("no more");
      group.barrier();
    });
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    if (rank == Rank{2}) return;
    Group group = Group::join(store, {.rank = rank, .size = 2});
    expect_usable(group);
  });
}

TEST(Shrink, FormsAGroupOfTheRanksThatAreLeftInTheirOrder) {
  const auto body = [](Group& joined) {
    Group group = std::move(joined);
    const int rank = group.rank().value;
    const SymmetricBuffer old = group.allocate(64);
    group.barrier();
    if (rank % 2 == 1) return;
    EXPECT_EQ(error_of([&] { expect_usable(group); }).code(), ErrorCode::peer_lost);
    EXPECT_THAT(group.parent_ranks(), ::testing::IsEmpty());
    Group left = group.shrink();
    EXPECT_THAT(left.parent_ranks(), ::testing::ElementsAre(Rank{0}, Rank{2}, Rank{4}));
    EXPECT_EQ(left.rank().value, rank / 2);
    EXPECT_EQ(left.name(), group.name());
    EXPECT_NE(left.id(), group.id());
    EXPECT_EQ(left.timeout(), group.timeout());
    expect_usable(left);
    expect_shared(left, left.allocate(1000));
    std::optional<Group> part = left.split(0, -left.rank().value);
    EXPECT_THAT(part->parent_ranks(), ::testing::ElementsAre(Rank{2}, Rank{1}, Rank{0}));
    expect_usable(*part);

    EXPECT_EQ(error_of([&] { group.check(); }).code(), ErrorCode::peer_lost) << "it stays failed";
    EXPECT_EQ(message_of([&] { (void)group.shrink(); }, ErrorCode::invalid_argument),
              fmt::format("shrink: rank {} has the group of the survivors already; shrink that one", rank));
    group.leave();
    EXPECT_THAT(message_of([&] { (void)group.shrink(); }, ErrorCode::invalid_argument),
                ::testing::AnyOf(HasSubstr("has left the group"), HasSubstr("shrink that one")));
    expect_usable(left);
  };
  run_thread_group(5, body);
  run_process_group(5, body);
}

TEST(Shrink, HasAllRanksAfterAnAbort) {
  std::barrier together(4);  // no rank is still joining
  run_thread_group(4, [&](Group& joined) {
    Group group = std::move(joined);
    for (int round = 0; round < 3; ++round) {
      together.arrive_and_wait();
      const Rank culprit{round};
      if (group.rank() == culprit) group.abort("once more");
      EXPECT_EQ(error_of([&] {
                  while (true) group.barrier();
                }).origin(),
                culprit);
      group = group.shrink();
      EXPECT_EQ(group.size(), 4);
      expect_usable(group);
    }
  });
}

TEST(Shrink, OfAGroupThatHasNotFailedEndsTheCallsOfTheOtherRanks) {
  std::barrier together(3);
  run_thread_group(3, [&](Group& group) {
    together.arrive_and_wait();
    if (group.rank() != Rank{1}) {
      const Error error = error_of([&] {
        while (true) group.barrier();
      });
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_EQ(error.message(), "shrink: rank 1 makes a group of the ranks that are left");
    }
    Group again = group.shrink();
    EXPECT_EQ(again.size(), 3);
    expect_usable(again);
  });
}

TEST(Shrink, NamesARankThatDoesNotComeAndGoesOnWhenItComes) {
  std::atomic<int> told{0};
  std::barrier together(3);
  run_thread_group(3, [&](Group& group) {
    together.arrive_and_wait();
    if (group.rank() == Rank{2}) {
      while (told.load() < 2) std::this_thread::sleep_for(milliseconds{1});
    } else {
      const Error error = error_of([&] { (void)group.shrink(milliseconds{2000}); });
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_EQ(error.origin(), Rank{2}) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("waited 2000 ms for rank 2"));
      ++told;
    }
    Group again = group.shrink();
    EXPECT_EQ(again.size(), 3);
    expect_usable(again);
  });
}

TEST(Shrink, OfASubGroupLeavesItsParentAlone) {
  std::barrier together(4);
  run_thread_group(4, [&](Group& group) {
    std::optional<Group> part = group.split(group.rank().value / 2);
    together.arrive_and_wait();
    if (group.rank() == Rank{1}) part->abort("this half");
    if (group.rank().value < 2) {
      Group again = part->shrink();
      EXPECT_EQ(again.size(), 2);
      expect_usable(again);
    } else {
      expect_usable(*part);
    }
    expect_usable(group);
  });
}

TEST(Shrink, OfOneRankIsAGroupOfOne) {
  std::barrier together(2);
  run_thread_group(2, [&](Group& group) {
    together.arrive_and_wait();
    if (group.rank() == Rank{0}) return;
    Group alone = group.shrink();
    EXPECT_EQ(alone.size(), 1);
    EXPECT_THAT(alone.parent_ranks(), ::testing::ElementsAre(Rank{1}));
    expect_usable(alone);
  });
}

TEST(Leaving, ARankThatOthersWaitForIsMissedAtOnce) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    if (group.rank() == Rank{1}) return;
    const auto start = Clock::now();
    const Error error =
        error_of([&] { group.rank() == Rank{0} ? group.barrier() : buffer.wait_signal(Rank{1}); });
    EXPECT_LT(Clock::now() - start, milliseconds{250} + kSlack);
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_THAT(error.message(), HasSubstr("rank 1 has left the group"));
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

TEST(Fork, TheChildsCopyIsDeadAndItsEndDisturbsNobody) {
  run_process_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    const pid_t child = ::fork();
    if (child == 0) {
      int wrong = 0;
      const auto expect_dead = [&](const std::function<void()>& call) {
        try {
          call();
          ++wrong;
        } catch (const Error& error) {
          if (error.message().find("forked") == std::string::npos) ++wrong;
        }
      };
      expect_dead([&] { group.barrier(); });
      expect_dead([&] { group.check(); });
      expect_dead([&] { (void)group.allocate(10); });
      expect_dead([&] { (void)group.all_gather(""); });
      expect_dead([&] { buffer.barrier(); });
      expect_dead([&] { buffer.put_signal(Rank{0}); });
      expect_dead([&] { buffer.wait_signal(Rank{0}, 0, milliseconds{10}); });
      group.abort("the child's wish");
      { const Group gone = std::move(group); }
      ::_exit(wrong);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    // Neither a signal nor a barrier of the children has arrived.
    const Rank other{1 - group.rank().value};
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{0}); }).code(), ErrorCode::timeout);
    buffer.barrier();
    expect_usable(group);
    group.barrier();
  });
}

TEST(Fork, AParentsDeathIsNoticedThoughItsChildLives) {
  const TempDir dir;
  std::array<int, 2> children_end{};  // the child of rank 1 lives until this test closes it
  ASSERT_EQ(::pipe2(children_end.data(), O_CLOEXEC), 0);
  Processes processes(2, [&](Rank rank) -> std::string {
    ::close(children_end[1]);
    Group group = Group::join(file_store(dir.path()), {.rank = rank, .size = 2});
    group.barrier();
    if (rank == Rank{1}) {
      if (::fork() == 0) {
        char byte = 0;
        (void)!::read(children_end[0], &byte, 1);
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    }
    const auto start = Clock::now();
    const Error error = error_of([&] { group.barrier(); });
    EXPECT_LT(Clock::now() - start, milliseconds{250} + kSlack);
    return error.message();
  });
  const Exit survivor = processes.wait(seconds{20}, {1})[0];
  EXPECT_EQ(survivor.code, 0);
  EXPECT_THAT(survivor.text, HasSubstr("rank 1 died"));
  ::close(children_end[0]);
  ::close(children_end[1]);
  EXPECT_EQ(processes.wait(seconds{20})[1].signal, SIGKILL);
}

// --- nothing left behind ---

TEST(Footprint, AThousandGroupsWithABufferEachLeaveNothingBehind) {
  const int cycles = kSanitized ? 100 : 1000;
  const std::shared_ptr<Store> store = memory_store();
  const auto run_cycles = [&](int count) {
    run_threads(2, [&](Rank rank) {
      JoinOptions options{.rank = rank, .size = 2};
      options.scratch_bytes = 64 << 10;
      for (int i = 0; i < count; ++i) {
        Group group = Group::join(store, options);
        const SymmetricBuffer buffer = group.allocate(100000);
        expect_usable(group);
      }
    });
  };
  // One-time set-up in the first cycles (heap arenas, thread stacks) does not count as growth.
  run_cycles(cycles / 10);
  const testing::Footprint before = testing::footprint();
  run_cycles(cycles);
  testing::Footprint after = testing::footprint();
  // A thread that was joined may not be gone from /proc yet.
  for (int look = 0; look < 500 && after.threads > before.threads; ++look) {
    std::this_thread::sleep_for(milliseconds{10});
    after = testing::footprint();
  }
  std::printf(
      "%d create/destroy cycles: descriptors %d -> %d, threads %d -> %d, mappings %d -> %d, address space "
      "%zu -> %zu KiB\n",
      cycles, before.descriptors, after.descriptors, before.threads, after.threads, before.mappings,
      after.mappings, before.address_space >> 10, after.address_space >> 10);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // Allows for one heap arena; a leaked buffer would show a thousandfold.
  EXPECT_LE(after.mappings, before.mappings + 10);
  if (kSanitized) return;  // sanitizers keep freed memory for a while
  EXPECT_LE(after.address_space, before.address_space + (std::size_t{130} << 20));
}

}  // namespace
}  // namespace onehop
