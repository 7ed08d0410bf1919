// SPDX-License-Identifier: Apache-2.0
// Any rank of a group is killed, stopped or crashed at any time, whatever its group is doing: every
// collective, eager and replayed, signals, allocate, split. There is one process per GPU. At the end of a
// round each survivor must have thrown an Error in time that names the rank. Its context must still be
// usable, and it must form a new group with the others that reduces correctly. The results of successful
// calls are compared.
//
// This process uses no CUDA, so that it can fork replacements for processes that died. These are started
// before they are needed, since that takes seconds.
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/env.h"
#include "gpu/fault/chaos_board.h"
#include "gpu/fault/chaos_member.h"
#include "gpu/fault/chaos_processes.h"
#include "gpu/fault/chaos_record.h"
#include "os/futex.h"
#include "support/gpu.h"
#include "support/ranks.h"

namespace onehop::fault {
namespace {

using std::chrono::seconds;

constexpr const char* kUsage =
    R"(cuda_chaos: ranks that are killed, stopped or crash at random times on GPUs

  --rounds N   (default: 100)
  --host       runs the ranks on the host, to try the program itself

ONEHOP_CHAOS_ROUNDS   number of rounds, overrides --rounds
ONEHOP_CHAOS_SEED     default 1; equal seeds give equal rounds, except for where the ranks are when they are struck
ONEHOP_CHAOS_SECONDS  default 300; then the program ends, even if something hangs
ONEHOP_CHAOS_RANKS    2 to 8; default: all GPUs that reach each other
ONEHOP_TEST_GPUS      makes the ranks share this many GPUs

Exit code 0: no promise was broken, or skipped because there are fewer than 2 GPUs. 1: a promise was broken.
3: out of time.
)";

// The promised limits, to which the machine's own delays are added.
constexpr double kMostDetectionMs = 250;
constexpr double kMostLateMs = 100;
// Time for work in the queue of a stopped rank's GPU, after which the others' wait begins.
constexpr double kQueuedMs = 100;
constexpr Duration kKillTimeout = seconds{6};  // for groups in which a rank dies: longer than any call takes
constexpr Duration kStartLimit = seconds{40};  // for starting a process
constexpr Duration kSlack = seconds{8};
constexpr seconds kLastRound{25};  // no round begins later than this before the end

struct Options {
  bool on_host = false;
  int rounds = 100;
  std::uint64_t seed = 1;
  seconds limit{300};
  int ranks = 0;
  int gpus = 0;
};

class Chaos {
 public:
  explicit Chaos(const Options& options)
      : options_(options),
        random_(options.seed),
        end_(Deadline::after(options.limit)),
        processes_(static_cast<std::size_t>(options.ranks),
                   [this](ChaosBoard& board, ChaosSlot& slot, std::size_t seat) {
                     const auto backend =
                         options_.on_host ? ChaosBackend::on_host() : ChaosBackend::on_gpu(gpu_of(seat));
                     live_as_member(board, slot, *backend, options_.ranks, dir_.path());
                   }) {}

  bool run() {
    while (record_.rounds < options_.rounds && end_.left() > kLastRound) {
      if (!processes_.fill(std::min<Duration>(kStartLimit, end_.left()))) {
        ++record_.hung;
        record_.report("a process did not start");
        break;
      }
      make_round();
      if (record_.rounds % 25 == 0 && record_.rounds < options_.rounds) print();
    }
    if (!record_.incidents.empty()) fmt::print("The first that went wrong:\n");
    for (const std::string& each : record_.incidents) fmt::print("  {}\n", each);
    print();
    return record_.good() && record_.rounds > 0;
  }

 private:
  /// One rank of the round.
  struct Member {
    std::size_t seat;
    ChaosSlot* slot;
  };
  struct Round {
    int number = 0;
    Strike strike{};
    Duration timeout{0};
    std::vector<Member> members;  ///< by rank
    int victim = 0;
    std::int64_t struck_ns = 0;

    [[nodiscard]] std::vector<int> survivors() const {
      std::vector<int> all(members.size());
      std::iota(all.begin(), all.end(), 0);
      std::erase(all, victim);
      return all;
    }
    [[nodiscard]] const Member& member(int rank) const { return members[static_cast<std::size_t>(rank)]; }
  };

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

  [[nodiscard]] DeviceId gpu_of(std::size_t seat) const {
    return DeviceId{static_cast<int>(seat) % std::max(1, options_.gpus)};
  }
  void print() const {
    record_.print(fmt::format("{}, seed {}, {} ranks on {}", options_.rounds, options_.seed, options_.ranks,
                              options_.on_host ? "the host" : fmt::format("{} GPUs", options_.gpus)),
                  std::chrono::duration<double>(options_.limit - end_.left()).count());
  }

