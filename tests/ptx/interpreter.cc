// SPDX-License-Identifier: Apache-2.0
#include "ptx/interpreter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ptx/threads.h"

namespace onehop::ptx {

Simulation::Simulation(const Options& options)
    : options_(options), random_(options.seed), rank_resumes_(options.lanes / options.lanes_per_rank) {
  for (unsigned i = 0; i < options.lanes; ++i) lanes_.push_back(std::make_unique<Lane>());
}

Simulation::~Simulation() = default;

void Simulation::launch(unsigned lane, const Function& kernel, const Grid& grid, const void* params,
                        std::size_t bytes) {
  if (bytes < kernel.param_bytes)
    throw std::runtime_error(
        fmt::format("{} takes {} bytes of parameters, not {}", kernel.name, kernel.param_bytes, bytes));
  if (grid.threads > kernel.max_threads)
    throw std::runtime_error(
        fmt::format("{} has {} threads, more than {}", kernel.name, grid.threads, kernel.max_threads));
  Item item{.kind = Item::Kind::kernel};
  item.kernel = std::make_unique<Kernel>();
  Kernel& made = *item.kernel;
  made.function = &kernel;
  made.grid = grid;
  made.lane = lane;
  made.rank = lane / options_.lanes_per_rank;
  made.memory.resize(kernel.param_bytes + 64);
  made.params = made.memory.data() + (64 - reinterpret_cast<std::uintptr_t>(made.memory.data()) % 64);
  std::memcpy(made.params, params, kernel.param_bytes);
  made.position = lanes_[lane]->done + lanes_[lane]->items.size();
  lanes_[lane]->items.push_back(std::move(item));
}

void Simulation::copy(unsigned lane, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  memory_.check(reinterpret_cast<std::uintptr_t>(to), bytes, 1, true);
  memory_.check(reinterpret_cast<std::uintptr_t>(from), bytes, 1, false);
  lanes_[lane]->items.push_back({.kind = Item::Kind::copy, .to = to, .from = from, .bytes = bytes});
}

std::shared_ptr<Simulation::Event> Simulation::record(unsigned lane) {
  auto event = std::make_shared<Event>();
  lanes_[lane]->items.push_back({.kind = Item::Kind::record, .event = event});
  return event;
}

void Simulation::wait_for(unsigned lane, std::shared_ptr<Event> event) {
  lanes_[lane]->items.push_back({.kind = Item::Kind::wait, .event = std::move(event)});
}

void Simulation::call(unsigned lane, std::function<void()> function) {
  lanes_[lane]->items.push_back({.kind = Item::Kind::call, .function = std::move(function)});
}

std::string Simulation::describe(const Thread& thread) {
  const Kernel& kernel = *thread.block->kernel;
  return fmt::format(
      "rank {}, {} ({}), block {},{}, thread {}: {} line {}", kernel.rank, kernel.function->name,
      kernel.position, thread.block->x, thread.block->y, thread.index, thread.function->name,
      thread.function->lines[std::min<std::size_t>(thread.pc, thread.function->lines.size() - 1)]);
}

void Simulation::fail(const Thread& thread, const std::string& why) const {
  throw std::runtime_error(fmt::format("{}: {}", describe(thread), why));
}

std::string Simulation::describe() const {
  std::map<std::string, unsigned> places;
  std::string text;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (!lanes_[l]->items.empty())
      text += fmt::format("lane {}: {} done, {} left\n", l, lanes_[l]->done, lanes_[l]->items.size());
    for (const Item& item : lanes_[l]->items) {
      if (item.kind != Item::Kind::kernel || !item.started) continue;
      for (const Block& block : item.kernel->blocks) {
        for (const Thread& thread : block.threads) {
          if (thread.state == Thread::State::ended) continue;
          ++places[fmt::format("rank {} {} ({}) block {},{} {} line {} state {} warp {}", item.kernel->rank,
                               item.kernel->function->name, item.kernel->position, block.x, block.y,
                               thread.function->name, thread.function->lines[thread.pc],
                               static_cast<int>(thread.state), thread.index / kWarp)];
        }
      }
    }
  }
  for (const auto& [place, count] : places) text += fmt::format("  {} threads: {}\n", count, place);
  return text;
}

void Simulation::make_runnable(Thread& thread) {
  thread.state = Thread::State::runnable;
  thread.runnable_at = runnable_.size();
  runnable_.push_back(&thread);
}

void Simulation::suspend(Thread& thread) {
  runnable_[thread.runnable_at] = runnable_.back();
  runnable_[thread.runnable_at]->runnable_at = thread.runnable_at;
  runnable_.pop_back();
}

