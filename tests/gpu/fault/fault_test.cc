// SPDX-License-Identifier: Apache-2.0
// The promises of docs/reliability.md on GPUs, where ranks wait in kernels. A rank is killed, leaves, stops
// or never arrives while its peers' kernels spin; a group is aborted; calls do not match. Each time the
// survivors get an error in time that names the rank. Their contexts stay usable, and they form a new group
// in the same processes.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "fault/world.h"
#include "gpu/on_gpus.h"

namespace onehop::fault::gpu_fault_test {
namespace {

using std::chrono::seconds;
using testing::Gpu;
using testing::TempDir;

enum Event { kSpinning, kStruck, kFirstEnded, kNewGroupWorks, kVictimEnded, kNever };
enum Figure { kContextUsable, kStruckNs };  // kStruckNs: of round 0; the other rounds follow

// Promises A and B on GPUs.
constexpr double kMostLateMs = 50;
constexpr double kMostDetectionMs = 250;

constexpr std::size_t kWords = 50'000;

/// Each kind of wait: in every protocol of all_reduce, for signals, or in a sequence of calls.
enum class Wait { packets, chunks, lamport_one_shot, lamport_two_shot, barrier, signal, traffic };
constexpr Wait kWaits[] = {Wait::packets,          Wait::chunks,  Wait::lamport_one_shot,
                           Wait::lamport_two_shot, Wait::barrier, Wait::signal};

const char* name_of(Wait wait) {
  constexpr const char* kNames[] = {"packets", "chunks",      "one-shot Lamport", "two-shot Lamport",
                                    "barrier", "wait_signal", "calls in a stream"};
  return kNames[static_cast<int>(wait)];
}
/// Waits whose deadline is the group's; the others have their own.
constexpr bool is_collective(Wait wait) {
  return wait != Wait::barrier && wait != Wait::signal;
}

/// A rank of the group that fails.
struct Member {
  Gpu& gpu;
  Group group;
  SymmetricBuffer buffer;
  std::byte* data;

  Member(const std::string& dir, Rank rank, int n, Gpu& own, Duration timeout, std::size_t round = 0)
      : gpu(own),
        group(join(dir, rank, n, own, timeout, round)),
        buffer(group.allocate(kWords * 4)),
        data(reinterpret_cast<std::byte*>(own.make<std::uint32_t>(kWords))) {
    testing::expect_works(group, gpu);
    group.barrier();
  }

  /// Queues a wait that `victim` does not end. `timeout` is for the waits that have one.
  void queue(Wait wait, Rank victim, Duration timeout) {
    const auto reduce = [&](Algorithm algorithm, DType type) {
      (void)all_reduce(group, data, data, kWords, type, ReduceOp::sum, gpu.stream(),
                       {.algorithm = algorithm, .timeout = {}});
    };
    switch (wait) {
      case Wait::packets:
        return reduce(Algorithm::one_shot, DType::u32);
      case Wait::chunks:
        return reduce(Algorithm::two_shot, DType::u32);
      case Wait::lamport_one_shot:
        return reduce(Algorithm::one_shot, DType::f32);
      case Wait::lamport_two_shot:
      case Wait::traffic:
        return reduce(Algorithm::two_shot, DType::f32);
      case Wait::barrier:
        return buffer.barrier(gpu.stream(), 3, timeout);
      case Wait::signal:
        return buffer.wait_signal(gpu.stream(), victim, 3, timeout);
    }
  }