  Round plan_round() {
    Round round;
    round.number = ++record_.rounds;
    const std::uint32_t chance = below(100);
    round.strike = chance < 50 ? Strike::kill : chance < 55 ? Strike::crash : Strike::stop;
    round.timeout =
        round.strike == Strike::stop ? Duration{2000 + static_cast<long>(below(1000))} : kKillTimeout;
    // Half of the groups use all GPUs; each rank runs on any of them.
    std::vector<std::size_t> seats(processes_.seats());
    std::iota(seats.begin(), seats.end(), std::size_t{0});
    std::shuffle(seats.begin(), seats.end(), random_);
    const auto most = static_cast<std::uint32_t>(seats.size());
    const std::uint32_t size = below(2) == 0 ? most : 2 + below(most - 1);
    for (std::uint32_t r = 0; r < size; ++r)
      round.members.push_back({.seat = seats[r], .slot = &processes_.slot(seats[r])});
    round.victim = static_cast<int>(below(size));
    return round;
  }

  void make_round() {
    Round round = plan_round();
    ChaosTask task;
    task.kind = ChaosTask::traffic;
    task.round = round.number;
    task.size = static_cast<int>(round.members.size());
    task.seed = random_();
    task.timeout = round.timeout;
    task.patience = static_cast<ChaosTask::Patience>(below(4));
    task.leaves_at_once = below(2) == 0;
    const Duration delay{static_cast<long>(below(400))};
    const std::uint32_t continued = below(4);  // before the others regroup, meanwhile, after it; never
    for (task.rank = 0; task.rank < task.size; ++task.rank) give(*round.member(task.rank).slot, task);

    if (!await_traffic(round)) {
      ++record_.failed_joins;
      return clear(round);
    }
    (void)processes_.await([] { return false; }, delay);
    strike(round);
    await_survivors(round);
    processes_.board().heard.store(static_cast<std::uint32_t>(round.number));
    os::futex_wake_all(processes_.board().heard);
    if (continued == 0) resume(round);
    await_contexts(round);
    for (const int rank : round.survivors()) judge(round, rank);

    regroup(round, [&] {
      if (continued == 1) resume(round);
    });
    if (round.strike == Strike::stop && continued != 3) {
      if (continued != 0) resume(round);
      await_eviction(round);
    }
    if (round.strike != Strike::stop || continued == 3) processes_.replace(round.member(round.victim).seat);
  }

  bool await_traffic(const Round& round) {
    const auto failed = [](const Member& each) { return is_done(*each.slot); };
    (void)processes_.await(
        [&] {
          return std::any_of(round.members.begin(), round.members.end(), failed) ||
                 std::all_of(round.members.begin(), round.members.end(),
                             [](const Member& each) { return each.slot->report.steps.load() > 0; });
        },
        2 * round.timeout + kSlack);
    bool all = true;
    for (const Member& each : round.members) {
      const ChaosReport& report = each.slot->report;
      if (report.steps.load() > 0 && !is_done(*each.slot)) continue;
      all = false;
      if (report.work.state.load() == Attempt::broken) ++record_.wrong;
      const std::string text = last_attempt(report).text();
      record_.report(fmt::format(
          "round {}: nothing was struck yet, but seat {}: {}", round.number, each.seat,
          !text.empty() ? text : fmt::format("{}, in {}", processes_.fate_of(each.seat), report.step)));
    }
    return all;
  }
  /// After a failed round: replaces the processes that do not end by themselves.
  void clear(const Round& round) {
    processes_.board().heard.store(static_cast<std::uint32_t>(round.number));
    os::futex_wake_all(processes_.board().heard);
    (void)processes_.await(
        [&] {
          return std::all_of(round.members.begin(), round.members.end(),
                             [](const Member& each) { return is_done(*each.slot); });
        },
        2 * round.timeout + kSlack);
    for (const Member& each : round.members) {
      if (!is_done(*each.slot)) processes_.replace(each.seat);
    }
  }

  void strike(Round& round) {
    ++record_.strikes[round.strike];
    processes_.forget_stalls();
    round.struck_ns = now_ns();
    const int signal = round.strike == Strike::kill    ? SIGKILL
                       : round.strike == Strike::crash ? SIGABRT
                                                       : SIGSTOP;
    processes_.send_signal(round.member(round.victim).seat, signal);
  }
  void resume(const Round& round) const {
    if (round.strike == Strike::stop) processes_.send_signal(round.member(round.victim).seat, SIGCONT);
  }

