// SPDX-License-Identifier: Apache-2.0
// Resources run out: descriptors, at every single one that is needed; memory, address space, file sizes and
// /dev/shm that are too small. Each time no process hangs or crashes, and a failing rank throws one line.
// Where ranks can agree, the error is the same on all. No descriptor is leaked, and afterwards the same
// processes form a group that works.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fault/weak_rank.h"
#include "fault/world.h"
#include "support/ranks.h"
#include "support/sanitizers.h"
#include "support/scoped_variable.h"

namespace onehop::fault::exhaustion_test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using testing::footprint;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

constexpr int kRanks = 2;

/// Uses up all descriptors of this process but `n`, until `release`.
class Scarcity {
 public:
  static void leave(int n) {
    while (true) {
      const int filler = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (filler < 0) break;
      fillers().push_back(filler);
    }
    for (; n > 0; --n) drop_one();
  }
  static bool release() {
    while (!fillers().empty()) drop_one();
    return true;
  }

 private:
  static void drop_one() {
    (void)::close(fillers().back());
    fillers().pop_back();
  }
  static std::vector<int>& fillers() {
    static std::vector<int> descriptors;
    return descriptors;
  }
};

TEST(Exhaustion, RunningOutOfDescriptorsAtAnyPointIsACleanError) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  for (int weak = 0; weak < WeakRankJob::kRanks; ++weak) {
    int allowed = 0;
    int failures = 0;
    for (bool succeeded = false; !succeeded && allowed < 60;) {
      const auto job_with = [weak](int descriptors) {
        return std::make_unique<WeakRankJob>(
            weak, StoreKind::file, nullptr,
            [descriptors] {
              // Few enough that using them up takes no time.
              const rlimit limit{.rlim_cur = 256, .rlim_max = 256};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::logic_error("setrlimit failed");
              Scarcity::leave(descriptors);
            },
            &Scarcity::release);
      };
      std::vector<std::unique_ptr<WeakRankJob>> batch;
      for (int i = 0; i < 6; ++i) batch.push_back(job_with(allowed + i));
      for (std::unique_ptr<WeakRankJob>& job : batch) {
        Outcome outcome = job->finish();
        for (int again = 0; again < 3 && job->is_inconclusive(); ++again) {
          job = job_with(allowed);
          outcome = job->finish();
        }
        EXPECT_EQ(job->wrong(), "") << "rank " << weak << " has " << allowed << " descriptors to spare";
        succeeded = outcome == Outcome::recovered;
        if (!succeeded) ++failures;
        ++allowed;
      }
    }
    EXPECT_LT(allowed, 60) << "never succeeded";
    EXPECT_GT(failures, 3);
    fmt::print("out of descriptors on rank {}: {} numbers of descriptors are too few, each a clean error\n",
               weak, failures);
  }
}

/// A call that makes a group or is made on one, and whether all ranks hear of its failure.
struct ShortCall {
  const char* name;
  int weak;
  bool joins;
  bool heard_by_all;
  std::function<void(Store& store, std::optional<Group>& group, Rank rank, int weak)> make;
};

constexpr int kShortRanks = 3;
constexpr Duration kSoon = seconds{20};