  static Group join(const std::string& dir, Rank rank, int n, const Gpu& gpu, Duration timeout,
                    std::size_t round = 0) {
    JoinOptions options;
    options.name = fmt::format("round-{}", round);
    options.rank = rank;
    options.size = n;
    options.device = gpu.device();
    options.timeout = timeout;
    options.allow_overlapping_devices = testing::shared_gpus() > 0;
    return Group::join(file_store(dir), options);
  }
};

/// Throws if the group's check() throws within a few seconds.
void check_until_it_fails(const Group& group) {
  for (const std::int64_t start = now_ns(); now_ns() - start < 5'000'000'000;) {
    group.check();
    std::this_thread::yield();
  }
}

/// Waits until `event` has been raised `each` times per round, up to and including `round`.
void await_round(World& world, int event, std::size_t round, int each) {
  if (!world.await(event, static_cast<std::uint32_t>(each * static_cast<int>(round + 1)), seconds{40}))
    throw std::logic_error(fmt::format("event {} of round {} never came", event, round));
}

std::int64_t struck_ns(const World& world, Rank rank, std::size_t round) {
  return static_cast<std::int64_t>(world.card(rank).figures[kStruckNs + round]);
}

/// The first group of a process loads every kernel, which takes longer than a test's deadlines.
void load_kernels(const std::string& dir, Rank rank, int n, const Gpu& gpu) {
  Member::join(dir, rank, n, gpu, seconds{20}).barrier();
}

class CudaFaults : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string missing = testing::forked_gpus_unavailable(n());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  [[nodiscard]] static int n() { return GetParam(); }
  [[nodiscard]] static Rank victim() { return Rank{n() / 2}; }
  /// The waits in which survivors are when a rank is killed. Each takes processes of its own, which take
  /// seconds to start.
  [[nodiscard]] static std::vector<Wait> kill_waits() {
    if (n() == 2) return {Wait::lamport_one_shot, Wait::chunks, Wait::barrier, Wait::traffic};
    return {Wait::packets, Wait::lamport_two_shot, Wait::signal, Wait::traffic};
  }
  /// A lone survivor gets a newcomer on the victim's GPU: in a group of one it would talk to nobody.
  [[nodiscard]] static int newcomers() { return n() == 2 ? 1 : 0; }

  /// Forms the group of the survivors (and the newcomer) without the victim. `meanwhile` runs in it.
  static void form_new_group(
      World& world, Rank rank, const std::string& dir, Gpu& gpu,
      const std::function<void(Group&)>& meanwhile = [](Group&) {}) {
    world.card(rank).attempts[1].run([&] {
      const Rank now{rank.value - (rank > victim() ? 1 : 0)};
      Group group = Member::join(dir, now, n() - 1 + newcomers(), gpu, seconds{20});
      testing::expect_works(group, gpu);
      meanwhile(group);
      group.barrier();
    });
  }

  /// Everything that a newcomer does.
  static void live_as_newcomer(
      World& world, Rank rank, const std::string& dir,
      const std::function<void(Group&)>& meanwhile = [](Group&) {}) {
    Gpu gpu(testing::gpu_of(victim()));
    if (!world.await(kFirstEnded, static_cast<std::uint32_t>(n() - 1), seconds{40}))
      throw std::logic_error("the first group never ended");
    form_new_group(world, rank, dir, gpu, meanwhile);
  }

  /// After a failure, cudaDeviceSynchronize must still succeed.
  static void note_context(World& world, Rank rank, const Gpu& gpu) {
    gpu.synchronize_device();
    world.card(rank).figures[kContextUsable] += 1;
  }

  /// Expects the round to end with `code` and `origin` on every rank except those in `except`. Returns how
  /// long after `since_ns` the errors came.
  static std::vector<double> expect_failed(const World& world, std::size_t round, ErrorCode code, Rank origin,
                                           std::int64_t since_ns, const std::vector<Rank>& except = {}) {
    std::vector<double> delays;
    for (Rank r{0}; r.value < n(); ++r.value) {
      if (std::find(except.begin(), except.end(), r) != except.end()) continue;
      const Attempt& attempt = world.card(r).attempts[round];
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value << ": " << attempt.text();
      EXPECT_EQ(attempt.error(), code) << "rank " << r.value << ": " << attempt.text();
      EXPECT_EQ(attempt.origin, origin.value) << "rank " << r.value << ": " << attempt.text();
      EXPECT_GT(world.card(r).figures[kContextUsable], static_cast<double>(round)) << "rank " << r.value;
      delays.push_back(static_cast<double>(attempt.ended_ns - since_ns) / 1e6);
    }
    return delays;
  }

  static void expect_new_group_worked(const World& world) {
    for (Rank r{0}; r.value < n() + newcomers(); ++r.value) {
      if (r == victim()) continue;
      const Attempt& attempt = world.card(r).attempts[1];
      EXPECT_EQ(attempt.state.load(), Attempt::succeeded) << "rank " << r.value << ": " << attempt.text();
    }
  }