void Simulation::start(Kernel& kernel) {
  const Function& function = *kernel.function;
  kernel.live = kernel.holding = kernel.grid.blocks * kernel.grid.rows;
  for (unsigned y = 0; y < kernel.grid.rows; ++y) {
    for (unsigned x = 0; x < kernel.grid.blocks; ++x) {
      Block& block = kernel.blocks.emplace_back();
      block.kernel = &kernel;
      block.x = x;
      block.y = y;
      block.live = kernel.grid.threads;
      block.shared.resize(function.shared_bytes, std::byte{0xa5});
      block.threads.resize(kernel.grid.threads);
      // Some blocks start late.
      if (random(4) == 0) block.starts = steps_ + random(200'000);
      for (unsigned i = 0; i < kernel.grid.threads; ++i) {
        Thread& thread = block.threads[i];
        thread.block = &block;
        thread.index = i;
        thread.function = &function;
        auto& stacks = free_stacks_[function.stack_words];
        if (stacks.empty()) {
          thread.stack.reset(new std::uint64_t[function.stack_words]);
        } else {
          thread.stack = std::move(stacks.back());
          stacks.pop_back();
        }
        thread.frame = thread.stack.get();
        make_runnable(thread);
      }
    }
  }
}

void Simulation::end_thread(Thread& thread) {
  thread.state = Thread::State::ended;
  suspend(thread);
  last_progress_ = steps_;
  free_stacks_[thread.block->kernel->function->stack_words].push_back(std::move(thread.stack));
  Block& block = *thread.block;
  if (--block.live == 0) return end_block(block);
  for (unsigned id = 0; id < kBarriers; ++id) {
    if (!block.barriers[id].arrived.empty()) release_if_complete(block, id);
  }
}

void Simulation::end_block(Block& block) {
  Kernel& kernel = *block.kernel;
  if (!block.allows_next) --kernel.holding;
  block.allows_next = true;
  --kernel.live;
}

void Simulation::arrive(Thread& thread, unsigned id, unsigned count, bool vote, std::int32_t result) {
  if (id >= kBarriers) fail(thread, "no such barrier");
  Block& block = *thread.block;
  Block::Barrier& barrier = block.barriers[id];
  if (barrier.arrived.empty()) {
    barrier.count = count;
    barrier.vote = true;
  } else if (barrier.count != count) {
    fail(thread, fmt::format("barrier {} of {} threads; others wait for {}", id, count, barrier.count));
  }
  if (count % kWarp != 0) fail(thread, "a barrier of a part of a warp");
  barrier.vote = barrier.vote && vote;
  barrier.arrived.push_back(&thread);
  thread.state = Thread::State::at_barrier;
  thread.result = result;
  thread.barrier = id;
  suspend(thread);
  release_if_complete(block, id);
}

void Simulation::release_if_complete(Block& block, unsigned id) {
  Block::Barrier& barrier = block.barriers[id];
  const unsigned expected = barrier.count == 0 ? block.live : barrier.count;
  if (barrier.arrived.size() < expected) return;
  last_progress_ = steps_;
  const std::vector<Thread*> arrived = std::exchange(barrier.arrived, {});
  for (Thread* const thread : arrived) {
    if (thread->result >= 0) thread->frame[thread->result] = barrier.vote ? 1 : 0;
    ++thread->pc;
    make_runnable(*thread);
  }
}

/// Operations of several lanes of a warp. Returns whether this thread was the last one; then it has completed
/// the operation for all.
bool Simulation::arrive_at(Thread& thread, const Instruction& at, std::uint32_t mask, std::uint64_t value) {
  Block& block = *thread.block;
  const unsigned warp = thread.index / kWarp * kWarp;
  const unsigned lane = thread.index % kWarp;
  if ((mask >> lane & 1) == 0) fail(thread, "the mask lacks the own lane");
  thread.mask = mask;
  thread.value = value;
  thread.state = Thread::State::in_warp;
  suspend(thread);
  std::array<Thread*, kWarp> lanes{};
  for (unsigned i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1) == 0 || warp + i >= block.threads.size()) continue;
    Thread& other = block.threads[warp + i];
    if (other.state == Thread::State::ended) fail(thread, fmt::format("lane {} of the mask has ended", i));
    if (other.state != Thread::State::in_warp) return false;
    if (other.mask != mask) return false;
    const Op op = other.function->code[other.pc].op;
    if (op != at.op) return false;
    if (at.op != Op::bar_warp && (other.function != thread.function || other.pc != thread.pc))
      fail(thread, "lanes of one mask are in different instructions: " + describe(other));
    lanes[i] = &other;
  }
  bool all = true;
  bool any = false;
  for (Thread* const each : lanes) {
    if (each == nullptr) continue;
    all = all && (each->value & 1) != 0;
    any = any || (each->value & 1) != 0;
  }
  std::array<std::uint64_t, kWarp> results{};
  for (unsigned i = 0; i < kWarp && at.op == Op::shfl_idx; ++i) {
    if (lanes[i] == nullptr) continue;
    const Instruction& code = lanes[i]->function->code[lanes[i]->pc];
    const auto get = [&](Operand o) {
      return o >= 0 ? lanes[i]->frame[o] : lanes[i]->function->constants[static_cast<std::size_t>(~o)];
    };
    const auto c = static_cast<std::uint32_t>(get(code.c));
    const std::uint32_t segment = c >> 8 & 0x1f;
    const std::uint32_t last = (i & segment) | (c & 0x1f & ~segment);
    std::uint32_t from = (i & segment) | (static_cast<std::uint32_t>(get(code.b)) & 0x1f & ~segment);
    const bool in_range = from <= last;
    if (!in_range) from = i;
    if (lanes[from] == nullptr) fail(thread, "a value of a lane outside of the mask");
    results[i] = lanes[from]->value;
    if (code.d[1] >= 0) lanes[i]->frame[code.d[1]] = in_range ? 1 : 0;
  }
  for (unsigned i = 0; i < kWarp; ++i) {
    if (lanes[i] == nullptr) continue;
    const Instruction& code = lanes[i]->function->code[lanes[i]->pc];
    if (at.op == Op::shfl_idx) lanes[i]->frame[code.d[0]] = static_cast<std::uint32_t>(results[i]);
    if (at.op == Op::vote_all) lanes[i]->frame[code.d[0]] = all ? 1 : 0;
    if (at.op == Op::vote_any) lanes[i]->frame[code.d[0]] = any ? 1 : 0;
    ++lanes[i]->pc;
    make_runnable(*lanes[i]);
  }
  return true;
}

