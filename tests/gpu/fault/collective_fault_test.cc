// SPDX-License-Identifier: Apache-2.0
// A rank is killed, stopped or late while its peers are in a collective on GPUs, for every collective and
// every protocol. Each time the other ranks get an error in time that names it. They go on in a new group in
// the same processes, in which the next rank fails in the next collective.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fault/world.h"
#include "gpu/on_gpus.h"
#include "gpu/stress_call.h"
#include "gpu/stress_plan.h"

namespace onehop::fault::gpu_collective_fault_test {
namespace {

using std::chrono::seconds;
using testing::Gpu;
using testing::StressBatch;
using testing::StressOp;
using testing::TempDir;

// Each process has inputs in the first half of its memory, outputs in the second.
constexpr std::uint32_t kHalf = 16u << 20;

enum Event { kInTraffic, kRoundEnded };

// Promises A and B on GPUs.
constexpr double kMostLateMs = 50;
// The limit for synchronize(), whose own deadline passes while the device still waits.
constexpr double kMostLateOfHostMs = 100;
constexpr double kMostDetectionMs = 250;

constexpr std::uint32_t kPaint = 0xa5a5a5a5;

/// How a collective's data travels between ranks.
enum class Protocol { packets, lamport, streams, list };

struct Row {
  Collective kind;
  Protocol protocol;
  /// In protocols that forward data: some peers wait for others that wait for the victim. Otherwise all peers
  /// wait for the victim itself, as far as the root permits.
  bool through_others = false;
};
constexpr Row kRows[] = {
    {Collective::all_reduce, Protocol::packets},     {Collective::all_reduce, Protocol::lamport},
    {Collective::all_reduce, Protocol::streams},     {Collective::reduce_scatter, Protocol::packets},
    {Collective::reduce_scatter, Protocol::lamport}, {Collective::reduce_scatter, Protocol::streams},
    {Collective::all_gather, Protocol::packets},     {Collective::all_gather, Protocol::streams},
    {Collective::broadcast, Protocol::packets},      {Collective::broadcast, Protocol::streams},
    {Collective::reduce, Protocol::packets},         {Collective::reduce, Protocol::streams},
    {Collective::all_to_all, Protocol::packets},     {Collective::all_to_all, Protocol::streams},
    {Collective::all_to_all_v, Protocol::packets},   {Collective::all_to_all_v, Protocol::streams},
    {Collective::gather, Protocol::packets},         {Collective::gather, Protocol::streams},
    {Collective::scatter, Protocol::packets},        {Collective::scatter, Protocol::streams},
    {Collective::send, Protocol::packets},           {Collective::send, Protocol::streams},
    {Collective::all_reduce, Protocol::list}};

std::string name_of(const Row& row) {
  constexpr const char* kProtocols[] = {"packets", "Lamport buffers", "streams",
                                        "packets, several in one launch"};
  return fmt::format("{} by {}", testing::stress_name(row.kind), kProtocols[static_cast<int>(row.protocol)]);
}

/// Words per block: for packets, within a slot; for Lamport buffers, more; for streams, more than pairs send
/// by packets.
constexpr std::uint32_t count_of(Protocol protocol) {
  return protocol == Protocol::lamport ? 100'000 : protocol == Protocol::streams ? 300'001 : 1000;
}

/// The blocks of an all_to_all_v may have any size, including 0. Here all of them must use the same protocol.
bool has_small_blocks(const StressOp& op, int n) {
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from != to && count_between(op, from, to) < op.count / 2) return true;
    }
  }
  return false;
}