const std::vector<ShortCall>& short_calls() {
  static const auto join = [](Store& store, std::optional<Group>& group, Rank rank, int) {
    // Not owned: the test's store outlives the group.
    group.emplace(
        Group::join(std::shared_ptr<Store>(&store, [](Store*) {}),
                    {.rank = rank, .size = kShortRanks, .timeout = kSoon, .scratch_bytes = 1 << 20}));
  };
  static const std::vector<ShortCall> calls = {
      {"join", 0, true, true, join},
      {"join", 2, true, true, join},
      {"IpcChannel::connect", 1, false, true,
       [](Store& store, std::optional<Group>&, Rank rank, int) {
         (void)IpcChannel::connect(std::shared_ptr<Store>(&store, [](Store*) {}), "channel", rank,
                                   kShortRanks, kSoon);
       }},
      {"allocate", 1, false, true,
       [](Store&, std::optional<Group>& group, Rank, int) { (void)group->allocate(1 << 20); }},
      {"split", 1, false, true,
       [](Store&, std::optional<Group>& group, Rank rank, int) { (void)group->split(0, -rank.value); }},
      {"all_gather_fds", 2, false, true,
       [](Store&, std::optional<Group>& group, Rank, int) {
         group->barrier();  // the weak rank is short from here on, also for descriptors that it forwards
         for (const int fd : group->channel().all_gather_fds(STDERR_FILENO, kSoon)) {
           if (fd != STDERR_FILENO) (void)::close(fd);
         }
         group->barrier();  // a rank may get all descriptors before it hears of the failure
       }},
      // A descriptor between two ranks concerns only those.
      {"recv_fd", 1, false, false,
       [](Store&, std::optional<Group>& group, Rank rank, int weak) {
         group->barrier();  // as above
         if (rank.value == 0) group->channel().send_fd(Rank{weak}, STDERR_FILENO, kSoon);
         if (rank.value == weak) (void)::close(group->channel().recv_fd(Rank{0}, kSoon));
       }},
      {"send_fd", 0, false, false,
       [](Store&, std::optional<Group>& group, Rank rank, int weak) {
         if (rank.value == weak) group->channel().send_fd(Rank{2}, STDERR_FILENO, kSoon);
         if (rank.value == 2) (void)::close(group->channel().recv_fd(Rank{weak}, kSoon));
       }},
  };
  return calls;
}

/// A world in which the weak rank has `allowed` descriptors left for the call.
class ShortWorld {
 public:
  ShortWorld(const ShortCall& call, int allowed)
      : call_(call), world_(kShortRanks, [&call, allowed, this](World& self, Rank rank) {
          const std::shared_ptr<Store> store = file_store(dir_.path());
          std::optional<Group> group;
          if (!call.joins) short_calls()[0].make(*store, group, rank, call.weak);
          const bool weak = rank.value == call.weak;
          const rlimit limit{.rlim_cur = 256, .rlim_max = 256};
          if (weak && ::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::logic_error("setrlimit failed");
          if (weak) Scarcity::leave(allowed);
          self.card(rank).attempts[0].run([&] { call.make(*store, group, rank, call.weak); });
          if (weak) (void)Scarcity::release();
          group.reset();
          self.raise(0);
          (void)self.await(0, kShortRanks, seconds{20});
          self.card(rank).attempts[1].run([&] {
            short_calls()[0].make(*store, group, rank, call.weak);
            check_all_reduce(*group);
          });
        }) {}

  /// False when the descriptors were enough.
  bool expect_named() {
    EXPECT_TRUE(world_.finish(seconds{60}));
    const Attempt& own = world_.card(Rank{call_.weak}).attempts[0];
    const bool failed = own.state.load() == Attempt::failed;
    for (Rank r{0}; r.value < kShortRanks; ++r.value) {
      const Attempt& attempt = world_.card(r).attempts[0];
      const bool hears = failed && (call_.heard_by_all || r.value == call_.weak);
      EXPECT_EQ(world_.exit_of(r), 0);
      EXPECT_EQ(world_.card(r).attempts[1].state.load(), Attempt::succeeded)
          << world_.card(r).attempts[1].text();
      EXPECT_EQ(attempt.state.load(), hears ? Attempt::failed : Attempt::succeeded) << attempt.text();
      if (!hears) continue;
      EXPECT_EQ(attempt.error(), ErrorCode::out_of_resources) << attempt.text();
      EXPECT_THAT(attempt.text(), AllOf(HasSubstr("out of file descriptors"), HasSubstr("raise ulimit -n")));
      EXPECT_THAT(attempt.text(), Not(HasSubstr("died")));
      if (call_.heard_by_all) {
        EXPECT_EQ(attempt.origin, call_.weak) << attempt.text();
        EXPECT_THAT(attempt.text(), HasSubstr(fmt::format("rank {}: ", call_.weak)));
      }
    }
    return failed;
  }

 private:
  const TempDir dir_;
  const ShortCall& call_;
  World world_;
};

TEST(Exhaustion, OfDescriptorsIsNamedAsSuchToAllRanksAtAnyPointOfAnyCall) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  constexpr int kTogether = 4;
  constexpr int kMost = 40;
  for (const ShortCall& call : short_calls()) {
    SCOPED_TRACE(fmt::format("{} on rank {}", call.name, call.weak));
    int too_few = 0;
    bool enough = false;
    for (int first = 0; !enough && first < kMost; first += kTogether) {
      std::vector<std::unique_ptr<ShortWorld>> worlds;
      for (int i = 0; i < kTogether; ++i) worlds.push_back(std::make_unique<ShortWorld>(call, first + i));
      for (const auto& world : worlds) {
        if (world->expect_named())
          ++too_few;
        else
          enough = true;
      }
    }
    EXPECT_TRUE(enough);
    if (std::string_view(call.name) != "send_fd") {
      EXPECT_GT(too_few, 0);
    }
    fmt::print("{} on rank {}: {} numbers of descriptors are too few, and all ranks hear that\n", call.name,
               call.weak, too_few);
  }
}