  void await_survivors(const Round& round) {
    const std::vector<int> survivors = round.survivors();
    (void)processes_.await(
        [&] {
          return std::all_of(survivors.begin(), survivors.end(),
                             [&](int rank) { return has_ended(round.member(rank).slot->report.work); });
        },
        2 * round.timeout + kSlack);
  }
  void await_contexts(const Round& round) {
    const std::vector<int> survivors = round.survivors();
    (void)processes_.await(
        [&] {
          return std::all_of(survivors.begin(), survivors.end(),
                             [&](int rank) { return is_done(*round.member(rank).slot); });
        },
        round.timeout + kSlack);
  }

  void judge(const Round& round, int rank) {
    const Member& member = round.member(rank);
    const ChaosReport& report = member.slot->report;
    const Attempt& attempt = report.work;
    ++record_.survivors;
    record_.calls += report.calls;
    record_.elements += report.elements;
    const std::string who = fmt::format("round {}, rank {} of {}, in {} of {} ms; rank {} was {}",
                                        round.number, rank, round.members.size(), report.step,
                                        report.call_timeout.count(), round.victim, to_text(round.strike));
    if (!has_ended(attempt)) {
      ++record_.hung;
      record_.report(fmt::format("{}: {}", who, processes_.fate_of(member.seat)));
      return processes_.replace(member.seat);
    }
    if (attempt.state.load() != Attempt::failed) {
      ++record_.wrong;
      record_.report(fmt::format("{}: {}", who, attempt.text()));
    } else {
      judge_error(round, report, who);
    }
    if (!is_done(*member.slot) || !report.context_usable) {
      ++record_.contexts_lost;
      record_.report(fmt::format("{}: {}", who,
                                 is_done(*member.slot) ? "lost its context" : "does not leave its group"));
      processes_.replace(member.seat);
    }
  }

  void judge_error(const Round& round, const ChaosReport& report, const std::string& who) {
    const Attempt& attempt = report.work;
    const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; };
    if (attempt.origin == round.victim) {
      ++record_.named;
    } else {
      ++record_.misnamed;
      ++record_.misnamed_in[report.step];
      record_.report(fmt::format("{}: names rank {}: {}", who, attempt.origin, attempt.text()));
    }
    const std::int64_t began = std::max(round.struck_ns, attempt.call_began_ns);
    double late = 0;
    if (round.strike == Strike::stop) {
      // The deadline of the call, or that of the wait on the device.
      const double due =
          std::min(ms(attempt.call_began_ns) + static_cast<double>(report.call_timeout.count()),
                   ms(began) + static_cast<double>(round.timeout.count()) + kQueuedMs);
      late = ms(attempt.ended_ns) - due;
      record_.overshoot_ms.push_back(late);
      late -= kMostLateMs;
    } else {
      record_.detection_ms.push_back(ms(attempt.ended_ns - round.struck_ns));
      late = ms(attempt.ended_ns - began) - kMostDetectionMs;
    }
    if (late <= processes_.stall_ms() + attempt.starved_ms) return;
    ++record_.late;
    record_.report(fmt::format("{}: {:.0f} ms later than promised (the machine was {:.0f} ms late): {}", who,
                               late, processes_.stall_ms() + attempt.starved_ms, attempt.text()));
  }

  /// The survivors form a group of their own. `meanwhile` runs once they have begun.
  template <class Meanwhile>
  void regroup(const Round& round, Meanwhile&& meanwhile) {
    std::vector<Member> members;
    for (const int rank : round.survivors()) {
      const Member& member = round.member(rank);
      // A process that was replaced did not survive.
      if (member.slot == &processes_.slot(member.seat)) members.push_back(member);
    }
    // A lone survivor gets the spare of the struck rank's seat, on that rank's GPU.
    if (members.size() == 1) {
      const std::size_t seat = round.member(round.victim).seat;
      ChaosSlot& spare = processes_.spare(seat);
      if (processes_.await([&] { return spare.ready.load() != 0; }, kStartLimit))
        members.push_back({.seat = seat, .slot = &spare});
    }
    if (members.size() < 2) return meanwhile();
    ++record_.regroups;
    ChaosTask task;
    task.kind = ChaosTask::regroup;
    task.round = round.number;
    task.size = static_cast<int>(members.size());
    task.seed = options_.seed + static_cast<std::uint64_t>(round.number);
    task.timeout = kKillTimeout;
    for (const Member& each : members) {
      give(*each.slot, task);
      ++task.rank;
    }
    meanwhile();
    const bool done = processes_.await(
        [&] {
          return std::all_of(members.begin(), members.end(),
                             [](const Member& each) { return is_done(*each.slot); });
        },
        2 * kKillTimeout + kSlack);
    bool good = done;
    for (const Member& each : members) {
      const ChaosReport& report = each.slot->report;
      if (report.work.state.load() == Attempt::succeeded && report.context_usable) continue;
      good = false;
      const Attempt& attempt = last_attempt(report);
      record_.report(fmt::format("regrouping after round {}, seat {}: {}", round.number, each.seat,
                                 has_ended(attempt) ? attempt.text() : processes_.fate_of(each.seat)));
      if (!is_done(*each.slot) && each.slot == &processes_.slot(each.seat)) processes_.replace(each.seat);
    }
    if (!good) ++record_.failed_regroups;
  }

