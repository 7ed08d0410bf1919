// SPDX-License-Identifier: Apache-2.0
#include "fault/world.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/deadline.h"
#include "os/fault_point.h"
#include "os/futex.h"

namespace onehop::fault {
namespace {

// The library checks once, when it is loaded, whether faults are armed at all; forked ranks arm theirs later.
__attribute__((constructor(101))) void arm_faults_at_all() {
  (void)::setenv("ONEHOP_FAULT", "nowhere:-1:none", 1);
}

// Stores and sockets of these tests lie in memory. A disk that writes out what a build left may block for longer
// than the deadlines that ranks must meet here.
__attribute__((constructor(101))) void use_files_in_memory() {
  constexpr const char* kMemory = "/dev/shm";
  if (::access(kMemory, W_OK) == 0) (void)::setenv("TMPDIR", kMemory, 0);
}

Card* g_own_card = nullptr;
double g_starved_ms = 0;  // by the last look of this process

/// How long this (single-threaded) process was ready to run without getting a processor; 0 if the kernel does
/// not tell.
double starved_so_far_ms() {
  std::ifstream file("/proc/self/schedstat");
  double running = 0;
  double waiting = 0;
  file >> running >> waiting;
  return waiting / 1e6;
}

double starved_since_last_look_ms() {
  const double now = starved_so_far_ms();
  return now - std::exchange(g_starved_ms, now);
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Attempt::begin_call() {
  starved_ms = std::max(starved_ms, starved_since_last_look_ms());
  call_began_ns = now_ns();
}

void Attempt::run(const std::function<void()>& body) {
  State outcome = succeeded;
  state.store(running);
  starved_before_ms = starved_since_last_look_ms();
  begin_call();
  const auto end_call = [this] {
    ended_ns = now_ns();
    starved_ms = std::max(starved_ms, starved_since_last_look_ms());
  };
  try {
    body();
    end_call();
  } catch (const Error& error) {
    end_call();
    code = static_cast<int>(error.code());
    origin = error.origin().value;
    std::snprintf(message, sizeof message, "%s", error.what());
    outcome = failed;
  } catch (const std::exception& other) {
    end_call();
    std::snprintf(message, sizeof message, "%s", other.what());
    outcome = broken;
  }
  state.store(outcome);
}

World::World(int processes, const Body& body) : size_(processes) {
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  board_ = new (memory) Board;
  (void)std::fflush(nullptr);
  for (Rank r{0}; r.value < size_; ++r.value) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      board_->pids[static_cast<std::size_t>(r.value)].store(::getpid());
      g_own_card = &card(r);
      g_starved_ms = 0;
      int code = 0;
      try {
        body(*this, r);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", r.value, e.what());
        code = 1;
      }
      (void)std::fflush(nullptr);
      // No static destructors: the test's environment is not this process's.
      ::_exit(code);
    }
    board_->pids[static_cast<std::size_t>(r.value)].store(pid);
  }
}

World::~World() {
  (void)finish(Duration{0});
  (void)::munmap(board_, sizeof(Board));
}

bool World::finish(Duration limit) {
  const Deadline deadline = Deadline::after(limit);
  bool in_time = true;
  while (true) {
    int alive = 0;
    for (Rank r{0}; r.value < size_; ++r.value) {
      const auto i = static_cast<std::size_t>(r.value);
      if (reaped_[i]) continue;
      int status = 0;
      if (::waitpid(pid(r), &status, WNOHANG) == pid(r)) {
        reaped_[i] = true;
        exits_[i] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        continue;
      }
      ++alive;
      if (deadline.expired()) {
        in_time = false;
        (void)::kill(pid(r), SIGKILL);
      }
    }
    if (alive == 0) return in_time;
    const std::int64_t before = now_ns();
    (void)::poll(nullptr, 0, 2);
    stall_ms_ = std::max(stall_ms_, static_cast<double>(now_ns() - before) / 1e6 - 2);
  }
}

double World::lateness_ms() const {
  double most = stall_ms_;
  for (Rank r{0}; r.value < size_; ++r.value) most = std::max(most, card(r).attempts[0].starved_ms);
  return most;
}

double World::most_late_ms() const {
  double most = stall_ms_;
  for (Rank r{0}; r.value < size_; ++r.value) {
    for (const Attempt& each : card(r).attempts)
      most = std::max({most, each.starved_ms, each.starved_before_ms});
  }
  return most;
}

void World::raise(int event) {
  std::atomic<std::uint32_t>& word = board_->events[static_cast<std::size_t>(event)];
  word.fetch_add(1);
  os::futex_wake_all(word);
}

bool World::await(int event, std::uint32_t count, Duration limit) {
  std::atomic<std::uint32_t>& word = board_->events[static_cast<std::size_t>(event)];
  const Deadline deadline = Deadline::after(limit);
  while (true) {
    const std::uint32_t now = word.load();
    if (now >= count) return true;
    if (deadline.expired()) return false;
    const Duration slice = std::min(deadline.left(), Duration{20});
    const std::int64_t before = now_ns();
    os::futex_wait(word, now, slice);
    if (word.load() == now) {
      const double waited = static_cast<double>(now_ns() - before) / 1e6;
      stall_ms_ = std::max(stall_ms_, waited - static_cast<double>(slice.count()));
    }
  }
}

void arm_fault(const std::string& point, Rank rank, const std::string& action, Card& card) {
  (void)::setenv("ONEHOP_FAULT", fmt::format("{}:{}:{}", point, rank.value, action).c_str(), 1);
  g_own_card = &card;
  os::detail::g_before_fault = [] { g_own_card->struck_ns.store(now_ns()); };
}

void check_all_reduce(Group& group) {
  const int n = group.size();
  for (const std::size_t count : {std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<float> data(count, static_cast<float>(group.rank().value + 1));
    all_reduce(group, std::span(data));
    const auto expected = static_cast<float>(n * (n + 1) / 2);
    if (!std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; })) {
      throw std::logic_error(fmt::format("all_reduce of {} floats succeeded with a wrong result", count));
    }
  }
}