/// Returns whether anything has changed.
bool Simulation::advance(Lane& lane) {
  bool moved = false;
  while (!lane.items.empty()) {
    Item& item = lane.items.front();
    if (!item.started && item.not_before == 0) {
      item.not_before = steps_ + (random(3) == 0 ? random(300'000) : random(2000)) + 1;
    }
    if (!item.started && steps_ < item.not_before) return moved;
    if (item.kind == Item::Kind::kernel) {
      if (!item.started) {
        item.started = moved = true;
        start(*item.kernel);
      }
      // The following one may start early.
      std::size_t next = 1;
      while (next < lane.items.size() && lane.items[next - 1].started &&
             lane.items[next - 1].kernel->holding == 0 && lane.items[next].kind == Item::Kind::kernel &&
             lane.items[next].kernel->grid.dependent) {
        Item& following = lane.items[next];
        if (following.started) {
          ++next;
          continue;
        }
        if (random(2) == 0) break;
        following.started = moved = true;
        start(*following.kernel);
      }
      if (item.kernel->live != 0) return moved;
    } else if (item.kind == Item::Kind::copy) {
      item.started = true;
      const std::size_t bytes = std::min<std::size_t>(item.bytes, 1 + random(1 << (4 + random(14))));
      std::memcpy(item.to, item.from, bytes);
      item.to += bytes;
      item.from += bytes;
      item.bytes -= bytes;
      last_progress_ = steps_;
      if (item.bytes != 0) return true;
    } else if (item.kind == Item::Kind::record) {
      item.event->done = true;
    } else if (item.kind == Item::Kind::call) {
      item.function();
    } else if (!item.event->done) {
      return moved;
    }
    lane.items.pop_front();
    ++lane.done;
    moved = true;
    last_progress_ = steps_;
    // Threads of the kernel that has started early wait for this.
    if (!lane.items.empty() && lane.items.front().started) {
      for (Block& block : lane.items.front().kernel->blocks) {
        for (Thread& thread : block.threads) {
          if (thread.state == Thread::State::at_dependency) make_runnable(thread);
        }
      }
    }
  }
  return moved;
}

void Simulation::advance_lanes() {
  for (const auto& lane : lanes_) (void)advance(*lane);
}

void Simulation::run() {
  const auto left = [&] {
    return std::ranges::any_of(lanes_, [](const auto& lane) { return !lane->items.empty(); });
  };
  last_progress_ = steps_;
  std::uint64_t next_lanes = 0;
  std::uint64_t next_delay = 0;
  while (left()) {
    if (runnable_.empty() || steps_ >= next_lanes) {
      advance_lanes();
      next_lanes = steps_ + random(4000);
    }
    if (steps_ - last_progress_ > options_.stall_steps)
      throw std::runtime_error("no progress:\n" + describe());
    if (runnable_.empty()) {
      steps_ += 100;
      continue;
    }
    if (steps_ >= next_delay) {
      // One rank at a time is slow.
      rank_resumes_[random(static_cast<std::uint32_t>(rank_resumes_.size()))] = steps_ + random(400'000);
      next_delay = steps_ + random(600'000);
    }
    Thread* thread = runnable_[random(static_cast<std::uint32_t>(runnable_.size()))];
    if ((rank_resumes_[thread->block->kernel->rank] > steps_ || thread->block->starts > steps_) &&
        random(64) != 0) {
      steps_ += 4;
      continue;
    }
    static constexpr std::array<unsigned, 8> kQuanta = {1, 3, 10, 30, 60, 100, 200, 400};
    execute(*thread, kQuanta[random(8)]);
  }
}

}  // namespace onehop::ptx