  static void expect_in_time(const World& world, const char* what, const std::vector<double>& delays,
                             double most_ms) {
    print_spread(what, Spread(delays));
    for (const double each : delays) EXPECT_LE(each, most_ms + world.lateness_ms()) << what;
  }
};
std::string processes_name(const ::testing::TestParamInfo<int>& info) {
  return fmt::format("Processes{}", info.param);
}
INSTANTIATE_TEST_SUITE_P(, CudaFaults, ::testing::Values(2, 4), processes_name);

TEST_P(CudaFaults, ARankKilledWhileItsPeersSpinIsNamedInTimeAndSurvivorsGoOn) {
  for (const Wait wait : kill_waits()) {
    SCOPED_TRACE(name_of(wait));
    const TempDir dir;
    World world(n() + newcomers(), [&](World& self, Rank rank) {
      if (rank.value >= n()) return live_as_newcomer(self, rank, dir.path());
      Gpu gpu(testing::gpu_of(rank));
      {
        Member member(dir.path(), rank, n(), gpu, seconds{20});
        const auto call = [&] {
          do {
            if (rank != victim() || wait == Wait::traffic) member.queue(wait, victim(), seconds{20});
            self.raise(kSpinning);
            member.group.synchronize(gpu.stream(), seconds{25});
          } while (wait == Wait::traffic);
        };
        if (rank == victim()) {
          call();
          (void)self.await(kNever, 1, seconds{60});
          return;
        }
        self.card(rank).attempts[0].run(call);
        note_context(self, rank, gpu);
      }
      self.raise(kFirstEnded);
      form_new_group(self, rank, dir.path(), gpu);
    });
    const int events = wait == Wait::traffic ? 100 * n() : n();
    ASSERT_TRUE(world.await(kSpinning, static_cast<std::uint32_t>(events), seconds{40}));
    const std::int64_t struck_ns = now_ns();
    ASSERT_EQ(::kill(world.pid(victim()), SIGKILL), 0);
    ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
    expect_in_time(world, fmt::format("{}, {} ranks: kill to Error", name_of(wait), n()).c_str(),
                   expect_failed(world, 0, ErrorCode::peer_lost, victim(), struck_ns, {victim()}),
                   kMostDetectionMs);
    expect_new_group_worked(world);
  }
}

TEST_P(CudaFaults, ARankThatLeavesWhileItsPeersSpinIsNamedInTime) {
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    for (std::size_t round = 0; round < std::size(kWaits); ++round) {
      Member member(dir.path(), rank, n(), gpu, seconds{20}, round);
      if (rank == victim()) {
        await_round(self, kSpinning, round, n() - 1);
        self.card(rank).figures[kStruckNs + round] = static_cast<double>(now_ns());
        member.group.leave();
        continue;
      }
      self.card(rank).attempts[round].run([&] {
        member.queue(kWaits[round], victim(), seconds{20});
        self.raise(kSpinning);
        member.group.synchronize(gpu.stream(), seconds{25});
      });
      note_context(self, rank, gpu);
    }
  });
  ASSERT_TRUE(world.finish(seconds{50})) << "a process hung";
  for (std::size_t round = 0; round < std::size(kWaits); ++round) {
    SCOPED_TRACE(name_of(kWaits[round]));
    expect_in_time(world, fmt::format("{}, {} ranks: goodbye to Error", name_of(kWaits[round]), n()).c_str(),
                   expect_failed(world, round, ErrorCode::peer_lost, victim(),
                                 struck_ns(world, victim(), round), {victim()}),
                   kMostDetectionMs);
  }
}

