// SPDX-License-Identifier: Apache-2.0
#include "group/rendezvous.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "group/messages.h"
#include "group/sample_hellos.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::run_threads;

/// A memory store that lists its keys.
class ListedStore : public Store {
 public:
  [[nodiscard]] std::string describe() const override { return "listed store"; }

  [[nodiscard]] std::vector<std::string> keys() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> held;
    for (const auto& [key, unused] : seen_) {
      if (store_->get_for(key, Duration{0})) held.push_back(key);
    }
    return held;
  }

  Duration delay{0};                ///< of every look, whatever its timeout
  std::atomic<int> slow_looks = 0;  ///< this many waits for a key fail, as if a server answered too late

 private:
  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    note(key);
    store_->set(key, value, timeout);
  }
  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    std::this_thread::sleep_for(delay);
    if (timeout.count() > 0 && slow_looks.fetch_sub(1) > 0) fail(ErrorCode::timeout, "listed store is slow");
    return store_->get_for(key, timeout);
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    note(key);
    return store_->add(key, delta, timeout);
  }
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    note(key);
    return store_->compare_set(key, expected, desired, timeout);
  }
  bool do_delete_key(std::string_view key, Duration timeout) override {
    return store_->delete_key(key, timeout);
  }
  void note(std::string_view key) {
    const std::lock_guard lock(mutex_);
    seen_.emplace(key, 0);
  }
  std::shared_ptr<Store> store_ = memory_store();
  std::mutex mutex_;
  std::map<std::string, int> seen_;
};

/// A store that completes a given number of operations and then hangs, or is interrupted each time.
class HangingStore : public Store {
 public:
  explicit HangingStore(int answers, bool interrupted = false)
      : answers_(answers), interrupted_(interrupted) {}
  [[nodiscard]] std::string describe() const override { return "hanging store"; }

 private:
  bool answers(Duration timeout) {
    if (answers_.fetch_sub(1) > 0) return true;
    if (interrupted_) fail(ErrorCode::aborted, "interrupted in the store");
    std::unique_lock lock(mutex_);
    (void)never_.wait_for(lock, timeout, [] { return false; });
    return false;
  }
  void require_answer(Duration timeout) {
    if (!answers(timeout)) fail(ErrorCode::timeout, "the hanging store does not answer");
  }
  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    require_answer(timeout);
    store_->set(key, value);
  }
  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    if (!answers(timeout)) return std::nullopt;
    return store_->get_for(key, timeout);
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    require_answer(timeout);
    return store_->add(key, delta);
  }
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    require_answer(timeout);
    return store_->compare_set(key, expected, desired);
  }
  bool do_delete_key(std::string_view key, Duration timeout) override {
    require_answer(timeout);
    return store_->delete_key(key);
  }

  std::shared_ptr<Store> store_ = memory_store();
  std::atomic<int> answers_;
  const bool interrupted_;
  std::mutex mutex_;
  std::condition_variable never_;
};

struct Attempt {
  std::optional<os::Id> id;  ///< the group's, if there is one
  std::optional<Error> error;
  Duration took{};
};

Prepared host_rank(std::string device) {
  return {.device = std::move(device), .share_methods = by_descriptors()};
}

struct Joining {
  Duration timeout = seconds{20};
  std::string name = "world";
  std::vector<int> absent = {};  ///< ranks that never join
  std::function<void(JoinOptions&)> change = [](JoinOptions&) {};
  std::function<std::string(int)> prepare = [](int) { return std::string("host"); };
  std::function<peer_check::Outcomes()> read_outcomes = []() -> peer_check::Outcomes {
    fail(ErrorCode::system, "nobody asked for verified peers");
  };
};

