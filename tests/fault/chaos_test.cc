// SPDX-License-Identifier: Apache-2.0
// Chaos: ranks that make random calls of every kind are killed, stopped or crash at random times, not at
// named points. In each round:
//   - every survivor's failing call ends in time, with an Error whose origin is a struck rank in the
//     numbering of that call's group, and every call that succeeds has the right result;
//   - the survivors form a group in the same processes and over the same store, and reduce correctly;
//   - a stopped rank that is woken after that finds itself evicted;
//   - the survivors leave no descriptor open, and the next start removes everything that the struck ranks
//     left behind.
//
//   ONEHOP_CHAOS_SEED=N     runs the rounds of that seed (default: a random one, which is printed)
//   ONEHOP_CHAOS_ROUNDS=N   number of rounds (default: as many as take a few seconds)
//   ONEHOP_CHAOS_ROUND=N    only round N of the seed, ONEHOP_CHAOS_ROUNDS times
//   ONEHOP_CHAOS_TOGETHER=N number of concurrent rounds (default: 4)
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>

#include "fault/chaos_calls.h"
#include "fault/chaos_plan.h"
#include "fault/store_server.h"
#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault::chaos_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::TempDir;

constexpr Duration kTimeout{kSanitized ? 4000 : 1500};
/// Clearly before the deadline.
constexpr double kDeathNoticedMs = static_cast<double>(kTimeout.count()) * 2 / 3;

enum Event { kJoined, kAllStruck, kRegrouped };
enum Trial { kLoop, kAfterNarrow, kRegroup };
enum Figure { kNamed, kNamedAfterNarrow, kJoins, kFailedJoining, kFailedJoiningAgain, kNarrow, kLeaked };

int open_descriptors() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

/// One round: starts its ranks, strikes them and checks the outcome.
class Round {
 public:
  Round(const ChaosPlan& plan, std::function<std::shared_ptr<Store>()> store)
      : plan_(plan), store_(std::move(store)) {
    world_.emplace(plan.ranks + plan.newcomers(), [this](World& world, Rank rank) { live(world, rank); });
  }

  /// Strikes, waits for all processes, and returns what went wrong, one line each.
  [[nodiscard]] std::vector<std::string> finish() {
    strike();
    if (!world_->finish(seconds{30})) wrong("a process hung");
    for (Rank r{0}; r.value < plan_.ranks; ++r.value) judge(r);
    for (Rank r{plan_.ranks}; r.value < world_->size(); ++r.value) judge_regroup(r);
    return std::move(wrong_);
  }
  /// The observations of every rank, one line each.
  [[nodiscard]] std::string story() const;
  /// Times from the strike to the Error, for each rank that observed a death.
  [[nodiscard]] const std::vector<double>& detections() const { return detections_; }
  [[nodiscard]] const std::vector<double>& overshoots() const { return overshoots_; }

 private:
  void live(World& world, Rank rank);
  void make_calls(World& world, Rank rank);
  void strike();
  void judge(Rank r);
  void judge_attempt(Rank r, Trial trial);
  void judge_regroup(Rank r);
  [[nodiscard]] bool may_be_named(Rank by, Trial trial, int named) const;
  void wrong(const std::string& what) { wrong_.push_back(what); }
  [[nodiscard]] double figure(int rank, Figure what) const { return world_->card(Rank{rank}).figures[what]; }
  [[nodiscard]] bool failed_joining(Rank r, Trial trial) const {
    return figure(r.value, trial == kLoop ? kFailedJoining : kFailedJoiningAgain) != 0;
  }
  [[nodiscard]] bool holds_store(const Attempt& attempt) const;
  [[nodiscard]] double lateness_ms() const;

  const ChaosPlan& plan_;
  const std::function<std::shared_ptr<Store>()> store_;
  std::optional<World> world_;
  std::int64_t struck_ns_ = 0;  ///< the first strike
  std::vector<std::string> wrong_;
  std::vector<double> detections_;
  std::vector<double> overshoots_;
};

