// Any rank of a group is killed, stopped or crashed at any time, in whatever its group is doing: every
// collective, eager and replayed, signals, allocate, split. A process per GPU; in the end of a round each
// survivor must have thrown an Error that names the rank, in time, must still have its context, and regroups
// with the others, to reduce right. What calls that succeeded have brought is compared.
//
// This process uses no CUDA, so that it can fork others in place of those that died. The next ones are up
// before they are needed, since that takes seconds.
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/env.h"
#include "fault/cuda_chaos_board.h"
#include "fault/cuda_chaos_member.h"
#include "os/futex.h"
#include "support/gpu.h"
#include "support/ranks.h"

namespace onehop::fault {
namespace {

using std::chrono::seconds;

constexpr const char* kUsage =
    R"(cuda_chaos: ranks that are killed, stopped or crash at random times on GPUs

  --rounds N   (default: 100)
  --host       ranks on the host instead, to try the program itself

ONEHOP_CHAOS_ROUNDS (goes before --rounds), ONEHOP_CHAOS_SEED (1), ONEHOP_CHAOS_SECONDS (300: then it ends, whatever
hangs), ONEHOP_CHAOS_RANKS (2..8; default: all GPUs that reach each other). With ONEHOP_TEST_GPUS ranks share so
many GPUs. Same seed, same rounds; where the ranks are when they are struck differs.

Exit code 0: no promise was broken, or skipped where there are not 2 GPUs. 1: one was. 3: out of time.
)";

// The promises, beyond how late the machine itself was.
constexpr double kMostDetectionMs = 250;
constexpr double kMostLateMs = 100;
// What a stopped rank's GPU still has in its queue, so that the others wait for it a little later.
constexpr double kQueuedMs = 100;
constexpr Duration kKillTimeout = seconds{6};  // of groups of which a rank dies: longer than anything takes
constexpr Duration kStartLimit = seconds{40};  // of a process
constexpr Duration kSlack = seconds{8};
constexpr seconds kLastRound{25};  // no round begins later than so long before the end
constexpr std::size_t kMostIncidents = 40;

struct Options {
  bool on_host = false;
  int rounds = 100;
  std::uint64_t seed = 1;
  seconds limit{300};
  int ranks = 0;
  int gpus = 0;
};

enum class Strike { kill, crash, stop };
const char* to_text(Strike strike) {
  constexpr const char* kTexts[] = {"killed", "crashed", "stopped"};
  return kTexts[static_cast<int>(strike)];
}

struct Totals {
  int rounds = 0;
  std::map<Strike, int> strikes;
  int survivors = 0;
  int named = 0;
  int misnamed = 0;
  int late = 0;
  int hung = 0;
  int wrong = 0;  ///< results, and whatever else is no Error
  int contexts_lost = 0;
  int regroups = 0;
  int failed_regroups = 0;
  int failed_joins = 0;
  int evicted = 0;
  int not_evicted = 0;
  std::uint64_t calls = 0;
  std::uint64_t elements = 0;
  std::vector<double> detection_ms;
  std::vector<double> overshoot_ms;
  std::map<std::string, int> misnamed_in;

  [[nodiscard]] bool good() const {
    return misnamed + late + hung + wrong + contexts_lost + failed_regroups + failed_joins + not_evicted == 0;
  }
};

class Chaos {
 public:
  explicit Chaos(const Options& options)
      : options_(options), random_(options.seed), end_(Deadline::after(options.limit)) {
    void* const memory =
        ::mmap(nullptr, sizeof(ChaosBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    board_ = new (memory) ChaosBoard;
    seats_.resize(static_cast<std::size_t>(options.ranks));
    spares_.resize(seats_.size());
  }
  ~Chaos() {
    for (const auto* const processes : {&seats_, &spares_, &dying_}) {
      for (const Process& each : *processes) {
        if (each.pid > 0) (void)::kill(each.pid, SIGKILL);
      }
    }
    (void)await([&] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }, seconds{5});
  }
  Chaos(const Chaos&) = delete;
  Chaos& operator=(const Chaos&) = delete;

  bool run() {
    for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
      seats_[seat] = start(seat);
      spares_[seat] = start(seat);
    }
    while (totals_.rounds < options_.rounds && end_.left() > kLastRound) {
      if (!fill_seats()) {
        report("a process did not start");
        ++totals_.hung;
        break;
      }
      make_round();
      if (totals_.rounds % 25 == 0 && totals_.rounds < options_.rounds) print();
    }
    print();
    for (const std::string& each : incidents_) fmt::print("  {}\n", each);
    return totals_.good() && totals_.rounds > 0;
  }

 private:
  struct Process {
    pid_t pid = -1;
    int slot = -1;
  };
  /// A rank of the round.
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