/// The outcome for each of the ranks that join.
std::vector<Attempt> join(Store& store, int size, const Joining& how = {}) {
  std::vector<Attempt> attempts(static_cast<std::size_t>(size));
  run_threads(size, [&](Rank rank) {
    if (std::count(how.absent.begin(), how.absent.end(), rank.value) != 0) return;
    JoinOptions options{.rank = rank, .size = size};
    options.timeout = how.timeout;
    options.name = how.name;
    how.change(options);
    Attempt& attempt = attempts[static_cast<std::size_t>(rank.value)];
    const auto start = std::chrono::steady_clock::now();
    try {
      const Rendezvous joined = rendezvous(
          store, options, [&] { return host_rank(how.prepare(rank.value)); },
          Deadline::after(options.timeout), how.read_outcomes);
      attempt.id = joined.id;
      // The mesh is usable, and no rank leaves before all have checked that.
      const Deadline soon = Deadline::after(seconds{20});
      (void)joined.mesh->all_gather("", soon, "test");
      (void)joined.mesh->all_gather("", soon, "test");
    } catch (const Error& error) {
      attempt.error.emplace(error);
    }
    attempt.took = std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - start);
  });
  return attempts;
}

void expect_one_group(const std::vector<Attempt>& attempts) {
  for (const Attempt& each : attempts) {
    ASSERT_FALSE(each.error) << each.error->what();
    EXPECT_EQ(each.id, attempts[0].id);
  }
}

/// Every rank that joined got this error.
void expect_refused(const std::vector<Attempt>& attempts, ErrorCode code,
                    const ::testing::Matcher<const std::string&>& text) {
  for (const Attempt& each : attempts) {
    if (!each.error && !each.id) continue;  // it did not join
    ASSERT_TRUE(each.error.has_value());
    EXPECT_EQ(each.error->code(), code) << each.error->what();
    EXPECT_THAT(each.error->message(), text);
  }
}

TEST(Rendezvous, LeavesNoKeysBehindAndCanBeRepeatedOverOneStore) {
  ListedStore store;
  std::optional<os::Id> before;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Attempt> attempts = join(store, 3);
    expect_one_group(attempts);
    EXPECT_NE(attempts[0].id, before);
    before = attempts[0].id;
    EXPECT_THAT(store.keys(), ::testing::IsEmpty());
  }
}

TEST(Rendezvous, RanksThatLeaveAndJoinAgainWithoutWaitingForEachOtherFormAGroup) {
  ListedStore store;
  run_threads(3, [&](Rank thread) {
    for (int round = 0; round < 20; ++round) {
      // Every thread takes every rank number in turn.
      JoinOptions options{.rank = Rank{(thread.value + round) % 3}, .size = 3};
      const Rendezvous joined = rendezvous(
          store, options, [] { return host_rank("host"); }, Deadline::after(seconds{20}));
      EXPECT_EQ(joined.mesh->rank(), options.rank);
    }
  });
  EXPECT_THAT(store.keys(), ::testing::IsEmpty());
}

TEST(Rendezvous, GroupsOfDifferentNamesFormAtOnceOverOneStore) {
  ListedStore store;
  std::array<std::vector<Attempt>, 4> attempts;
  run_threads(4, [&](Rank group) {
    attempts[static_cast<std::size_t>(group.value)] =
        join(store, 2 + group.value, {.name = fmt::format("group{}", group.value)});
  });
  for (const std::vector<Attempt>& each : attempts) expect_one_group(each);
  EXPECT_NE(attempts[0][0].id, attempts[1][0].id);
  EXPECT_THAT(store.keys(), ::testing::IsEmpty());
}

