// SPDX-License-Identifier: Apache-2.0
#include "gpu/fault/chaos_processes.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <stdexcept>
#include <utility>

#include "os/futex.h"

namespace onehop::fault {
namespace {

constexpr int kSpares = 2;                                  // per seat
constexpr Duration kDeathLimit = std::chrono::seconds{20};  // for the death of a process that was killed

}  // namespace

ChaosProcesses::ChaosProcesses(std::size_t seats, Body body) : body_(std::move(body)) {
  void* const memory =
      ::mmap(nullptr, sizeof(ChaosBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  board_ = new (memory) ChaosBoard;
  for (std::size_t seat = 0; seat < seats; ++seat) {
    seats_.push_back(start(seat));
    spares_.emplace_back();
  }
  for (int i = 0; i < kSpares; ++i) {
    for (std::size_t seat = 0; seat < seats; ++seat) spares_[seat].push_back(start(seat));
  }
}

ChaosProcesses::~ChaosProcesses() {
  const auto kill_all = [](const auto& processes) {
    for (const Process& each : processes) (void)::kill(each.pid, SIGKILL);
  };
  kill_all(seats_);
  kill_all(dying_);
  for (const std::deque<Process>& each : spares_) kill_all(each);
  (void)await([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }, kDeathLimit);
  (void)::munmap(board_, sizeof(ChaosBoard));
}

ChaosProcesses::Process ChaosProcesses::start(std::size_t seat) {
  std::optional<int> free;
  if (!await([&] { return (free = free_slot()).has_value(); }, kDeathLimit))
    throw std::runtime_error("processes that were killed do not go away");
  Process process{.slot = *free};
  taken_[static_cast<std::size_t>(process.slot)] = true;
  ChaosSlot& slot = *new (&slot_of(process)) ChaosSlot;
  (void)std::fflush(nullptr);
  const pid_t parent = ::getpid();
  process.pid = ::fork();
  if (process.pid < 0) throw std::runtime_error("fork failed");
  if (process.pid > 0) return process;
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  int code = 0;
  try {
    body_(*board_, slot, seat);
  } catch (const std::exception& error) {
    fmt::print("seat {}: {}\n", seat, error.what());
    code = 1;
  }
  (void)std::fflush(nullptr);
  ::_exit(code);
}

std::optional<int> ChaosProcesses::free_slot() {
  std::erase_if(dying_, [&](const Process& each) {
    if (::waitpid(each.pid, nullptr, WNOHANG) == 0) return false;
    taken_[static_cast<std::size_t>(each.slot)] = false;
    return true;
  });
  const auto* const found = std::find(taken_.begin(), taken_.end(), false);
  if (found == taken_.end()) return std::nullopt;
  return static_cast<int>(found - taken_.begin());
}

bool ChaosProcesses::fill(Duration limit) {
  return await(
      [&] {
        return std::all_of(seats_.begin(), seats_.end(),
                           [&](const Process& each) { return slot_of(each).ready.load() != 0; });
      },
      limit);
}

void ChaosProcesses::send_signal(std::size_t seat, int signal) const {
  (void)::kill(seats_[seat].pid, signal);
}

void ChaosProcesses::replace(std::size_t seat) {
  send_signal(seat, SIGKILL);
  dying_.push_back(seats_[seat]);
  seats_[seat] = spares_[seat].front();
  spares_[seat].pop_front();
  spares_[seat].push_back(start(seat));
}

std::string ChaosProcesses::fate_of(std::size_t seat) const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(seats_[seat].pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == seats_[seat].pid)
    return fmt::format("ended by {} {}", info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
  return "hung";
}

void give(ChaosSlot& slot, const ChaosTask& task) {
  slot.task = task;
  slot.report.~ChaosReport();
  new (&slot.report) ChaosReport;
  slot.given.fetch_add(1);
  os::futex_wake_all(slot.given);
}

bool is_done(const ChaosSlot& slot) {
  return slot.done.load() == slot.given.load();
}

bool has_ended(const Attempt& attempt) {
  const auto state = attempt.state.load();
  return state == Attempt::succeeded || state == Attempt::failed || state == Attempt::broken;
}

const Attempt& last_attempt(const ChaosReport& report) {
  return has_ended(report.work) ? report.work : report.join;
}

}  // namespace onehop::fault