TEST(Exhaustion, OfDescriptorsWhileATcpStoresServerStartsIsNamedAsSuch) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  constexpr int kMost = 12;
  World world(1, [](World& self, Rank rank) {
    const rlimit limit{.rlim_cur = 256, .rlim_max = 256};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::logic_error("setrlimit failed");
    for (int allowed = 0; allowed < kMost; ++allowed) {
      Scarcity::leave(allowed);
      self.card(rank).attempts[static_cast<std::size_t>(allowed)].run(
          [] { (void)TcpStoreServer::start({}); });
      (void)Scarcity::release();
    }
  });
  ASSERT_TRUE(world.finish(seconds{60}));
  int too_few = 0;
  for (int allowed = 0; allowed < kMost; ++allowed) {
    const Attempt& attempt = world.card(Rank{0}).attempts[static_cast<std::size_t>(allowed)];
    if (attempt.state.load() == Attempt::succeeded) continue;
    ++too_few;
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
    EXPECT_EQ(attempt.error(), ErrorCode::out_of_resources) << attempt.text();
    EXPECT_THAT(attempt.text(), HasSubstr("out of file descriptors"));
  }
  EXPECT_GT(too_few, 1);
  EXPECT_LT(too_few, kMost);
}

TEST(Exhaustion, OfDescriptorsInATcpStoresServerIsSaidToItsClients) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  enum Event { kServerUp, kShort, kEnded };
  World world(2, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    if (rank == Rank{0}) {
      const auto server = TcpStoreServer::start({});
      card.figures[0] = server->port();
      const rlimit limit{.rlim_cur = 256, .rlim_max = 256};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::logic_error("setrlimit failed");
      Scarcity::leave(0);
      self.raise(kShort);
      (void)self.await(kEnded, 1, seconds{20});
      (void)Scarcity::release();
      self.raise(kServerUp);
      (void)self.await(kEnded, 2, seconds{20});
      return;
    }
    (void)self.await(kShort, 1, seconds{20});
    const TcpStoreOptions options{.port = static_cast<std::uint16_t>(self.card(Rank{0}).figures[0]),
                                  .timeout = seconds{1}};
    card.attempts[0].run([&] { (void)tcp_store(options); });
    self.raise(kEnded);
    (void)self.await(kServerUp, 1, seconds{20});
    card.attempts[1].run([&] {
      const auto store = tcp_store({.port = options.port, .timeout = seconds{20}});
      store->set("key", "value", seconds{20});
    });
    self.raise(kEnded);
  });
  ASSERT_TRUE(world.finish(seconds{60}));
  const Attempt& told = world.card(Rank{1}).attempts[0];
  EXPECT_EQ(told.error(), ErrorCode::out_of_resources) << told.text();
  EXPECT_THAT(told.text(), AllOf(HasSubstr("the server's process cannot accept another client"),
                                 HasSubstr("out of file descriptors"), HasSubstr("raise ulimit -n")));
  EXPECT_EQ(world.card(Rank{1}).attempts[1].state.load(), Attempt::succeeded)
      << world.card(Rank{1}).attempts[1].text();
}

