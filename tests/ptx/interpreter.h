// SPDX-License-Identifier: Apache-2.0
// Runs compiled kernels (module.h) on the CPU, for tests of what they compute and how they wait for each other.
//
// Addresses of kernels are those of this process. Every thread of a kernel has its own program counter; the
// simulation runs one at a time for a random number of instructions. Vector accesses are not atomic, and may be
// interrupted between two elements. Apart from that, memory is sequentially consistent: the simulation finds
// missing waits, not missing fences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ptx/memory.h"
#include "ptx/module.h"

namespace onehop::ptx {

struct Grid {
  unsigned blocks = 1;
  unsigned rows = 1;
  unsigned threads = 1;
  /// May start before the previous kernel of its lane ends, once that one allows it.
  bool dependent = false;
};

/// Lanes run concurrently, each one its own work in order.
class Simulation {
 public:
  struct Options {
    std::uint64_t seed = 1;
    unsigned lanes = 1;
    unsigned lanes_per_rank = 1;
    std::uint64_t stall_steps = 50'000'000;  ///< without any progress, after which the simulation fails
  };
  explicit Simulation(const Options& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Memory& memory() { return memory_; }

  void launch(unsigned lane, const Function& kernel, const Grid& grid, const void* params, std::size_t bytes);
  void copy(unsigned lane, std::byte* to, const std::byte* from, std::size_t bytes);
  /// Completes when all earlier work of the lane has.
  struct Event {
    bool done = false;
  };
  std::shared_ptr<Event> record(unsigned lane);
  void wait_for(unsigned lane, std::shared_ptr<Event> event);
  /// Called when all earlier work of the lane has completed.
  void call(unsigned lane, std::function<void()> function);

  /// Until all lanes are empty. Throws std::runtime_error if a kernel misbehaves, or if nothing moves on.
  void run();
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  struct Thread;
  struct Block;
  struct Kernel;
  struct Item;
  struct Lane;
  struct Pause {};

  [[noreturn]] void fail(const Thread& thread, const std::string& why) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string describe(const Thread& thread);

  void advance_lanes();
  bool advance(Lane& lane);
  void start(Kernel& kernel);
  void execute(Thread& thread, unsigned quantum);
  void make_runnable(Thread& thread);
  void suspend(Thread& thread);
  void end_thread(Thread& thread);
  void end_block(Block& block);
  void arrive(Thread& thread, unsigned id, unsigned count, bool vote, std::int32_t result);
  void release_if_complete(Block& block, unsigned id);
  bool arrive_at(Thread& thread, const Instruction& at, std::uint32_t mask, std::uint64_t value);
  std::uint32_t random(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  Options options_;
  std::mt19937_64 random_;
  Memory memory_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Thread*> runnable_;
  std::vector<std::uint64_t> rank_resumes_;  ///< step before which a rank is slow
  std::map<std::size_t, std::vector<std::unique_ptr<std::uint64_t[]>>> free_stacks_;
  std::uint64_t steps_ = 0;
  std::uint64_t last_progress_ = 0;
};

}  // namespace onehop::ptx