/// The call of this row in which peers wait for `victim`, or several such calls.
StressBatch calls_of(const Row& row, int n, Rank victim) {
  StressOp op;
  op.kind = row.kind;
  op.type = row.protocol == Protocol::lamport ? DType::f32 : DType::u32;  // Lamport buffers carry floats only
  op.folds = traits_of(row.kind).reduces ? 1 : 0;
  op.count = count_of(row.protocol);
  if (row.kind == Collective::all_reduce) {
    op.algorithm = static_cast<std::uint8_t>(row.protocol == Protocol::streams ? Algorithm::two_shot
                                                                               : Algorithm::one_shot);
  }
  if (row.kind == Collective::all_to_all_v) {
    op.count *= 2;
    while (has_small_blocks(op, n)) ++op.key;
  }
  // When data passes through others, the victim forwards it or waits for a rank that does.
  const bool forwarded = n > 2 && row.protocol == Protocol::streams && !row.through_others;
  const bool victim_is_root = row.kind == Collective::scatter ||
                              (row.kind == Collective::broadcast && !forwarded) ||
                              (row.kind == Collective::reduce && forwarded);
  op.root = static_cast<std::uint8_t>(victim_is_root ? victim.value : 0);
  if (row.kind == Collective::send) op.root = 1;  // to the next rank
  StressBatch ops(row.protocol == Protocol::list ? 5 : 1, op);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].together = i > 0;
    ops[i].in = static_cast<std::uint32_t>(i) * op.count * testing::element_bytes(op.type);
    ops[i].out = kHalf + ops[i].in;
  }
  return ops;
}

/// The state that a process keeps from group to group.
struct Seat {
  Gpu gpu;
  std::byte* arena;

  explicit Seat(Rank rank) : gpu(testing::gpu_of(rank)), arena(gpu.make<std::byte>(std::size_t{2} * kHalf)) {}

  /// The first group of a process loads every kernel, which takes long. Here, all processes do so at once.
  void load_kernels(int n) const {
    JoinOptions options;
    options.allow_overlapping_devices = true;
    (void)Group::join_local(std::vector<DeviceId>(static_cast<std::size_t>(n), gpu.device()), options);
  }

  void queue(Group& group, const StressBatch& ops) const {
    make_calls(group, {.ordinary = arena, .symmetric = nullptr}, ops, gpu.stream());
  }

  /// The group of a round; checks that it works.
  [[nodiscard]] Group join(const std::string& dir, std::size_t round, Rank rank, int n, Duration timeout) {
    JoinOptions options;
    options.name = fmt::format("round-{}", round);
    options.rank = rank;
    options.size = n;
    options.device = gpu.device();
    options.timeout = timeout;
    options.allow_overlapping_devices = testing::shared_gpus() > 0;
    Group group = Group::join(file_store(dir), options);
    testing::expect_works(group, gpu);
    group.barrier();
    return group;
  }
};

/// Used by a rank that got all that it waited for: throws if the group's check() throws within a few seconds.
void check_until_it_fails(const Group& group) {
  for (const std::int64_t start = now_ns(); now_ns() - start < 5'000'000'000;) {
    group.check();
    std::this_thread::yield();
  }
}

void await_all(World& world, int event, std::size_t count) {
  if (!world.await(event, static_cast<std::uint32_t>(count), seconds{40}))
    throw std::logic_error(fmt::format("event {} was not raised {} times", event, count));
}

/// Waits until the child has stopped, since continuing it earlier would have no effect.
bool await_stopped(pid_t pid, Duration limit) {
  const std::int64_t end = now_ns() + std::chrono::nanoseconds(limit).count();
  while (now_ns() < end) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG) != 0) return false;
    if (info.si_pid == pid) return true;
    (void)::poll(nullptr, 0, 1);
  }
  return false;
}