  // --- processes ---

  Process start(std::size_t seat) {
    Process process;
    for (process.slot = 0; taken_[static_cast<std::size_t>(process.slot)]; ++process.slot) {
    }
    taken_[static_cast<std::size_t>(process.slot)] = true;
    ChaosSlot& slot = *new (&board_->slots[static_cast<std::size_t>(process.slot)]) ChaosSlot;
    (void)std::fflush(nullptr);
    const pid_t parent = ::getpid();
    process.pid = ::fork();
    if (process.pid < 0) throw std::runtime_error("fork failed");
    if (process.pid > 0) return process;
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      const auto place =
          options_.on_host
              ? ChaosPlace::on_host()
              : ChaosPlace::on_gpu(DeviceId{static_cast<int>(seat) % std::max(1, options_.gpus)});
      live_as_member(*board_, slot, *place, options_.ranks, dir_.path());
    } catch (const std::exception& error) {
      fmt::print("seat {}: {}\n", seat, error.what());
      (void)std::fflush(nullptr);
      ::_exit(1);
    }
    ::_exit(0);
  }
  [[nodiscard]] ChaosSlot& slot_of(const Process& process) const {
    return board_->slots[static_cast<std::size_t>(process.slot)];
  }
  /// Kills the process of a seat, if it is not dead, and lets its spare take the seat.
  void replace(std::size_t seat) {
    (void)::kill(seats_[seat].pid, SIGKILL);
    dying_.push_back(seats_[seat]);
    seats_[seat] = spares_[seat];
    spares_[seat] = start(seat);
  }
  /// Takes the slots of processes that are gone. The driver takes its time with them.
  void reap() {
    std::erase_if(dying_, [&](const Process& each) {
      if (::waitpid(each.pid, nullptr, WNOHANG) == 0) return false;
      taken_[static_cast<std::size_t>(each.slot)] = false;
      return true;
    });
  }
  [[nodiscard]] std::optional<int> free_slot() {
    reap();
    const auto* const found = std::find(taken_.begin(), taken_.end(), false);
    if (found == taken_.end()) return std::nullopt;
    return static_cast<int>(found - taken_.begin());
  }
  /// What became of a process that did not do its task.
  [[nodiscard]] static std::string fate_of(const Process& process) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == process.pid)
      return fmt::format("ended by {} {}", info.si_code == CLD_EXITED ? "exit code" : "signal",
                         info.si_status);
    return "hung";
  }
  [[nodiscard]] bool fill_seats() {
    return await(
        [&] {
          return std::all_of(seats_.begin(), seats_.end(),
                             [&](const Process& each) { return slot_of(each).ready.load() != 0; });
        },
        std::min<Duration>(kStartLimit, end_.left()));
  }
  static void give(ChaosSlot& slot, const ChaosTask& task) {
    slot.task = task;
    slot.report.~ChaosReport();
    new (&slot.report) ChaosReport;
    slot.given.fetch_add(1);
    os::futex_wake_all(slot.given);
  }
  static bool is_done(const ChaosSlot& slot) { return slot.done.load() == slot.given.load(); }
  static bool has_ended(const Attempt& attempt) {
    return attempt.state.load() == Attempt::succeeded || attempt.state.load() == Attempt::failed ||
           attempt.state.load() == Attempt::broken;
  }

  /// Looks every millisecond, and notes how late the machine is with that.
  template <class Condition>
  bool await(Condition&& condition, Duration limit) {
    const Deadline deadline = Deadline::after(limit);
    while (!condition()) {
      if (deadline.expired()) return false;
      const std::int64_t before = now_ns();
      (void)::poll(nullptr, 0, 1);
      stall_ms_ = std::max(stall_ms_, static_cast<double>(now_ns() - before) / 1e6 - 1);
    }
    return true;
  }

  // --- a round ---

  Round plan_round() {
    Round round;
    round.number = ++totals_.rounds;
    const std::uint32_t chance = below(100);
    round.strike = chance < 50 ? Strike::kill : chance < 55 ? Strike::crash : Strike::stop;
    round.timeout =
        round.strike == Strike::stop ? Duration{2000 + static_cast<long>(below(1000))} : kKillTimeout;
    // Mostly all GPUs; each rank on any of them.
    std::vector<std::size_t> seats(seats_.size());
    std::iota(seats.begin(), seats.end(), std::size_t{0});
    std::shuffle(seats.begin(), seats.end(), random_);
    const auto most = static_cast<std::uint32_t>(seats.size());
    const std::uint32_t size = below(2) == 0 ? most : 2 + below(most - 1);
    for (std::uint32_t r = 0; r < size; ++r)
      round.members.push_back({.seat = seats[r], .slot = &slot_of(seats_[seats[r]])});
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
      ++totals_.failed_joins;
      return clear(round);
    }
    (void)await([] { return false; }, delay);
    strike(round);
    await_survivors(round);
    board_->heard.store(static_cast<std::uint32_t>(round.number));
    os::futex_wake_all(board_->heard);
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
    if (round.strike != Strike::stop || continued == 3) replace(round.member(round.victim).seat);
  }

  bool await_traffic(const Round& round) {
    const auto failed = [](const Member& each) { return is_done(*each.slot); };
    (void)await(
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
      const Attempt& attempt = has_ended(report.work) ? report.work : report.join;
      this->report(fmt::format("round {}: nothing was struck yet, but seat {}: {}", round.number, each.seat,
                               has_ended(attempt) ? attempt.text() : fate_of(seats_[each.seat])));
    }
    return all;
  }
  /// After a round that went wrong: those that do not end by themselves are replaced.
  void clear(const Round& round) {
    board_->heard.store(static_cast<std::uint32_t>(round.number));
    os::futex_wake_all(board_->heard);
    (void)await(
        [&] {
          return std::all_of(round.members.begin(), round.members.end(),
                             [](const Member& each) { return is_done(*each.slot); });
        },
        2 * round.timeout + kSlack);
    for (const Member& each : round.members) {
      if (!is_done(*each.slot)) replace(each.seat);
    }
  }

  void strike(Round& round) {
    ++totals_.strikes[round.strike];
    stall_ms_ = 0;
    round.struck_ns = now_ns();
    const int signal = round.strike == Strike::kill    ? SIGKILL
                       : round.strike == Strike::crash ? SIGABRT
                                                       : SIGSTOP;
    (void)::kill(seats_[round.member(round.victim).seat].pid, signal);
  }
  void resume(const Round& round) const {
    if (round.strike == Strike::stop) (void)::kill(seats_[round.member(round.victim).seat].pid, SIGCONT);
  }

  void await_survivors(const Round& round) {
    const std::vector<int> survivors = round.survivors();
    (void)await(
        [&] {
          return std::all_of(survivors.begin(), survivors.end(),
                             [&](int rank) { return has_ended(round.member(rank).slot->report.work); });
        },
        2 * round.timeout + kSlack);
  }
  void await_contexts(const Round& round) {
    const std::vector<int> survivors = round.survivors();
    (void)await(
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
    ++totals_.survivors;
    totals_.calls += report.calls;
    totals_.elements += report.elements;
    const std::string who = fmt::format("round {}, rank {} of {}, in {} of {} ms; rank {} was {}",
                                        round.number, rank, round.members.size(), report.step,
                                        report.call_timeout.count(), round.victim, to_text(round.strike));
    if (!has_ended(attempt)) {
      ++totals_.hung;
      this->report(fmt::format("{}: {}", who, fate_of(seats_[member.seat])));
      return replace(member.seat);
    }
    if (attempt.state.load() != Attempt::failed) {
      ++totals_.wrong;
      this->report(fmt::format("{}: {}", who, attempt.text()));
    } else {
      judge_error(round, report, who);
    }
    if (!is_done(*member.slot) || !report.context_usable) {
      ++totals_.contexts_lost;
      this->report(fmt::format("{}: {}", who,
                               is_done(*member.slot) ? "lost its context" : "does not get out of its group"));
      replace(member.seat);
    }
  }

  void judge_error(const Round& round, const ChaosReport& report, const std::string& who) {
    const Attempt& attempt = report.work;
    const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; };
    if (attempt.origin == round.victim) {
      ++totals_.named;
    } else {
      ++totals_.misnamed;
      ++totals_.misnamed_in[report.step];
      this->report(fmt::format("{}: names rank {}: {}", who, attempt.origin, attempt.text()));
    }
    const std::int64_t began = std::max(round.struck_ns, attempt.call_began_ns);
    double late = 0;
    if (round.strike == Strike::stop) {
      // The call's own deadline, or that of the wait on the device.
      const double due =
          std::min(ms(attempt.call_began_ns) + static_cast<double>(report.call_timeout.count()),
                   ms(began) + static_cast<double>(round.timeout.count()) + kQueuedMs);
      late = ms(attempt.ended_ns) - due;
      totals_.overshoot_ms.push_back(late);
      late -= kMostLateMs;
    } else {
      totals_.detection_ms.push_back(ms(attempt.ended_ns - round.struck_ns));
      late = ms(attempt.ended_ns - began) - kMostDetectionMs;
    }
    if (late <= stall_ms_ + attempt.starved_ms) return;
    ++totals_.late;
    this->report(fmt::format("{}: {:.0f} ms later than promised (the machine was {:.0f} ms late): {}", who,
                             late, stall_ms_ + attempt.starved_ms, attempt.text()));
  }

  /// The survivors form a group of their own. `meanwhile` runs when they have begun.
  template <class Meanwhile>
  void regroup(const Round& round, Meanwhile&& meanwhile) {
    std::vector<Member> members;
    for (const int rank : round.survivors()) {
      const Member& member = round.member(rank);
      // Whoever was replaced did not survive.
      if (member.slot == &slot_of(seats_[member.seat])) members.push_back(member);
    }
    // A lone survivor has the spare for company, on the GPU of the one that was struck.
    if (members.size() == 1) {
      const std::size_t seat = round.member(round.victim).seat;
      ChaosSlot& spare = slot_of(spares_[seat]);
      if (await([&] { return spare.ready.load() != 0; }, kStartLimit))
        members.push_back({.seat = seat, .slot = &spare});
    }
    if (members.size() < 2) return meanwhile();
    ++totals_.regroups;
    ChaosTask task;
    task.kind = ChaosTask::regroup;
    task.round = round.number;
    task.size = static_cast<int>(members.size());
    task.seed = random_();
    task.timeout = kKillTimeout;
    for (const Member& each : members) {
      give(*each.slot, task);
      ++task.rank;
    }
    meanwhile();
    const bool done = await(
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
      const Attempt& attempt = has_ended(report.work) ? report.work : report.join;
      this->report(fmt::format("regrouping after round {}, seat {}: {}", round.number, each.seat,
                               has_ended(attempt) ? attempt.text() : fate_of(seats_[each.seat])));
      if (!is_done(*each.slot) && each.slot == &slot_of(seats_[each.seat])) replace(each.seat);
    }
    if (!good) ++totals_.failed_regroups;
  }

  void await_eviction(const Round& round) {
    const Member& member = round.member(round.victim);
    const ChaosReport& report = member.slot->report;
    const bool done = await([&] { return is_done(*member.slot); }, 2 * round.timeout + kSlack);
    if (done && report.work.state.load() == Attempt::failed && report.context_usable) {
      ++totals_.evicted;
      return;
    }
    ++totals_.not_evicted;
    this->report(fmt::format("round {}: rank {} of {} was continued, in {}: {}", round.number, round.victim,
                             round.members.size(), report.step,
                             done ? report.work.text() : fate_of(seats_[member.seat])));
    if (!done) replace(member.seat);
  }

  // --- reporting ---

  void report(const std::string& incident) {
    fmt::print("{}\n", incident);
    (void)std::fflush(stdout);
    if (incidents_.size() < kMostIncidents) incidents_.push_back(incident);
  }

  void print() const {
    const Totals& t = totals_;
    const auto count = [&](Strike strike) {
      const auto found = t.strikes.find(strike);
      return found == t.strikes.end() ? 0 : found->second;
    };
    fmt::print(
        "cuda_chaos: {} rounds of {}, seed {}, {} ranks on {}: {} kills, {} crashes, {} stops; {} survivors, "
        "{} "
        "named the right rank, {} another; {} late, {} hung, {} wrong results, {} contexts lost; {} "
        "regroups, {} "
        "failed; {} failed joins; {} evicted, {} not; {} calls succeeded, {} elements compared; {:.0f} s\n",
        t.rounds, options_.rounds, options_.seed, options_.ranks,
        options_.on_host ? "the host" : fmt::format("{} GPUs", options_.gpus), count(Strike::kill),
        count(Strike::crash), count(Strike::stop), t.survivors, t.named, t.misnamed, t.late, t.hung, t.wrong,
        t.contexts_lost, t.regroups, t.failed_regroups, t.failed_joins, t.evicted, t.not_evicted, t.calls,
        t.elements, std::chrono::duration<double>(options_.limit - end_.left()).count());
    print_spread("kill or crash to Error", Spread(t.detection_ms));
    print_spread("stopped: overshoot of the deadline", Spread(t.overshoot_ms));
    for (const auto& [step, times] : t.misnamed_in)
      fmt::print("  named another rank in {}: {}\n", step, times);
    (void)std::fflush(stdout);
  }

  const Options options_;
  const testing::TempDir dir_;
  std::mt19937_64 random_;
  const Deadline end_;
  ChaosBoard* board_ = nullptr;
  std::array<bool, ChaosBoard::kSlots> taken_{};
  std::vector<Process> seats_;
  std::vector<Process> spares_;
  std::vector<Process> dying_;
  double stall_ms_ = 0;  ///< how late the machine was, since the strike
  Totals totals_;
  std::vector<std::string> incidents_;
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
      while (options.gpus < kMaxDevices && testing::gpus_unavailable(options.gpus + 1).empty())
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