TEST_P(CudaFaults, AnAbortFromAnotherThreadEndsEverySpin) {
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    for (std::size_t round = 0; round < std::size(kWaits); ++round) {
      Member member(dir.path(), rank, n(), gpu, seconds{20}, round);
      std::thread aborter;
      if (rank == Rank{0}) {
        aborter = std::thread([&] {
          (void)self.await(kSpinning, static_cast<std::uint32_t>((n() - 1) * static_cast<int>(round + 1)),
                           seconds{40});
          self.card(rank).figures[kStruckNs + round] = static_cast<double>(now_ns());
          member.group.abort("the user pressed stop");
          self.raise(kStruck);
        });
      }
      self.card(rank).attempts[round].run([&] {
        if (rank == victim()) {
          await_round(self, kStruck, round, 1);
          check_until_it_fails(member.group);
          return;
        }
        member.queue(kWaits[round], victim(), seconds{20});
        self.raise(kSpinning);
        member.group.synchronize(gpu.stream(), seconds{25});
      });
      if (aborter.joinable()) aborter.join();
      note_context(self, rank, gpu);
    }
  });
  ASSERT_TRUE(world.finish(seconds{50})) << "a process hung";
  for (std::size_t round = 0; round < std::size(kWaits); ++round) {
    SCOPED_TRACE(name_of(kWaits[round]));
    expect_in_time(world, fmt::format("{}, {} ranks: abort to Error", name_of(kWaits[round]), n()).c_str(),
                   expect_failed(world, round, ErrorCode::aborted, Rank{0}, struck_ns(world, Rank{0}, round)),
                   kMostDetectionMs);
  }
}

TEST_P(CudaFaults, ARankThatNeverCallsIsNamedWhenTheDeadlinePasses) {
  constexpr Duration kGroupTimeout{1500};
  constexpr Duration kCallTimeout{200};
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    load_kernels(dir.path(), rank, n(), gpu);
    for (std::size_t round = 0; round < std::size(kWaits); ++round) {
      Member member(dir.path(), rank, n(), gpu, kGroupTimeout, round);
      self.card(rank).attempts[round].run([&] {
        if (rank == victim()) {
          // It is stopped, and finds afterwards that the others have given it up.
          (void)self.await(kFirstEnded, static_cast<std::uint32_t>(n() * static_cast<int>(round + 1) - 1),
                           seconds{20});
          check_until_it_fails(member.group);
          return;
        }
        self.card(rank).attempts[round].begin_call();
        member.queue(kWaits[round], victim(), kCallTimeout);
        // Longer than the wait on the device, which this test is about.
        member.group.synchronize(gpu.stream(), seconds{10});
      });
      self.raise(kFirstEnded);
      note_context(self, rank, gpu);
      // No rank leaves before all have heard of the failure.
      await_round(self, kFirstEnded, round, n());
    }
  });
  ASSERT_TRUE(world.finish(seconds{50})) << "a process hung";
  for (std::size_t round = 0; round < std::size(kWaits); ++round) {
    SCOPED_TRACE(name_of(kWaits[round]));
    (void)expect_failed(world, round, ErrorCode::timeout, victim(), 0);
    std::vector<double> late;
    for (Rank r{0}; r.value < n(); ++r.value) {
      if (r == victim()) continue;
      const Duration timeout = is_collective(kWaits[round]) ? kGroupTimeout : kCallTimeout;
      late.push_back(world.card(r).attempts[round].call_ms() - static_cast<double>(timeout.count()));
      // The first rank's timeout ends every rank's wait, and ranks begin at slightly different times.
      EXPECT_GE(late.back(), -100) << "gave up early";
    }
    expect_in_time(
        world, fmt::format("{}, {} ranks: overshoot of the deadline", name_of(kWaits[round]), n()).c_str(),
        late, kMostLateMs);
  }
}

// The host's wait begins a moment after the device's and is equally long.
TEST_P(CudaFaults, SynchronizeWithTheGroupsOwnTimeoutNamesTheAwaitedRank) {
  constexpr Duration kTimeout{1500};
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    load_kernels(dir.path(), rank, n(), gpu);
    Member member(dir.path(), rank, n(), gpu, kTimeout);
    if (rank != victim()) {
      self.card(rank).attempts[0].run([&] {
        member.queue(Wait::lamport_one_shot, victim(), kTimeout);
        member.group.synchronize(gpu.stream());
      });
      gpu.wait();
      note_context(self, rank, gpu);
    }
    self.raise(kFirstEnded);
    (void)self.await(kFirstEnded, static_cast<std::uint32_t>(n()), seconds{20});
  });
  ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
  (void)expect_failed(world, 0, ErrorCode::timeout, victim(), 0, {victim()});
  for (Rank r{0}; r.value < n(); ++r.value) {
    if (r == victim()) continue;
    EXPECT_LE(world.card(r).attempts[0].call_ms(),
              static_cast<double>(kTimeout.count()) + kMostLateMs + world.lateness_ms());
  }
}