class CudaCollectiveFaults : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string missing = testing::forked_gpus_unavailable(n());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  [[nodiscard]] static int n() { return GetParam(); }
  [[nodiscard]] static std::size_t size() { return static_cast<std::size_t>(n()); }
  [[nodiscard]] static Rank victim() { return Rank{n() / 2}; }

  /// Every row, or every collective once, with the protocols in turn.
  [[nodiscard]] static std::vector<Row> rows(bool all) {
    std::vector<Row> chosen;
    for (std::size_t i = 0; i < std::size(kRows); ++i) {
      if (all || (i + i / 2) % 2 == 0) chosen.push_back(kRows[i]);
    }
    return chosen;
  }

  static void expect_failed(const Attempt& attempt, int process, ErrorCode code) {
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << "process " << process << ": " << attempt.text();
    EXPECT_EQ(attempt.error(), code) << "process " << process << ": " << attempt.text();
    EXPECT_EQ(attempt.origin, victim().value) << "process " << process << ": " << attempt.text();
  }
  static void expect_worked(const Attempt& attempt, int process) {
    EXPECT_EQ(attempt.state.load(), Attempt::succeeded) << "process " << process << ": " << attempt.text();
  }
  static void expect_in_time(const World& world, const std::string& what, const std::vector<double>& delays,
                             double most_ms) {
    print_spread(fmt::format("{} ranks: {}", n(), what), Spread(delays));
    for (const double each : delays) EXPECT_LE(each, most_ms + world.lateness_ms()) << what;
  }

  /// Makes each of `calls` in new groups, one after the other; each call loses its victim.
  static void kill_in(const std::vector<Row>& calls);
  /// A call that the victim does not make in time.
  struct Held {
    Row row;
    Duration patience = seconds{10};  ///< for synchronize(); longer than the wait on the device
    int ahead = 1;                    ///< how many times the others make the call before they synchronize
  };
  static std::vector<Held> held(const std::vector<Row>& rows) {
    std::vector<Held> all;
    for (const Row& row : rows) all.push_back({.row = row});
    return all;
  }
  /// The victim of every call stops or is late until the others have failed.
  static void hold_up_in(const std::vector<Held>& calls, bool stopped, Duration timeout = Duration{700});
};
std::string processes_name(const ::testing::TestParamInfo<int>& info) {
  return fmt::format("Processes{}", info.param);
}
INSTANTIATE_TEST_SUITE_P(, CudaCollectiveFaults, ::testing::Values(2, 4), processes_name);

void CudaCollectiveFaults::kill_in(const std::vector<Row>& calls) {
  const std::size_t survivors = size() - 1;
  const TempDir dir;
  // The survivors, one victim per call, and one more process that finally replaces the victims.
  World world(static_cast<int>(survivors + calls.size() + 1), [&](World& self, Rank process) {
    const auto number = static_cast<std::size_t>(process.value);
    const bool survives = number < survivors;
    const Rank rank = !survives ? victim() : Rank{process.value + (process >= victim() ? 1 : 0)};
    const std::size_t first = survives ? 0 : number - survivors;
    Seat seat(rank);
    seat.load_kernels(n());
    await_all(self, kRoundEnded, survivors * first);
    for (std::size_t round = first; round < calls.size(); ++round) {
      Group group = seat.join(dir.path(), round, rank, n(), seconds{20});
      const StressBatch ops = calls_of(calls[round], n(), victim());
      self.card(process).attempts[round].run([&] {
        for (int done = 0;; ++done) {
          if (done == 10) self.raise(kInTraffic);
          for (int ahead = 0; ahead < 4; ++ahead) seat.queue(group, ops);
          group.synchronize(seat.gpu.stream(), seconds{25});
        }
      });
      seat.gpu.synchronize_device();  // reports a damaged context
      self.raise(kRoundEnded);
      // No rank leaves before all have heard of the failure.
      await_all(self, kRoundEnded, survivors * (round + 1));
    }
    self.card(process).attempts[calls.size()].run(
        [&] { seat.join(dir.path(), calls.size(), rank, n(), seconds{20}).barrier(); });
  });
  std::vector<std::int64_t> struck_ns;
  for (std::size_t round = 0; round < calls.size(); ++round) {
    SCOPED_TRACE(name_of(calls[round]));
    ASSERT_TRUE(world.await(kInTraffic, static_cast<std::uint32_t>(size() * (round + 1)), seconds{40}));
    struck_ns.push_back(now_ns());
    ASSERT_EQ(::kill(world.pid(Rank{static_cast<int>(survivors + round)}), SIGKILL), 0);
  }
  ASSERT_TRUE(world.finish(seconds{40})) << "a process hung";
  for (std::size_t round = 0; round < calls.size(); ++round) {
    SCOPED_TRACE(name_of(calls[round]));
    std::vector<double> delays;
    for (Rank r{0}; r.value < n() - 1; ++r.value) {
      const Attempt& attempt = world.card(r).attempts[round];
      expect_failed(attempt, r.value, ErrorCode::peer_lost);
      delays.push_back(static_cast<double>(attempt.ended_ns - struck_ns[round]) / 1e6);
    }
    expect_in_time(world, name_of(calls[round]) + ": kill to Error", delays, kMostDetectionMs);
  }
  for (Rank r{0}; r.value < n() - 1; ++r.value) expect_worked(world.card(r).attempts[calls.size()], r.value);
  const int last = world.size() - 1;
  expect_worked(world.card(Rank{last}).attempts[calls.size()], last);
}