void Round::live(World& world, Rank rank) {
  // A crash must kill the process by its signal, with or without a sanitizer, and leave no core.
  for (const int signal : {SIGSEGV, SIGABRT}) (void)::signal(signal, SIG_DFL);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  (void)::setrlimit(RLIMIT_CORE, &none);

  Card& card = world.card(rank);
  const int before = open_descriptors();
  if (rank.value < plan_.ranks) make_calls(world, rank);
  if (!world.await(kAllStruck, 1, seconds{20})) throw std::logic_error("nobody was struck");
  if (plan_.struck(rank.value)) return;
  card.attempts[kRegroup].run([&] {
    Group group = Group::join(store_(), {.rank = Rank{plan_.next_rank(rank.value)},
                                         .size = plan_.survivors() + plan_.newcomers(),
                                         .timeout = seconds{10},
                                         .name = "survivors",
                                         .scratch_bytes = 1 << 20});
    check_all_reduce(group);
  });
  card.figures[kLeaked] = open_descriptors() - before;
  world.raise(kRegrouped);
}

void Round::make_calls(World& world, Rank rank) {
  Card& card = world.card(rank);
  Trial trial = kLoop;
  std::optional<ChaosRank> caller;
  const auto attempt = [&](Figure named) {
    card.figures[named] = -1;
    card.attempts[trial].run([&] {
      try {
        if (!caller) {
          caller.emplace(plan_, rank, store_(), kTimeout,
                         ChaosRank::Hooks{.before_call = [&] { card.attempts[trial].begin_call(); },
                                          .before_join = [&] { card.figures[kJoins] += 1; },
                                          .joined = [&] { world.raise(kJoined); }});
        }
        caller->run();
      } catch (const Error& error) {
        const Members& members = caller->members();
        const int origin = error.origin().value;
        if (origin >= 0 && origin < static_cast<int>(members.size()))
          card.figures[named] = members[static_cast<std::size_t>(origin)];
        throw Error(error.code(), fmt::format("{}: {}", caller->where(), error.what()), error.origin());
      } catch (const std::exception& error) {
        throw std::logic_error(fmt::format("{}: {}", caller ? caller->where() : "", error.what()));
      }
    });
    if (caller && caller->joining()) card.figures[trial == kLoop ? kFailedJoining : kFailedJoiningAgain] = 1;
  };
  attempt(kNamed);
  // Some other ranks have not heard of that failure: they go on, and so does this rank.
  if (caller && caller->narrow() && card.attempts[kLoop].state.load() == Attempt::failed) {
    card.figures[kNarrow] = 1;
    trial = kAfterNarrow;
    attempt(kNamedAfterNarrow);
  }
}

