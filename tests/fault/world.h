// SPDX-License-Identifier: Apache-2.0
// Worlds of real processes in which one fault strikes at one named point. Every process reports on a card in
// memory that it shares with the test. So the last words of a killed or stopped process are not lost.
//
// Faults are armed with ONEHOP_FAULT (os/fault_point.h) only in the process that they are to strike. Nothing
// here sleeps to get the timing right: processes wait for each other's events, and faults strike at named
// points.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/onehop.h"

#include "support/sanitizers.h"

namespace onehop::fault {

/// CLOCK_MONOTONIC, comparable between processes.
[[nodiscard]] std::int64_t now_ns();
using testing::kSanitized;

/// One thing that a process tried: how it ended, and when.
struct Attempt {
  enum State : std::uint32_t { not_tried, running, succeeded, failed, broken };

  std::atomic<std::uint32_t> state{not_tried};
  std::int64_t call_began_ns = 0;  ///< the last call of the attempt, which is the one that failed, if any
  std::int64_t ended_ns = 0;
  int code = 0;  ///< of the Error
  int origin = -1;
  char message[1024] = {};
  /// How long this process was ready to run, but not running: in the worst of its calls, and before the first one.
  double starved_ms = 0;
  double starved_before_ms = 0;

  /// Runs `body`; an Error makes the attempt `failed`, any other exception `broken`.
  void run(const std::function<void()>& body);
  /// Called by `body` before each call whose deadline counts from now.
  void begin_call();

  [[nodiscard]] ErrorCode error() const { return static_cast<ErrorCode>(code); }
  [[nodiscard]] std::string text() const { return message; }
  [[nodiscard]] double call_ms() const { return static_cast<double>(ended_ns - call_began_ns) / 1e6; }

 private:
};

struct Card {
  std::atomic<std::int64_t> struck_ns{0};  ///< when the armed fault struck this process
  std::array<Attempt, 32> attempts;
  std::array<double, 8> figures{};  ///< free for the test's use
};

class World {
 public:
  static constexpr int kMaxProcesses = 8;
  static constexpr int kEvents = 8;
  using Body = std::function<void(World&, Rank)>;

  /// Forks `processes` that run `body` and exit.
  World(int processes, const Body& body);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] Card& card(Rank r) const { return board_->cards[static_cast<std::size_t>(r.value)]; }
  [[nodiscard]] pid_t pid(Rank r) const { return board_->pids[static_cast<std::size_t>(r.value)].load(); }

  /// Waits until all processes are gone; false when some had to be killed after `limit`.
  [[nodiscard]] bool finish(Duration limit);
  /// How the process ended: its exit code, or minus the signal that killed it.
  [[nodiscard]] int exit_of(Rank r) const { return exits_[static_cast<std::size_t>(r.value)]; }
  /// How late the machine was: in waking this process while it waited in `finish` or `await`, or in scheduling a
  /// rank during a call of its first attempt. Deadline assertions allow for it.
  [[nodiscard]] double lateness_ms() const;
  /// The same, with all that the ranks have done since they were forked.
  [[nodiscard]] double most_late_ms() const;

  /// Events are counters that all processes of the world see.
  void raise(int event);
  /// False when `event` was not raised `count` times within `limit`.
  [[nodiscard]] bool await(int event, std::uint32_t count, Duration limit);

 private:
  struct Board {
    std::array<Card, kMaxProcesses> cards;
    std::array<std::atomic<pid_t>, kMaxProcesses> pids{};
    std::array<std::atomic<std::uint32_t>, kEvents> events{};
  };

  const int size_;
  Board* board_;
  std::array<int, kMaxProcesses> exits_{};
  std::array<bool, kMaxProcesses> reaped_{};
  double stall_ms_ = 0;
};

/// Arms the fault in this process, which must not have reached any point yet. The card records when the fault
/// strikes.
void arm_fault(const std::string& point, Rank rank, const std::string& action, Card& card);

/// A small and a large (two-shot, several chunks) all-reduce, results checked; a wrong one throws
/// std::logic_error.
void check_all_reduce(Group& group);
/// All pairs at once, in a GroupCall, with more data than is buffered: no rank finishes before all others
/// have moved most of their data.
void check_send_recv(Group& group);
/// Every other collective, with rank 0 as root, and then check_send_recv; runs `before_each` before each
/// call.
void check_other_collectives(
    Group& group, const std::function<void()>& before_each = [] {});

/// The distribution of sorted figures.
struct Spread {
  explicit Spread(std::vector<double> values);
  [[nodiscard]] double at(double quantile) const;
  [[nodiscard]] double max() const { return values.empty() ? 0 : values.back(); }
  std::vector<double> values;
};
/// "what: n=40 p50=12.1 ms p99=30.2 ms max=31.0 ms".
void print_spread(std::string_view what, const Spread& spread);

/// The directories that onehop made for itself under `base`, and everything else there.
[[nodiscard]] std::vector<std::string> entries_of(const std::string& base);

}  // namespace onehop::fault