void CudaCollectiveFaults::hold_up_in(const std::vector<Held>& calls, bool stopped, Duration timeout) {
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Seat seat(rank);
    // Loads every kernel, which takes longer than the deadline of the others.
    (void)seat.join(dir.path(), calls.size() + 1, rank, n(), seconds{20});
    for (std::size_t round = 0; round < calls.size(); ++round) {
      Group group = seat.join(dir.path(), round, rank, n(), timeout);
      const StressBatch ops = calls_of(calls[round].row, n(), victim());
      Attempt& attempt = self.card(rank).attempts[round];
      attempt.run([&] {
        for (int before = 0; before < 3; ++before) seat.queue(group, ops);
        group.synchronize(seat.gpu.stream());
        group.barrier();
        if (rank == victim() && stopped) (void)::raise(SIGSTOP);
        if (rank == victim() && !stopped) await_all(self, kRoundEnded, size() * round + size() - 1);
        attempt.begin_call();
        for (int ahead = 0; ahead < calls[round].ahead; ++ahead) seat.queue(group, ops);
        group.synchronize(seat.gpu.stream(), rank == victim() ? seconds{10} : calls[round].patience);
        check_until_it_fails(group);
      });
      seat.gpu.synchronize_device();  // reports a damaged context
      self.raise(kRoundEnded);
      // No rank leaves before all have heard of the failure.
      await_all(self, kRoundEnded, size() * (round + 1));
    }
    self.card(rank).attempts[calls.size()].run(
        [&] { seat.join(dir.path(), calls.size(), rank, n(), seconds{20}).barrier(); });
  });
  for (std::size_t round = 0; stopped && round < calls.size(); ++round) {
    SCOPED_TRACE(name_of(calls[round].row));
    ASSERT_TRUE(await_stopped(world.pid(victim()), seconds{40}));
    const bool ended =
        world.await(kRoundEnded, static_cast<std::uint32_t>(size() * round + size() - 1), seconds{20});
    ASSERT_EQ(::kill(world.pid(victim()), SIGCONT), 0);
    ASSERT_TRUE(ended) << "ranks wait for a stopped one";
  }
  ASSERT_TRUE(world.finish(seconds{80})) << "a process hung";
  for (std::size_t round = 0; round < calls.size(); ++round) {
    SCOPED_TRACE(name_of(calls[round].row));
    std::vector<double> late;
    for (Rank r{0}; r.value < n(); ++r.value) {
      const Attempt& attempt = world.card(r).attempts[round];
      expect_failed(attempt, r.value, ErrorCode::timeout);
      if (r == victim()) continue;
      const Duration due = std::min(timeout, calls[round].patience);
      late.push_back(attempt.call_ms() - static_cast<double>(due.count()));
      // The first rank's timeout ends every rank's wait, and ranks begin at slightly different times.
      EXPECT_GE(late.back(), -100) << "gave up early";
    }
    expect_in_time(world, name_of(calls[round].row) + ": overshoot of the deadline", late,
                   calls[round].patience > timeout ? kMostLateMs : kMostLateOfHostMs);
  }
  for (Rank r{0}; r.value < n(); ++r.value) expect_worked(world.card(r).attempts[calls.size()], r.value);
}

