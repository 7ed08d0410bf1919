// SPDX-License-Identifier: Apache-2.0
// The processes of the chaos program, as its parent sees them.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gpu/fault/chaos_board.h"

namespace onehop::fault {

/// A process for every seat, and spare ones to replace it: starting one on a GPU takes seconds. All die with
/// this process.
class ChaosProcesses {
 public:
  /// The body of the process in seat `seat`.
  using Body = std::function<void(ChaosBoard&, ChaosSlot&, std::size_t seat)>;

  ChaosProcesses(std::size_t seats, Body body);
  ~ChaosProcesses();
  ChaosProcesses(const ChaosProcesses&) = delete;
  ChaosProcesses& operator=(const ChaosProcesses&) = delete;

  [[nodiscard]] std::size_t seats() const { return seats_.size(); }
  [[nodiscard]] ChaosBoard& board() const { return *board_; }
  [[nodiscard]] ChaosSlot& slot(std::size_t seat) const { return slot_of(seats_[seat]); }
  /// The spare that takes the seat next.
  [[nodiscard]] ChaosSlot& spare(std::size_t seat) const { return slot_of(spares_[seat].front()); }

  /// Waits until every seat has a process that is ready.
  [[nodiscard]] bool fill(Duration limit);
  void send_signal(std::size_t seat, int signal) const;
  /// Kills the process of a seat, if it is not dead, and lets its spare take the seat.
  void replace(std::size_t seat);
  /// Describes the state of a process that did not do its task.
  [[nodiscard]] std::string fate_of(std::size_t seat) const;

  /// Polls every millisecond, and records how late the machine wakes this process.
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
  /// The greatest such delay since the record was last reset.
  [[nodiscard]] double stall_ms() const { return stall_ms_; }
  void forget_stalls() { stall_ms_ = 0; }

 private:
  struct Process {
    pid_t pid = -1;
    int slot = -1;
  };

  [[nodiscard]] Process start(std::size_t seat);
  [[nodiscard]] ChaosSlot& slot_of(const Process& process) const {
    return board_->slots[static_cast<std::size_t>(process.slot)];
  }
  /// Reclaims the slots of processes that are gone: the driver takes its time to release them.
  [[nodiscard]] std::optional<int> free_slot();

  const Body body_;
  ChaosBoard* board_ = nullptr;
  std::array<bool, ChaosBoard::kSlots> taken_{};
  std::vector<Process> seats_;
  std::vector<std::deque<Process>> spares_;
  std::vector<Process> dying_;
  double stall_ms_ = 0;
};

/// Gives a process its next task.
void give(ChaosSlot& slot, const ChaosTask& task);
[[nodiscard]] bool is_done(const ChaosSlot& slot);
[[nodiscard]] bool has_ended(const Attempt& attempt);
/// How far a task came that went wrong: its last attempt.
[[nodiscard]] const Attempt& last_attempt(const ChaosReport& report);

}  // namespace onehop::fault