void check_send_recv(Group& group) {
  const auto n = static_cast<std::size_t>(group.size());
  const std::size_t count = 100'000;
  const std::vector<int> in(count, group.rank().value + 1);
  std::vector<int> out(n * count);
  GroupCall scope;
  for (std::size_t r = 0; r < n; ++r) {
    const Rank peer{static_cast<int>(r)};
    (void)send(group, in.data(), count, DType::i32, peer);
    (void)recv(group, out.data() + r * count, count, DType::i32, peer);
  }
  scope.end();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != static_cast<int>(i / count) + 1)
      throw std::logic_error("send and recv succeeded with a wrong result");
  }
}

void check_other_collectives(Group& group, const std::function<void()>& before_each) {
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank().value);
  const Rank root{0};
  // The value in rank r's block for rank b.
  const auto value = [](std::size_t r, std::size_t b) { return static_cast<std::uint32_t>(100 * r + b + 1); };
  const auto sum = [&](std::size_t b) {
    std::uint32_t total = 0;
    for (std::size_t r = 0; r < n; ++r) total += value(r, b);
    return total;
  };
  for (const std::size_t count : {std::size_t{300}, std::size_t{20'000}}) {
    std::vector<std::uint32_t> in;
    std::vector<std::size_t> offsets;
    for (std::size_t b = 0; b < n; ++b) {
      in.insert(in.end(), count, value(me, b));
      offsets.push_back(b * count);
    }
    const std::vector<std::size_t> counts(n, count);
    std::vector<std::uint32_t> out(n * count);
    const auto expect = [&](const char* what, std::size_t blocks, auto&& element) {
      for (std::size_t i = 0; i < blocks * count; ++i) {
        if (out[i] != element(i / count))
          throw std::logic_error(fmt::format("{} of {} succeeded with a wrong result", what, count));
      }
    };
    const DType type = DType::u32;
    before_each();
    (void)all_gather(group, in.data(), out.data(), count, type);
    expect("all_gather", n, [&](std::size_t r) { return value(r, 0); });
    before_each();
    (void)reduce_scatter(group, in.data(), out.data(), count, type);
    expect("reduce_scatter", 1, [&](std::size_t) { return sum(me); });
    before_each();
    (void)broadcast(group, in.data(), out.data(), count, type, root);
    expect("broadcast", 1, [&](std::size_t) { return value(0, 0); });
    before_each();
    (void)reduce(group, in.data(), out.data(), count, type, ReduceOp::sum, root);
    if (group.rank() == root) expect("reduce", 1, [&](std::size_t) { return sum(0); });
    before_each();
    (void)all_to_all(group, in.data(), out.data(), count, type);
    expect("all_to_all", n, [&](std::size_t r) { return value(r, me); });
    const Blocks blocks{.counts = counts, .offsets = offsets};
    std::fill(out.begin(), out.end(), 0);
    before_each();
    (void)all_to_all_v(group, in.data(), blocks, out.data(), blocks, type);
    expect("all_to_all_v", n, [&](std::size_t r) { return value(r, me); });
    before_each();
    (void)gather(group, in.data(), out.data(), count, type, root);
    if (group.rank() == root) expect("gather", n, [&](std::size_t r) { return value(r, 0); });
    before_each();
    (void)scatter(group, in.data(), out.data(), count, type, root);
    expect("scatter", 1, [&](std::size_t) { return value(0, me); });
  }
  before_each();
  check_send_recv(group);
  before_each();
  group.barrier();
}

Spread::Spread(std::vector<double> unsorted) : values(std::move(unsorted)) {
  std::sort(values.begin(), values.end());
}

double Spread::at(double quantile) const {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

void print_spread(std::string_view what, const Spread& spread) {
  fmt::print("{}: n={} p50={:.1f} ms p99={:.1f} ms max={:.1f} ms\n", what, spread.values.size(),
             spread.at(0.5), spread.at(0.99), spread.max());
}

std::vector<std::string> entries_of(const std::string& base) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(base)) {
    names.push_back(std::filesystem::relative(entry.path(), base).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace onehop::fault