TEST_P(CudaFaults, ARankStoppedPastTheDeadlineFindsItselfEvicted) {
  constexpr Duration kTimeout{1500};
  constexpr std::uint32_t kPaint = 0xa5a5a5a5;
  const TempDir dir;
  // While the evicted rank goes on, the memory of the others does not change.
  const auto meanwhile = [](World& self, Gpu& gpu, Group& group, const SymmetricBuffer* old) {
    const SymmetricBuffer fresh = group.allocate(kWords * 4);
    gpu.fill(fresh.local(), kPaint, kWords);
    if (old != nullptr) gpu.fill(old->local(), kPaint, kWords);
    gpu.wait();
    group.barrier();
    self.raise(kNewGroupWorks);
    if (!self.await(kVictimEnded, 1, seconds{20})) throw std::logic_error("the evicted rank never ended");
    testing::expect_works(group, gpu);
    for (const SymmetricBuffer* const each : {&fresh, old}) {
      if (each == nullptr) continue;
      const auto words = gpu.read(reinterpret_cast<const std::uint32_t*>(each->local()), kWords);
      if (std::any_of(words.begin(), words.end(), [](std::uint32_t word) { return word != kPaint; }))
        throw std::logic_error("the evicted rank wrote into another one's memory");
    }
  };
  World world(n() + newcomers(), [&](World& self, Rank rank) {
    if (rank.value >= n()) {
      Gpu own(testing::gpu_of(victim()));
      return live_as_newcomer(self, rank, dir.path(),
                              [&](Group& group) { meanwhile(self, own, group, nullptr); });
    }
    Gpu gpu(testing::gpu_of(rank));
    load_kernels(dir.path(), rank, n(), gpu);
    std::optional<Member> member(std::in_place, dir.path(), rank, n(), gpu, kTimeout);
    if (rank == victim()) (void)::raise(SIGSTOP);
    self.card(rank).attempts[0].run([&] {
      member->queue(Wait::lamport_two_shot, victim(), kTimeout);
      member->group.synchronize(gpu.stream(), seconds{10});
    });
    note_context(self, rank, gpu);
    if (rank == victim()) {
      self.raise(kVictimEnded);
      return;
    }
    const SymmetricBuffer old = member->buffer;
    member.reset();
    self.raise(kFirstEnded);
    form_new_group(self, rank, dir.path(), gpu, [&](Group& group) { meanwhile(self, gpu, group, &old); });
  });
  const bool formed =
      world.await(kNewGroupWorks, static_cast<std::uint32_t>(n() - 1 + newcomers()), seconds{50});
  ASSERT_EQ(::kill(world.pid(victim()), SIGCONT), 0);
  ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
  EXPECT_TRUE(formed);
  (void)expect_failed(world, 0, ErrorCode::timeout, victim(), 0);
  expect_new_group_worked(world);
}