TEST(Rendezvous, IgnoresWhatACrashedRunLeftInTheStore) {
  ListedStore store;
  const os::Id old_id = os::random_id();
  std::vector<os::Id> nonces;
  for (int r = 0; r < 3; ++r) {
    nonces.push_back(os::random_id());
    store.set(fmt::format("onehop/world/announce/{}", r),
              encode(Announce{.nonce = nonces.back(), .size = 3}));
    store.set(fmt::format("onehop/world/{}/ack/{}", os::to_hex(old_id), r), encode(Ack{}));
  }
  store.set("onehop/world/offer", encode(Offer{.id = old_id, .nonces = nonces}));
  store.set(fmt::format("onehop/world/{}/verdict", os::to_hex(old_id)), encode(Verdict{.hellos = hellos(3)}));
  store.set(fmt::format("onehop/world/refusal/{}", os::to_hex(nonces[1])),
            encode(Status{.code = ErrorCode::refused, .origin = {}, .message = "long ago"}));
  // Rank 0 reads the stale announcements first, and makes an offer to ranks that are dead.
  for (int round = 0; round < 5; ++round) {
    for (int r = 1; r < 3; ++r) {
      store.set(fmt::format("onehop/world/announce/{}", r),
                encode(Announce{.nonce = os::random_id(), .size = 3}));
    }
    expect_one_group(join(store, 3));
  }
}

TEST(Rendezvous, IgnoresWhatAnotherVersionLeftInTheStore) {
  // Rank 1 joins once rank 0 has read the old announcement.
  std::string announce = encode(Announce{.nonce = os::random_id()});
  std::string offer = encode(Offer{.id = os::random_id(), .nonces = {os::random_id(), os::random_id()}});
  announce[4] = offer[4] = 99;  // the protocol
  const std::shared_ptr<Store> store = memory_store();
  store->set("onehop/world/announce/1", announce);
  store->set("onehop/world/offer", offer);
  run_threads(2, [&](Rank rank) {
    if (rank == Rank{1}) (void)store->get_for("onehop/world/announce/0", seconds{20});
    EXPECT_EQ(Group::join(store, {.rank = rank, .size = 2}).size(), 2);
  });
}

TEST(Rendezvous, AllRanksNameTheOneThatNeverCame) {
  for (const int absent : {0, 1, 2}) {
    const Joining how{.timeout = seconds{2}, .absent = {absent}};
    ListedStore store;
    const std::vector<Attempt> attempts = join(store, 3, how);
    for (const Attempt& each : attempts) EXPECT_LE(each.took, how.timeout + milliseconds{100} + seconds{5});
    if (absent == 0) {
      expect_refused(attempts, ErrorCode::timeout, HasSubstr("rank 0 made no offer"));
    } else {
      expect_refused(attempts, ErrorCode::timeout,
                     HasSubstr(fmt::format("but rank {} did not come", absent)));
      for (const Attempt& each : attempts) {
        EXPECT_EQ(each.error ? each.error->origin() : Rank{absent}, Rank{absent});
      }
    }
  }
}

TEST(Rendezvous, AStoreThatHangsAtAnyPointEndsTheJoinInTimeAndIsNamed) {
  constexpr int kPoints = 32;
  const Joining how{.timeout = milliseconds{1000}};
  std::array<std::vector<Attempt>, kPoints> attempts;
  run_threads(kPoints, [&](Rank point) {
    HangingStore store(point.value);
    attempts[static_cast<std::size_t>(point.value)] = join(store, 3, how);
  });
  for (int point = 0; point < kPoints; ++point) {
    const std::vector<Attempt>& ranks = attempts[static_cast<std::size_t>(point)];
    const auto names_the_store = [](const Attempt& each) {
      return each.error && each.error->message().find("hanging store") != std::string::npos;
    };
    const bool named = std::any_of(ranks.begin(), ranks.end(), names_the_store);
    for (const Attempt& each : ranks) {
      EXPECT_LE(each.took, how.timeout + milliseconds{100} + seconds{5}) << "after " << point;
      if (!each.error || names_the_store(each)) continue;
      // On a slow machine, ranks may also be late on the sockets. A rank that the store failed in its last
      // step is gone when the others connect to it.
      EXPECT_THAT(each.error->message(),
                  AnyOf(HasSubstr("ms for rank"), HasSubstr("died or gave up"),
                        HasSubstr("did not come to rank"), HasSubstr("did not answer rank")))
          << "after " << point;
      if (each.error->code() == ErrorCode::peer_lost) {
        EXPECT_TRUE(named) << "after " << point << ": " << each.error->message();
      }
    }
  }
}