  void await_eviction(const Round& round) {
    const Member& member = round.member(round.victim);
    const ChaosReport& report = member.slot->report;
    const bool done = processes_.await([&] { return is_done(*member.slot); }, 2 * round.timeout + kSlack);
    if (done && report.work.state.load() == Attempt::failed && report.context_usable) {
      ++record_.evicted;
      return;
    }
    ++record_.not_evicted;
    record_.report(fmt::format("round {}: rank {} of {} was continued, in {}: {}", round.number, round.victim,
                               round.members.size(), report.step,
                               done ? report.work.text() : processes_.fate_of(member.seat)));
    if (!done) processes_.replace(member.seat);
  }

  const Options options_;
  const testing::TempDir dir_;
  std::mt19937_64 random_;
  const Deadline end_;
  ChaosRecord record_;
  ChaosProcesses processes_;
};

extern "C" void out_of_time(int /*signal*/) {
  constexpr char kText[] = "cuda_chaos: out of time: something hangs\n";
  (void)!::write(STDOUT_FILENO, kText, sizeof kText - 1);
  ::_exit(3);  // the others die with this process
}

int run(Options options) {
  options.rounds =
      static_cast<int>(env::get_int("ONEHOP_CHAOS_ROUNDS", 1, 10'000'000).value_or(options.rounds));
  options.seed = static_cast<std::uint64_t>(env::get_int("ONEHOP_CHAOS_SEED", 0, 1'000'000'000).value_or(1));
  options.limit = seconds{env::get_int("ONEHOP_CHAOS_SECONDS", 30, 86'400).value_or(300)};
  options.ranks = static_cast<int>(env::get_int("ONEHOP_CHAOS_RANKS", 2, kMaxDevices).value_or(0));
  if (options.on_host) {
    if (options.ranks == 0) options.ranks = 4;
  } else {
    options.gpus = testing::shared_gpus();
    if (options.gpus == 0) {
      while (options.gpus < kMaxDevices &&
             testing::gpus_unavailable(options.gpus + 1, testing::Sharing::no).empty())
        ++options.gpus;
    }
    if (options.ranks == 0) options.ranks = std::max(options.gpus, 2);
    if (const std::string missing = testing::forked_gpus_unavailable(options.ranks); !missing.empty()) {
      fmt::print("skipped: {}\n", missing);
      return 0;
    }
    if (options.ranks > options.gpus) (void)::setenv("ONEHOP_ALLOW_OVERLAPPING_DEVICES", "1", 1);
  }
  const rlimit none{};
  (void)::setrlimit(RLIMIT_CORE, &none);  // ranks crash on purpose
  (void)::signal(SIGALRM, out_of_time);
  (void)::alarm(static_cast<unsigned>(options.limit.count()));
  fmt::print("cuda_chaos: {} ranks, seed {}, {} rounds in at most {} s\n", options.ranks, options.seed,
             options.rounds, options.limit.count());
  return Chaos(options).run() ? 0 : 1;
}

}  // namespace
}  // namespace onehop::fault

int main(int argc, char** argv) {
  onehop::fault::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--host") {
      options.on_host = true;
    } else if (argument == "--rounds" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      options.rounds = std::atoi(argv[++i]);
    } else {
      fmt::print("{}", onehop::fault::kUsage);
      return argument == "--help" ? 0 : 2;
    }
  }
  try {
    return onehop::fault::run(options);
  } catch (const std::exception& error) {
    fmt::print("cuda_chaos: {}\n", error.what());
    return 1;
  }
}