TEST_P(CudaFaults, ARankThatFailsOrDiesWhileItRegistersMemoryIsNamedByAll) {
  for (const std::string action : {"error", "kill"}) {
    for (const std::string point : {"register_buffer", "map#5"}) {  // the fifth maps what others registered
      SCOPED_TRACE(action + " at " + point);
      const bool killed = action == "kill";
      const TempDir dir;
      World world(n() + (killed ? newcomers() : 0), [&](World& self, Rank rank) {
        if (rank.value >= n()) return live_as_newcomer(self, rank, dir.path());
        if (rank == victim()) arm_fault(point, rank, action, self.card(rank));
        Gpu gpu(testing::gpu_of(rank));
        {
          Member member(dir.path(), rank, n(), gpu, seconds{20});
          self.card(rank).attempts[0].run(
              [&] { (void)member.group.register_buffer(member.data, kWords * 4); });
          note_context(self, rank, gpu);
        }
        self.raise(kFirstEnded);
        if (killed) return form_new_group(self, rank, dir.path(), gpu);
        // Ranks join again only after all have left.
        (void)self.await(kFirstEnded, static_cast<std::uint32_t>(n()), seconds{20});
        self.card(rank).attempts[1].run([&] {
          Member again(dir.path(), rank, n(), gpu, seconds{20}, 1);
          again.group.register_buffer(again.data, kWords * 4).barrier();
          again.group.barrier();  // no rank has it mapped any more
        });
      });
      ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
      const std::vector<Rank> dead = killed ? std::vector<Rank>{victim()} : std::vector<Rank>{};
      expect_in_time(world, fmt::format("{} at {}, {} ranks", action, point, n()).c_str(),
                     expect_failed(world, 0, killed ? ErrorCode::peer_lost : ErrorCode::system, victim(),
                                   world.card(victim()).struck_ns.load(), dead),
                     kMostDetectionMs);
      if (killed) {
        expect_new_group_worked(world);
        continue;
      }
      for (Rank r{0}; r.value < n(); ++r.value) {
        const Attempt& attempt = world.card(r).attempts[1];
        EXPECT_EQ(attempt.state.load(), Attempt::succeeded) << attempt.text();
      }
    }
  }
}

// The stream says nothing of it. The call after it must, however soon it comes.
TEST_P(CudaFaults, ACallThatFollowsAFailedWaitThrows) {
  constexpr Duration kTimeout{300};
  constexpr int kRounds = 5;
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    load_kernels(dir.path(), rank, n(), gpu);
    for (std::size_t round = 0; round < kRounds; ++round) {
      Member member(dir.path(), rank, n(), gpu, kTimeout, round);
      if (rank != victim()) {
        self.card(rank).attempts[round].run([&] {
          member.queue(Wait::packets, victim(), kTimeout);
          gpu.wait();
          if (round % 2 == 0) member.group.check();
          member.queue(Wait::packets, victim(), kTimeout);
        });
      }
      self.raise(kFirstEnded);
      await_round(self, kFirstEnded, round, n());
    }
  });
  ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
  for (Rank r{0}; r.value < n(); ++r.value) {
    if (r == victim()) continue;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const Attempt& attempt = world.card(r).attempts[round];
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
    }
  }
}

// The rank that finds it enqueues nothing, and the waits of the others end: nobody waits for the deadline.
TEST_P(CudaFaults, CallsThatDoNotMatchAreAMismatchOnAllRanks) {
  constexpr Duration kTimeout = seconds{20};
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Gpu gpu(testing::gpu_of(rank));
    load_kernels(dir.path(), rank, n(), gpu);
    std::optional<Member> member(std::in_place, dir.path(), rank, n(), gpu, kTimeout);
    self.card(rank).attempts[0].run([&] {
      member->queue(rank == victim() ? Wait::chunks : Wait::packets, victim(), kTimeout);
      member->group.synchronize(gpu.stream(), seconds{10});
      // A rank that got all it waited for learns of the others' failure.
      check_until_it_fails(member->group);
    });
    note_context(self, rank, gpu);
    self.raise(kFirstEnded);
    (void)self.await(kFirstEnded, static_cast<std::uint32_t>(n()), seconds{20});
    member.reset();
    self.card(rank).attempts[1].run([&] {
      Group group = Member::join(dir.path(), rank, n(), gpu, seconds{20});
      testing::expect_works(group, gpu);
      group.barrier();
    });
  });
  ASSERT_TRUE(world.finish(seconds{60})) << "a process hung";
  for (Rank r{0}; r.value < n(); ++r.value) {
    const Card& card = world.card(r);
    EXPECT_EQ(card.attempts[0].state.load(), Attempt::failed) << card.attempts[0].text();
    EXPECT_EQ(card.attempts[0].error(), ErrorCode::mismatch) << card.attempts[0].text();
    EXPECT_EQ(card.figures[kContextUsable], 1) << "rank " << r.value;
    EXPECT_EQ(card.attempts[1].state.load(), Attempt::succeeded) << card.attempts[1].text();
  }
}

}  // namespace
}  // namespace onehop::fault::gpu_fault_test
