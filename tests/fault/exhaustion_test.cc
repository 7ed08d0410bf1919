// When something runs out: descriptors, at every single one that is needed; memory, address space, file sizes
// and /dev/shm are too small. Each time: no process hangs or crashes, whoever fails throws one line, what can
// be agreed on is the same error on all ranks, no descriptor is leaked, and afterwards the same processes
// form a group that works.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "fault/weak_rank.h"
#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault {
namespace {

using std::chrono::seconds;
using testing::footprint;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int kRanks = 2;

/// All descriptors of this process but `n` are in use, until `release`.
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
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  for (int weak = 0; weak < WeakRankJob::kRanks; ++weak) {
    int allowed = 0;
    int failures = 0;
    for (bool succeeded = false; !succeeded && allowed < 60;) {
      std::vector<std::unique_ptr<WeakRankJob>> batch;
      for (int i = 0; i < 6; ++i) {
        batch.push_back(std::make_unique<WeakRankJob>(
            weak, StoreKind::file, nullptr,
            [n = allowed + i] {
              // Few enough that filling them up takes no time.
              const rlimit limit{.rlim_cur = 256, .rlim_max = 256};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::logic_error("setrlimit failed");
              Scarcity::leave(n);
            },
            &Scarcity::release));
      }
      for (const auto& job : batch) {
        const Outcome outcome = job->finish();
        EXPECT_EQ(job->wrong(), "") << "rank " << weak << " has " << allowed << " descriptors to spare";
        succeeded = outcome == Outcome::made_up_for;
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

/// One rank is short of something when it allocates; `what` must be in the error of both.
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
}  // namespace onehop::fault