TEST(Rendezvous, AnInterruptInTheStoreEndsTheJoinWithoutAWarning) {
  constexpr int kPoints = 16;
  for (int point = 0; point < kPoints; ++point) {
    HangingStore store(point, true);
    ::testing::internal::CaptureStderr();
    const std::vector<Attempt> ranks = join(store, 2, {});
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "after " << point;
    for (const Attempt& each : ranks) {
      if (!each.error || each.error->code() == ErrorCode::peer_lost) continue;  // the other was interrupted
      EXPECT_EQ(each.error->code(), ErrorCode::aborted) << "after " << point << ": " << each.error->what();
    }
  }
}

TEST(Rendezvous, AStoreThatIsSlowForAWhileIsNotToBlameForARankThatDoesNotCome) {
  ListedStore store;
  store.slow_looks = 3;
  expect_refused(join(store, 3, {.timeout = seconds{2}, .absent = {1}}), ErrorCode::timeout,
                 HasSubstr("rank 1 did not come"));
}

TEST(Rendezvous, SaysThatAStoreIgnoresItsTimeouts) {
  ListedStore store;
  store.delay = milliseconds{900};
  expect_refused(join(store, 2, {.timeout = milliseconds{100}, .absent = {1}}), ErrorCode::timeout,
                 AllOf(HasSubstr("rank 1 did not come"), HasSubstr("through listed store"),
                       HasSubstr("ms later, because operations of the store did not end by their timeouts")));
}

TEST(Rendezvous, NamesAllRanksThatDidNotCome) {
  ListedStore store;
  expect_refused(join(store, 4, {.timeout = seconds{2}, .absent = {1, 3}}), ErrorCode::timeout,
                 AllOf(HasSubstr("ranks 1, 3 did not come"), HasSubstr("group 'world' of 4"),
                       HasSubstr("listed store")));
}

TEST(Rendezvous, ARankWhoseNumberAnotherProcessTakesSaysSo) {
  for (const int twice : {0, 1}) {
    const std::shared_ptr<Store> store = memory_store();
    std::atomic<int> told = 0;
    run_threads(3, [&](Rank thread) {
      JoinOptions options{.rank = Rank{thread.value == 2 ? twice : thread.value}, .size = 3};
      options.timeout = milliseconds{2000};
      try {
        (void)Group::join(store, options);
        ADD_FAILURE() << "rank 2 has not come";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.message();
        const std::string rival =
            fmt::format("; another process joins as rank {}, too: give each its own number", twice);
        if (error.message().find(rival) != std::string::npos) ++told;
      }
    });
    EXPECT_GE(told, 1) << "two ranks " << twice;
  }
}

