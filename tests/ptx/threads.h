// SPDX-License-Identifier: Apache-2.0
// What a simulation consists of: kernels, their blocks and threads, and the lanes on which they wait. For interpreter.cc,
// which runs them, and execute.cc, which runs the instructions of one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ptx/interpreter.h"

namespace onehop::ptx {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kBarriers = 16;

struct Simulation::Thread {
  enum class State : std::uint8_t { runnable, at_barrier, in_warp, at_dependency, ended };
  struct Return {
    const Function* function;
    std::uint32_t pc;
    std::uint64_t* frame;
  };

  Block* block = nullptr;
  const Function* function = nullptr;
  std::uint64_t* frame = nullptr;
  std::uint32_t pc = 0;
  unsigned index = 0;
  State state = State::runnable;
  std::size_t runnable_at = 0;
  std::uint32_t moved = 0;  ///< elements of an interrupted load or store that are done, as bits
  // At a barrier, or in an operation of the warp.
  std::uint32_t mask = 0;
  std::uint64_t value = 0;
  unsigned barrier = 0;
  std::int32_t result = -1;
  std::unique_ptr<std::uint64_t[]> stack;
  std::vector<Return> returns;
};

struct Simulation::Block {
  struct Barrier {
    unsigned count = 0;  ///< 0: all threads
    bool vote = true;
    std::vector<Thread*> arrived;
  };
  Kernel* kernel = nullptr;
  unsigned x = 0;
  unsigned y = 0;
  unsigned live = 0;
  bool allows_next = false;
  std::vector<std::byte> shared;
  std::vector<Thread> threads;
  std::array<Barrier, kBarriers> barriers;
  std::uint64_t starts = 0;
};

struct Simulation::Kernel {
  const Function* function = nullptr;
  Grid grid;
  unsigned lane = 0;
  unsigned rank = 0;
  std::uint64_t position = 0;  ///< in the lane
  std::vector<std::byte> memory;
  std::byte* params = nullptr;
  std::deque<Block> blocks;
  unsigned live = 0;       ///< blocks that have not ended
  unsigned unstarted = 0;  ///< blocks
  unsigned holding = 0;    ///< blocks that do not yet allow the next kernel to start
};

struct Simulation::Item {
  enum class Kind : std::uint8_t { kernel, copy, record, wait, call };
  Kind kind{};
  bool started = false;
  std::uint64_t not_before = 0;
  std::unique_ptr<Kernel> kernel{};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<Event> event{};
  std::function<void()> function{};
};

struct Simulation::Lane {
  std::deque<Item> items;
  std::uint64_t done = 0;  ///< items that have completed
};

}  // namespace onehop::ptx