void Round::strike() {
  if (!plan_.from_start) (void)world_->await(kJoined, static_cast<std::uint32_t>(plan_.ranks), seconds{10});
  std::int64_t when = now_ns();
  for (const Strike& each : plan_.strikes) {
    // The sleep makes the strike random; nothing relies on it for synchronization.
    when += each.after_us * 1000;
    const std::int64_t wait = when - now_ns();
    if (wait > 0) {
      const timespec time{.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
      (void)::nanosleep(&time, nullptr);
    }
    if (struck_ns_ == 0) struck_ns_ = now_ns();
    (void)::kill(world_->pid(Rank{each.rank}), each.signal);
  }
  world_->raise(kAllStruck);
  if (!plan_.stops()) return;
  (void)world_->await(kRegrouped, static_cast<std::uint32_t>(plan_.survivors() + plan_.newcomers()),
                      seconds{20});
  for (const Strike& each : plan_.strikes) {
    if (each.signal == SIGSTOP) (void)::kill(world_->pid(Rank{each.rank}), SIGCONT);
  }
}

double Round::lateness_ms() const {
  double most = world_->lateness_ms();
  for (Rank r{0}; r.value < plan_.ranks; ++r.value) {
    for (const Trial trial : {kLoop, kAfterNarrow})
      most = std::max(most, world_->card(r).attempts[trial].starved_ms);
  }
  return most;
}

/// A rank that is stopped while it holds the lock of a file store keeps the others out of it. The kernel does
/// not tell who holds a lock. So this error names no rank, and no new group can form over this store before
/// that rank wakes.
bool Round::holds_store(const Attempt& attempt) const {
  return plan_.stops() && !plan_.tcp && attempt.state.load() == Attempt::failed &&
         attempt.text().find("another process holds") != std::string::npos;
}

/// Besides the ranks that were struck, an error may name:
/// - a rank that never came to this join, since it had failed before;
/// - no rank, in a sub-group without the struck rank that failed because its parent's split failed on another
///   member. The text says so;
/// - if a rank was stopped, a rank that was delayed by a call of a sub-group or a pair. That call in turn
///   blamed a struck rank.
bool Round::may_be_named(Rank by, Trial trial, int named) const {
  if (holds_store(world_->card(by).attempts[trial])) return true;
  if (named < 0) {
    return world_->card(by).attempts[trial].text().find("in the split that made this group") !=
           std::string::npos;
  }
  if (plan_.struck(named)) return true;
  if (failed_joining(by, trial) && figure(named, kJoins) < figure(by.value, kJoins)) return true;
  return plan_.stops() && figure(named, kNarrow) != 0;
}

void Round::judge_attempt(Rank r, Trial trial) {
  const Attempt& attempt = world_->card(r).attempts[trial];
  const auto complain = [&](const std::string& what) {
    wrong(fmt::format("rank {} {}: [{}, {:.0f} ms, {:.0f} ms after the strike] {}", r.value, what,
                      to_string(attempt.error()), attempt.call_ms(),
                      static_cast<double>(attempt.ended_ns - struck_ns_) / 1e6, attempt.text()));
  };
  if (attempt.state.load() != Attempt::failed) return complain("did not fail with an Error");
  if (attempt.ended_ns < struck_ns_) return complain("failed before the strike");
  const auto named = static_cast<int>(figure(r.value, trial == kLoop ? kNamed : kNamedAfterNarrow));
  if (!may_be_named(r, trial, named)) complain(fmt::format("named rank {}", named));
  if (attempt.text().find('\n') != std::string::npos) complain("did not say it in one line");

  const double after_strike = static_cast<double>(attempt.ended_ns - struck_ns_) / 1e6;
  const double late = attempt.call_ms() - static_cast<double>(kTimeout.count());
  if (late > 100 + lateness_ms()) complain("missed its deadline");
  if (plan_.stops() || failed_joining(r, trial)) {
    if (attempt.error() == ErrorCode::timeout) overshoots_.push_back(late);
    return;
  }
  if (trial == kLoop) detections_.push_back(after_strike);
  if (attempt.error() != ErrorCode::peer_lost) complain("did not see a death");
  if (after_strike > kDeathNoticedMs + lateness_ms()) complain("noticed late");
}

void Round::judge(Rank r) {
  if (!plan_.struck(r.value)) {
    judge_attempt(r, kLoop);
    if (figure(r.value, kNarrow) != 0) judge_attempt(r, kAfterNarrow);
    return judge_regroup(r);
  }
  const auto strike = std::find_if(plan_.strikes.begin(), plan_.strikes.end(),
                                   [&](const Strike& each) { return each.rank == r.value; });
  const int expected = strike->signal == SIGSTOP ? 0 : -strike->signal;
  if (world_->exit_of(r) != expected)
    wrong(fmt::format("struck rank {} ended with {}", r.value, world_->exit_of(r)));
  const Attempt& evicted = world_->card(r).attempts[kLoop];
  if (strike->signal == SIGSTOP && evicted.state.load() != Attempt::failed)
    wrong(fmt::format("stopped rank {} did not find itself evicted: {}", r.value, evicted.text()));
  if (evicted.state.load() == Attempt::broken)
    wrong(fmt::format("struck rank {}: {}", r.value, evicted.text()));
}

void Round::judge_regroup(Rank r) {
  const Attempt& again = world_->card(r).attempts[kRegroup];
  if (again.state.load() != Attempt::succeeded && !holds_store(again))
    wrong(fmt::format("rank {} in the new group: {}", r.value, again.text()));
  if (figure(r.value, kLeaked) != 0)
    wrong(fmt::format("rank {} has {} more descriptors than before", r.value, figure(r.value, kLeaked)));
  if (world_->exit_of(r) != 0) wrong(fmt::format("rank {} ended with {}", r.value, world_->exit_of(r)));
}

std::string Round::story() const {
  std::string lines;
  for (Rank r{0}; r.value < plan_.ranks; ++r.value) {
    for (const Trial trial : {kLoop, kAfterNarrow}) {
      const Attempt& attempt = world_->card(r).attempts[trial];
      if (attempt.state.load() == Attempt::not_tried) continue;
      lines += fmt::format("    rank {}, {:.1f} ms after the strike: {} origin {}: {}\n", r.value,
                           static_cast<double>(attempt.ended_ns - struck_ns_) / 1e6,
                           to_string(attempt.error()), attempt.origin, attempt.text());
    }
  }
  return lines;
}

// --- many rounds ---

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Settings {
  std::uint64_t seed = number_from("ONEHOP_CHAOS_SEED", std::random_device{}());
  std::uint64_t rounds = number_from("ONEHOP_CHAOS_ROUNDS", kSanitized ? 12 : 80);
  std::optional<std::uint64_t> only;
  std::uint64_t together = number_from("ONEHOP_CHAOS_TOGETHER", 4);

  Settings() {
    if (std::getenv("ONEHOP_CHAOS_ROUND") != nullptr) only = number_from("ONEHOP_CHAOS_ROUND", 0);
  }
};

/// The results of one worker's rounds; written to a file, read by the test.
struct Tally {
  std::uint64_t rounds = 0, kills = 0, stops = 0, crashes = 0, survivors = 0, leftovers = 0;
  std::vector<double> detections;
  std::vector<double> overshoots;
  std::vector<std::string> wrong;

  void write(const std::string& path) const {
    std::ofstream file(path);
    file << rounds << ' ' << kills << ' ' << stops << ' ' << crashes << ' ' << survivors << ' ' << leftovers
         << '\n';
    for (const std::vector<double>* list : {&detections, &overshoots}) {
      file << list->size();
      for (const double value : *list) file << ' ' << value;
      file << '\n';
    }
    for (const std::string& line : wrong) file << line << '\n';
  }
  /// False when the file does not exist.
  bool add(const std::string& path) {
    std::ifstream file(path);
    Tally other;
    file >> other.rounds >> other.kills >> other.stops >> other.crashes >> other.survivors >> other.leftovers;
    for (std::vector<double>* list : {&detections, &overshoots}) {
      std::size_t count = 0;
      file >> count;
      double value = 0;
      for (; count > 0 && file >> value; --count) list->push_back(value);
    }
    if (!file) return false;
    rounds += other.rounds;
    kills += other.kills;
    stops += other.stops;
    crashes += other.crashes;
    survivors += other.survivors;
    leftovers += other.leftovers;
    for (std::string line; std::getline(file, line);) {
      if (!line.empty()) wrong.push_back(line);
    }
    return true;
  }
};

/// Entries of the runtime directory, without their contents.
std::vector<std::string> directories_in(const std::string& base) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(base)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Runs rounds `first`, `first + settings.together`, ... one after the other.
Tally run_rounds(const Settings& settings, std::uint64_t first) {
  Tally tally;
  const TempDir runtime;
  (void)::setenv("ONEHOP_RUNTIME_DIR", runtime.path().c_str(), 1);
  std::optional<StoreServer> server;
  std::vector<std::string> left;  // by the previous round
  const auto run = [&](const ChaosPlan& plan) {
    const TempDir dir;
    if (plan.tcp && (!server || tally.rounds % 64 == 0)) server.emplace();
    Round round(plan, [&]() -> std::shared_ptr<Store> {
      if (!plan.tcp) return file_store(dir.path());
      return prefix_store(tcp_store("127.0.0.1", server->port()), std::to_string(tally.rounds));
    });
    std::vector<std::string> wrong = round.finish();
    std::vector<std::string> now = directories_in(runtime.path());
    std::vector<std::string> kept;
    std::vector<std::string> fresh;  // entries that remain have been reported
    std::set_intersection(now.begin(), now.end(), left.begin(), left.end(), std::back_inserter(kept));
    tally.leftovers += kept.size();
    if (!kept.empty())
      wrong.push_back(fmt::format("the start of this round left {} of the last one", kept[0]));
    std::set_difference(now.begin(), now.end(), kept.begin(), kept.end(), std::back_inserter(fresh));
    left = std::move(fresh);

    ++tally.rounds;
    tally.survivors += static_cast<std::uint64_t>(plan.survivors());
    for (const Strike& strike : plan.strikes) {
      ++(strike.signal == SIGKILL ? tally.kills : strike.signal == SIGSTOP ? tally.stops : tally.crashes);
    }
    tally.detections.insert(tally.detections.end(), round.detections().begin(), round.detections().end());
    tally.overshoots.insert(tally.overshoots.end(), round.overshoots().begin(), round.overshoots().end());
    for (const std::string& line : wrong) {
      tally.wrong.push_back(fmt::format("ONEHOP_CHAOS_SEED={} ONEHOP_CHAOS_ROUND={} ({}): {}", plan.seed,
                                        plan.round, plan.text(), line));
      fmt::print(stderr, "{}\n", tally.wrong.back());
    }
    if (!wrong.empty()) fmt::print(stderr, "{}", round.story());
  };
  for (std::uint64_t i = first; i < settings.rounds; i += settings.together)
    run(ChaosPlan(settings.seed, settings.only.value_or(i)));
  // The last start: it finds what the last round left, and no rank dies.
  const TempDir dir;
  World last(2, [&](World& world, Rank rank) {
    world.card(rank).attempts[0].run([&] {
      Group group = Group::join(file_store(dir.path()), {.rank = rank, .size = 2, .timeout = seconds{20}});
      group.barrier();
    });
  });
  if (!last.finish(seconds{30})) tally.wrong.emplace_back("the last start hung");
  const std::vector<std::string> after = directories_in(runtime.path());
  tally.leftovers += after.size();
  if (!after.empty()) tally.wrong.push_back(fmt::format("the last start left {}", after[0]));
  return tally;
}

TEST(Chaos, SurvivorsOfRandomFaultsNameTheStruckRankInTimeAndRegroup) {
  const Settings settings;
  const TempDir results;
  const std::int64_t start = now_ns();
  fmt::print("ONEHOP_CHAOS_SEED={}\n", settings.seed);
  (void)std::fflush(nullptr);
  std::vector<pid_t> workers;
  const pid_t parent = ::getpid();
  const auto file_of = [&](std::size_t worker) { return fmt::format("{}/{}", results.path(), worker); };
  for (std::uint64_t i = 0; i < std::min(settings.together, settings.rounds); ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      end_with_parent(parent);
      try {
        run_rounds(settings, i).write(file_of(i));
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    workers.push_back(pid);
  }
  Tally total;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    int status = 0;
    while (::waitpid(workers[i], &status, 0) < 0 && errno == EINTR) {
    }
    EXPECT_EQ(status, 0) << "a worker of the test ended badly";
    EXPECT_TRUE(total.add(file_of(i)));
  }
  EXPECT_EQ(total.wrong.size(), 0U) << total.wrong.front();  // the workers have printed them all
  const auto count = [&](const char* what) {
    return std::count_if(total.wrong.begin(), total.wrong.end(),
                         [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  fmt::print(
      "chaos: {} rounds ({:.0f} ms each), {} kills, {} stops, {} crashes, {} survivors: {} wrong names, {} "
      "late, "
      "{} leftovers, {} other defects\n",
      total.rounds, static_cast<double>(now_ns() - start) / 1e6 / static_cast<double>(total.rounds),
      total.kills, total.stops, total.crashes, total.survivors, count(" named rank "),
      count(" noticed late") + count(" missed its deadline"), total.leftovers,
      static_cast<std::ptrdiff_t>(total.wrong.size()) - count(" named rank ") - count(" noticed late") -
          count(" missed its deadline") - count(" left "));
  print_spread("chaos, death to Error on each survivor", Spread(total.detections));
  print_spread("chaos, stopped rank: overshoot of the deadline", Spread(total.overshoots));
  EXPECT_EQ(total.rounds, settings.rounds);
}

}  // namespace
}  // namespace onehop::fault::chaos_test