TEST_P(CudaCollectiveFaults, ARankThatIsKilledAmongItsCallsIsNamedInTimeAndSurvivorsGoOn) {
  const std::vector<Row> calls = rows(n() == 2);
  const std::size_t at_a_time = World::kMaxProcesses - size();
  for (std::size_t begin = 0; begin < calls.size(); begin += at_a_time) {
    const std::size_t end = std::min(begin + at_a_time, calls.size());
    kill_in({calls.begin() + static_cast<std::ptrdiff_t>(begin),
             calls.begin() + static_cast<std::ptrdiff_t>(end)});
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaCollectiveFaults, ARankThatIsLateIsNamedWhenTheDeadlinePassesAndAllGoOn) {
  hold_up_in(held(rows(n() == 2)), false);
}

TEST_P(CudaCollectiveFaults, ARankThatStopsIsNamedWhenTheDeadlinePassesAndAllGoOnWhenItContinues) {
  hold_up_in(held(rows(false)), true);
}

/// Tests that work with any number of ranks.
class CudaStoppedRanks : public CudaCollectiveFaults {};
INSTANTIATE_TEST_SUITE_P(, CudaStoppedRanks, ::testing::Values(2, 3, 4), processes_name);

TEST_P(CudaStoppedRanks, AreNamedHoweverLongTheOthersWaitForTheirStreams) {
  constexpr Duration kTimeout{1000};
  // All ranks wait for the stopped rank, or most wait for a rank that waits for it, in this call or the
  // previous one.
  constexpr Row kChosen[] = {{Collective::all_reduce, Protocol::lamport},
                             {Collective::send, Protocol::packets},
                             {Collective::send, Protocol::streams},
                             {Collective::broadcast, Protocol::streams, true},
                             {Collective::reduce, Protocol::streams, true}};
  std::vector<Held> calls;
  for (const Row& row : kChosen) {
    const int ahead = row.kind == Collective::send ? n() : 1;
    for (const Duration patience : {kTimeout / 2, kTimeout, Duration{seconds{10}}})
      calls.push_back({.row = row, .patience = patience, .ahead = ahead});
  }
  hold_up_in(calls, true, kTimeout);
}

// Copy engines write the results of such calls directly into the memory of the others. These have given the
// rank up, got their Error, and use that memory again.
TEST_P(CudaStoppedRanks, WriteNothingIntoSymmetricMemoryWhenTheyContinue) {
  constexpr Duration kTimeout{1000};
  const std::size_t block = std::size_t{64} << 20;  // long enough for copy engines
  const std::size_t words = size() * block / 4;
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Seat seat(rank);
    (void)seat.join(dir.path(), 1, rank, n(), seconds{20});  // loads every kernel
    Group group = seat.join(dir.path(), 0, rank, n(), kTimeout);
    const SymmetricBuffer buffer = group.allocate(words * 4);
    auto* const all = reinterpret_cast<std::uint32_t*>(buffer.local());
    const auto gather = [&] {
      (void)all_gather(group, all + static_cast<std::size_t>(rank.value) * block / 4, all, block / 4,
                       DType::u32, seat.gpu.stream(), {.algorithm = {}, .timeout = {}, .symmetric = true});
      group.synchronize(seat.gpu.stream());
    };
    gather();
    group.barrier();
    if (rank == victim()) (void)::raise(SIGSTOP);
    Attempt& attempt = self.card(rank).attempts[0];
    attempt.run(gather);
    seat.gpu.wait();
    self.raise(kInTraffic);
    if (rank == victim()) return;
    // The work that the others queued has ended; from now on the memory is this rank's.
    await_all(self, kInTraffic, size() - 1);
    self.card(rank).attempts[1].run([&] {
      seat.gpu.fill(all, kPaint, words);
      seat.gpu.wait();
      self.raise(kRoundEnded);
      await_all(self, kInTraffic, size());
      const std::vector<std::uint32_t> now = seat.gpu.read(all, words);
      const auto changed =
          std::count_if(now.begin(), now.end(), [](std::uint32_t word) { return word != kPaint; });
      if (changed != 0) throw std::logic_error(fmt::format("{} of {} words were written to", changed, words));
    });
  });
  ASSERT_TRUE(await_stopped(world.pid(victim()), seconds{40}));
  const bool painted = world.await(kRoundEnded, static_cast<std::uint32_t>(size() - 1), seconds{20});
  ASSERT_EQ(::kill(world.pid(victim()), SIGCONT), 0);
  ASSERT_TRUE(world.finish(seconds{40})) << "a process hung";
  EXPECT_TRUE(painted);
  for (Rank r{0}; r.value < n(); ++r.value) {
    expect_failed(world.card(r).attempts[0], r.value, ErrorCode::timeout);
    if (r != victim()) expect_worked(world.card(r).attempts[1], r.value);
  }
}

}  // namespace
}  // namespace onehop::fault::gpu_collective_fault_test