/// One rank is short of a resource when it allocates; the errors of both ranks must contain `what`.
void expect_agreed_refusal(int resource, rlim_t limit, std::size_t bytes, const std::string& what) {
  for (int weak = 0; weak < kRanks; ++weak) {
    const TempDir store;
    World world(kRanks, [&](World& self, Rank rank) {
      Card& card = self.card(rank);
      Group group =
          Group::join(file_store(store.path()),
                      {.rank = rank, .size = kRanks, .timeout = seconds{20}, .scratch_bytes = 1 << 20});
      rlimit old{};
      (void)::getrlimit(static_cast<__rlimit_resource_t>(resource), &old);
      const rlimit small{.rlim_cur = resource == RLIMIT_AS ? footprint().address_space + limit : limit,
                         .rlim_max = old.rlim_max};
      if (rank.value == weak) (void)::setrlimit(static_cast<__rlimit_resource_t>(resource), &small);
      card.attempts[0].run([&] { (void)group.allocate(bytes); });
      (void)::setrlimit(static_cast<__rlimit_resource_t>(resource), &old);
      card.attempts[1].run([&] {
        (void)group.allocate(bytes);
        check_all_reduce(group);
      });
    });
    ASSERT_TRUE(world.finish(seconds{30}));
    for (Rank r{0}; r.value < kRanks; ++r.value) {
      const Attempt& attempt = world.card(r).attempts[0];
      EXPECT_EQ(world.exit_of(r), 0);
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::out_of_resources) << attempt.text();
      EXPECT_EQ(attempt.origin, weak) << attempt.text();
      EXPECT_THAT(attempt.text(), HasSubstr(what));
      EXPECT_EQ(attempt.text(), world.card(Rank{0}).attempts[0].text());
      EXPECT_EQ(world.card(r).attempts[1].state.load(), Attempt::succeeded)
          << world.card(r).attempts[1].text();
    }
    fmt::print("both ranks: {}\n", world.card(Rank{0}).attempts[0].text());
  }
}

TEST(Exhaustion, AFileSizeLimitIsAnErrorOnAllRanksAndNotASignal) {
  expect_agreed_refusal(RLIMIT_FSIZE, 1 << 20, 4 << 20, "file size limit");
}

TEST(Exhaustion, TooLittleAddressSpaceIsAnErrorOnAllRanks) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more address space than there is to limit";
  expect_agreed_refusal(RLIMIT_AS, 32 << 20, 64 << 20, "ENOMEM");
}

TEST(Exhaustion, ATinySharedMemoryFileSystemDoesNotMatter) {
  const testing::ScopedVariable elsewhere("TMPDIR", "/tmp");
  const TempDir store;
  World world(kRanks, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) {
      card.figures[0] = errno;
      return;
    }
    card.attempts[0].run([&] {
      Group group =
          Group::join(file_store(store.path()), {.rank = rank, .size = kRanks, .timeout = seconds{20}});
      const SymmetricBuffer buffer = group.allocate(64 << 20);
      std::memset(buffer.local(), 1, buffer.bytes());
      buffer.barrier(0, seconds{20});
      check_all_reduce(group);
    });
  });
  ASSERT_TRUE(world.finish(seconds{40}));
  if (world.card(Rank{0}).figures[0] != 0) {
    GTEST_SKIP() << "cannot mount: " << std::strerror(static_cast<int>(world.card(Rank{0}).figures[0]));
  }
  for (Rank r{0}; r.value < kRanks; ++r.value) {
    EXPECT_EQ(world.card(r).attempts[0].state.load(), Attempt::succeeded) << world.card(r).attempts[0].text();
  }
  fmt::print("/dev/shm of 64 KiB: a job with 64 MiB per rank works\n");
}

}  // namespace
}  // namespace onehop::fault::exhaustion_test