TEST(Rendezvous, RanksOfDifferentSizesAreRefusedAtOnce) {
  struct Row {
    const char* what;
    int ranks;
    std::vector<int> sizes;
    const char* words;
  };
  const Row rows[] = {
      {"rank 0 has a larger size", 2, {3, 2}, "ranks 0 and 1 differ in the size of the group: 3 and 2"},
      {"so has rank 1", 3, {4, 4, 3}, "ranks 0 and 2 differ in the size of the group: 4 and 3"},
      {"rank 0 has a smaller size", 3, {2, 3, 3}, "ranks 0 and 1 differ in the size of the group: 2 and 3"},
      {"rank 2 has a larger size", 3, {3, 3, 4}, "ranks 0 and 2 differ in the size of the group: 3 and 4"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    ListedStore store;
    const std::vector<Attempt> attempts = join(store, row.ranks, {.change = [&](JoinOptions& options) {
                                                 options.size =
                                                     row.sizes[static_cast<std::size_t>(options.rank.value)];
                                               }});
    expect_refused(attempts, ErrorCode::refused,
                   AllOf(HasSubstr(row.words), HasSubstr("give all ranks the same size")));
    for (const Attempt& each : attempts) EXPECT_LT(each.took, seconds{10});
    EXPECT_THAT(store.keys(), ::testing::IsEmpty());
  }
}

TEST(Rendezvous, AnAnnouncementOfAnotherSizeThatACrashedRunLeftIsNoMistake) {
  ListedStore store;
  for (int r = 0; r < 4; ++r) {
    store.set(fmt::format("onehop/world/announce/{}", r),
              encode(Announce{.nonce = os::random_id(), .size = 4}));
  }
  // Rank 2 comes when an answer would long have been missed.
  expect_one_group(join(store, 3, {.prepare = [](int rank) {
                          if (rank == 2) std::this_thread::sleep_for(seconds{2});
                          return std::string("host");
                        }}));
}

TEST(Rendezvous, ARankThatAnotherSizeLeavesOutHearsOfThatSizeAtItsDeadline) {
  ListedStore store;
  const std::vector<Attempt> attempts = join(store, 3, {.absent = {1}, .change = [](JoinOptions& options) {
                                                          if (options.rank == Rank{0}) options.size = 2;
                                                          options.timeout =
                                                              seconds{options.rank == Rank{0} ? 4 : 2};
                                                        }});
  EXPECT_EQ(attempts[2].error->code(), ErrorCode::timeout);
  EXPECT_THAT(attempts[2].error->message(), HasSubstr("rank 0 offers a group of 2"));
}

TEST(Rendezvous, ARankThatCannotPrepareFailsAllWithItsError) {
  for (const int failing : {0, 2}) {
    ListedStore store;
    const std::vector<Attempt> attempts = join(store, 3, {.prepare = [&](int rank) -> std::string {
                                                 if (rank == failing)
                                                   fail(ErrorCode::unsupported, "no such GPU");
                                                 return "host";
                                               }});
    expect_refused(attempts, ErrorCode::unsupported,
                   ::testing::Eq(fmt::format("rank {}: no such GPU", failing)));
    for (const Attempt& each : attempts) EXPECT_EQ(each.error->origin(), Rank{failing});
    // The same store works again.
    expect_one_group(join(store, 3));
  }
}

TEST(Rendezvous, TwoRanksOnOneGpuAreRefusedOnAllRanks) {
  ListedStore store;
  expect_refused(join(store, 3, {.prepare = [](int rank) { return rank == 0 ? "GPU-a" : "GPU-b"; }}),
                 ErrorCode::refused, HasSubstr("ranks 1 and 2 use the same GPU GPU-b"));
}

TEST(Rendezvous, OneRankIsAGroup) {
  ListedStore store;
  expect_one_group(join(store, 1));
  EXPECT_THAT(store.keys(), ::testing::IsEmpty());
  expect_one_group(join(store, 1, {.prepare = [](int) { return "GPU-0"; }}));
}

Joining on_gpus(std::optional<int> requiring, std::function<peer_check::Outcomes()> read_outcomes) {
  Joining how;
  how.prepare = [](int rank) { return fmt::format("GPU-{}", rank); };
  how.change = [requiring](JoinOptions& options) {
    options.require_verified_peers = requiring && options.rank == Rank{*requiring};
  };
  how.read_outcomes = std::move(read_outcomes);
  return how;
}

TEST(Rendezvous, GpusThatAreNotVerifiedAreRefusedOnAllRanksIfAnyRankRequiresIt) {
  for (const int requiring : {0, 2}) {
    ListedStore store;
    expect_refused(join(store, 3, on_gpus(requiring, [] { return outcomes_but(1, 2, std::nullopt); })),
                   ErrorCode::refused, HasSubstr("GPU GPU-1 of rank 1 reaches GPU GPU-2 of rank 2 was not"));
    expect_refused(join(store, 3, on_gpus(requiring, [] { return outcomes_but(1, 2, false); })),
                   ErrorCode::refused, HasSubstr("failed its last check"));
    expect_one_group(join(store, 3, on_gpus(requiring, [] { return outcomes_but(1, 2, true); })));
  }
}

TEST(Rendezvous, ARecordThatCannotBeReadFailsAllRanksWithTheReason) {
  ListedStore store;
  const auto attempts = join(store, 3, on_gpus(2, []() -> peer_check::Outcomes {
                               fail(ErrorCode::system, "the driver has no version");
                             }));
  expect_refused(attempts, ErrorCode::system, HasSubstr("the driver has no version"));
}

TEST(Rendezvous, TheRecordIsNotReadUnlessARankOnAGpuRequiresIt) {
  ListedStore store;
  const Joining defaults;
  expect_one_group(join(store, 3, on_gpus(std::nullopt, defaults.read_outcomes)));
  Joining host = on_gpus(0, defaults.read_outcomes);
  host.prepare = defaults.prepare;
  expect_one_group(join(store, 3, host));
  expect_one_group(join(store, 1, on_gpus(0, [] { return peer_check::Outcomes{}; })));
}

/// The messages of ranks that are processes with these values of ONEHOP_CHECK.
std::vector<std::string> join_with_check(const char* device, const std::vector<const char*>& values) {
  const testing::TempDir directory;
  const int size = static_cast<int>(values.size());
  testing::Processes ranks(size, [&](Rank rank) -> std::string {
    (void)::setenv("ONEHOP_CHECK", values[static_cast<std::size_t>(rank.value)], 1);
    JoinOptions options{.rank = rank, .size = size};
    try {
      const Rendezvous joined = rendezvous(
          *file_store(directory.path()), options,
          [&] {
            return host_rank(device == std::string("host") ? device
                                                           : fmt::format("{}{}", device, rank.value));
          },
          Deadline::after(seconds{20}));
      (void)joined.mesh->all_gather("", Deadline::after(seconds{20}), "test");
      return joined.checks_calls ? "checks" : "does not check";
    } catch (const Error& error) {
      return error.message();
    }
  });
  std::vector<std::string> texts;
  for (const testing::Exit& each : ranks.wait(seconds{60})) texts.push_back(each.text);
  return texts;
}

TEST(Rendezvous, GpusWhoseRanksDifferInOnehopCheckAreRefusedOnAllRanksWithBothValues) {
  using ::testing::Each;
  EXPECT_THAT(join_with_check("GPU-", {"0", "0", "yes"}),
              Each(HasSubstr("ranks 0 and 2 differ in ONEHOP_CHECK: 0 and 1; set it to the same")));
  EXPECT_THAT(join_with_check("GPU-", {"", "maybe"}),
              Each(HasSubstr("rank 1: environment variable ONEHOP_CHECK")));
  EXPECT_THAT(join_with_check("GPU-", {"1", "on"}), Each("checks"));
  EXPECT_THAT(join_with_check("GPU-", {"", "0"}), Each("does not check"));
  EXPECT_THAT(join_with_check("host", {"0", "1"}), Each("does not check")) << "host ranks always compare";
}

TEST(Rendezvous, ARankOfAnotherProtocolIsRefusedNamingBothVersions) {
  ListedStore store;
  std::string foreign = encode(Announce{.nonce = os::random_id()});
  foreign[4] = 77;  // the protocol's low byte
  store.set("onehop/world/announce/1", foreign);
  expect_refused(join(store, 2, {.timeout = seconds{5}, .absent = {1}}), ErrorCode::refused,
                 AllOf(HasSubstr("protocol 77"), HasSubstr(fmt::format("protocol {}", kProtocolVersion))));
}

TEST(Rendezvous, GarbageInTheStoreIsAProtocolErrorThatSaysWhere) {
  ListedStore store;
  store.set("onehop/world/announce/1", "garbage");
  expect_refused(join(store, 2, {.timeout = seconds{5}, .absent = {1}}), ErrorCode::protocol,
                 HasSubstr("announcement"));
}

}  // namespace
}  // namespace onehop
