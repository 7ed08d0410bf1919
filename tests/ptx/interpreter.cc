// SPDX-License-Identifier: Apache-2.0
#include "ptx/interpreter.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace onehop::ptx {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kBarriers = 16;

std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7fffffff : std::bit_cast<std::uint32_t>(value);
}
float f32(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}
double f64(std::uint64_t bits) {
  return std::bit_cast<double>(bits);
}
std::int32_t s32(std::uint64_t bits) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
}
std::uint32_t u32(std::uint64_t bits) {
  return static_cast<std::uint32_t>(bits);
}

/// min.NaN and max.NaN: -0 is less than +0.
std::uint32_t min_nan(float a, float b, bool max) {
  if (std::isnan(a) || std::isnan(b)) return 0x7fffffff;
  if (a == b) return bits_of(std::signbit(a) == max ? b : a);
  return bits_of((a < b) == max ? b : a);
}

std::uint32_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

std::uint32_t to_f16(float value) {
  if (std::isnan(value)) return 0x7fff;
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

std::uint64_t insert_bits(std::uint64_t a, std::uint64_t b, std::uint64_t position, std::uint64_t length,
                          unsigned width) {
  position &= 0xff;
  length &= 0xff;
  if (position >= width || length == 0) return b;
  const std::uint64_t ones = length >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << length) - 1;
  const std::uint64_t mask = ones << position;
  const std::uint64_t result = (b & ~mask) | (a << position & mask);
  return width == 32 ? u32(result) : result;
}

std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t select) {
  const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = select >> (4 * i) & 0xf;
    auto byte = static_cast<std::uint32_t>(both >> (8 * (choice & 7)) & 0xff);
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

std::uint64_t load_bytes(const void* at, unsigned width) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, width);
  return value;
}

}  // namespace

void Memory::add(const void* data, std::size_t bytes, bool writable, std::string name) {
  regions_[reinterpret_cast<std::uintptr_t>(data)] = {bytes, writable, std::move(name)};
  last_bytes_ = 0;
}

void Memory::remove(const void* data) {
  regions_.erase(reinterpret_cast<std::uintptr_t>(data));
  last_bytes_ = 0;
}

std::uint64_t Memory::visits(const void* data) const {
  return regions_.at(reinterpret_cast<std::uintptr_t>(data)).visits;
}

void Memory::look_up(std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) const {
  const char* const what = writes ? "write" : "read";
  if (at % width != 0)
    throw std::runtime_error(fmt::format("misaligned {} of {} bytes at {:#x}", what, width, at));
  auto next = regions_.upper_bound(at);
  if (next != regions_.begin()) {
    const auto& [begin, region] = *std::prev(next);
    if (at - begin < region.bytes && at + bytes <= begin + region.bytes) {
      if (writes && !region.writable)
        throw std::runtime_error(fmt::format("write to byte {} of {}", at - begin, region.name));
      ++region.visits;
      last_begin_ = begin;
      last_bytes_ = region.bytes;
      last_writable_ = region.writable;
      return;
    }
  }
  std::string near;
  if (next != regions_.begin()) {
    const auto& [begin, region] = *std::prev(next);
    near = fmt::format("; {} bytes after the end of {}", at - begin - region.bytes, region.name);
  }
  if (next != regions_.end())
    near += fmt::format("; {} bytes before {}", next->first - at, next->second.name);
  throw std::runtime_error(
      fmt::format("{} of {} bytes at {:#x}, which is nobody's memory{}", what, bytes, at, near));
}

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
    const auto c = u32(get(code.c));
    const std::uint32_t segment = c >> 8 & 0x1f;
    const std::uint32_t last = (i & segment) | (c & 0x1f & ~segment);
    std::uint32_t from = (i & segment) | (u32(get(code.b)) & 0x1f & ~segment);
    const bool in_range = from <= last;
    if (!in_range) from = i;
    if (lanes[from] == nullptr) fail(thread, "a value of a lane outside of the mask");
    results[i] = lanes[from]->value;
    if (code.d[1] >= 0) lanes[i]->frame[code.d[1]] = in_range ? 1 : 0;
  }
  for (unsigned i = 0; i < kWarp; ++i) {
    if (lanes[i] == nullptr) continue;
    const Instruction& code = lanes[i]->function->code[lanes[i]->pc];
    if (at.op == Op::shfl_idx) lanes[i]->frame[code.d[0]] = u32(results[i]);
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

void Simulation::execute(Thread& t, unsigned quantum) {
  const Function* function = t.function;
  const Instruction* code = function->code.data();
  const std::uint64_t* constants = function->constants.data();
  std::uint64_t* r = t.frame;
  std::uint32_t pc = t.pc;
  Kernel& kernel = *t.block->kernel;
  const auto get = [&](Operand o) { return o >= 0 ? r[o] : constants[~o]; };
  const auto param_begin = reinterpret_cast<std::uintptr_t>(kernel.params);
  const std::size_t param_bytes = kernel.function->param_bytes;
  const auto in_params = [&](std::uintptr_t at, std::size_t bytes) {
    return at - param_begin < param_bytes && at + bytes <= param_begin + param_bytes;
  };
  unsigned loops = 0;  // backward branches since the last store: the thread may be polling
  const auto follow = [&](std::int32_t target) {
    if (static_cast<std::uint32_t>(target) <= pc && ++loops > 2) quantum = 0;
    pc = static_cast<std::uint32_t>(target);
  };
  const auto checked = [&](std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) {
    try {
      memory_.check(at, bytes, width, writes);
    } catch (const std::runtime_error& error) {
      t.pc = pc;
      fail(t, error.what());
    }
  };

  while (true) {
    if (quantum == 0) {
      t.pc = pc;
      return;
    }
    --quantum;
    ++steps_;
    const Instruction& i = code[pc];
    const auto set = [&](std::uint64_t value) {
      r[i.d[0]] = value;
      ++pc;
    };
    switch (i.op) {
      case Op::mov:
        set(get(i.a));
        break;
      case Op::trunc16:
        set(get(i.a) & 0xffff);
        break;
      case Op::trunc32:
        set(u32(get(i.a)));
        break;
      case Op::sign_extend32:
        set(static_cast<std::uint64_t>(static_cast<std::int64_t>(s32(get(i.a)))));
        break;
      case Op::add32:
        set(u32(get(i.a) + get(i.b)));
        break;
      case Op::add64:
        set(get(i.a) + get(i.b));
        break;
      case Op::sub32:
        set(u32(get(i.a) - get(i.b)));
        break;
      case Op::sub64:
        set(get(i.a) - get(i.b));
        break;
      case Op::mul_lo32:
        set(u32(get(i.a) * get(i.b)));
        break;
      case Op::mul_lo64:
        set(get(i.a) * get(i.b));
        break;
      case Op::mul_wide_u:
        set(get(i.a) * get(i.b));
        break;
      case Op::mul_wide_s32:
        set(static_cast<std::uint64_t>(static_cast<std::int64_t>(s32(get(i.a))) * s32(get(i.b))));
        break;
      case Op::mad_lo32:
        set(u32(get(i.a) * get(i.b) + get(i.c)));
        break;
      case Op::div_u32:
      case Op::div_u64:
      case Op::rem_u32:
        if (get(i.b) == 0) {
          t.pc = pc;
          fail(t, "division by 0");
        }
        set(i.op == Op::rem_u32 ? get(i.a) % get(i.b) : get(i.a) / get(i.b));
        break;
      case Op::div_s32: {
        const std::int64_t b = s32(get(i.b));
        if (b == 0) {
          t.pc = pc;
          fail(t, "division by 0");
        }
        set(u32(static_cast<std::uint64_t>(s32(get(i.a)) / b)));
        break;
      }
      case Op::neg64:
        set(0 - get(i.a));
        break;
      case Op::and_:
        set(get(i.a) & get(i.b));
        break;
      case Op::or_:
        set(get(i.a) | get(i.b));
        break;
      case Op::xor_:
        set(get(i.a) ^ get(i.b));
        break;
      case Op::not16:
        set(~get(i.a) & 0xffff);
        break;
      case Op::not32:
        set(u32(~get(i.a)));
        break;
      case Op::not64:
        set(~get(i.a));
        break;
      case Op::not_pred:
        set(get(i.a) ^ 1);
        break;
      case Op::shl32:
        set(u32(get(i.b)) > 31 ? 0 : u32(get(i.a) << u32(get(i.b))));
        break;
      case Op::shl64:
        set(u32(get(i.b)) > 63 ? 0 : get(i.a) << u32(get(i.b)));
        break;
      case Op::shr_u32:
      case Op::shr_u64:
        set(u32(get(i.b)) > 63 ? 0 : get(i.a) >> u32(get(i.b)));
        break;
      case Op::min_s32:
        set(u32(static_cast<std::uint64_t>(std::min(s32(get(i.a)), s32(get(i.b))))));
        break;
      case Op::max_s32:
        set(u32(static_cast<std::uint64_t>(std::max(s32(get(i.a)), s32(get(i.b))))));
        break;
      case Op::min_u32:
      case Op::min_u64:
        set(std::min(get(i.a), get(i.b)));
        break;
      case Op::max_u32:
      case Op::max_u64:
        set(std::max(get(i.a), get(i.b)));
        break;
      case Op::min_s64:
        set(static_cast<std::uint64_t>(
            std::min(static_cast<std::int64_t>(get(i.a)), static_cast<std::int64_t>(get(i.b)))));
        break;
      case Op::max_s64:
        set(static_cast<std::uint64_t>(
            std::max(static_cast<std::int64_t>(get(i.a)), static_cast<std::int64_t>(get(i.b)))));
        break;
      case Op::add_f32:
        set(bits_of(f32(get(i.a)) + f32(get(i.b))));
        break;
      case Op::mul_f32:
        set(bits_of(f32(get(i.a)) * f32(get(i.b))));
        break;
      case Op::div_f32:
        set(bits_of(f32(get(i.a)) / f32(get(i.b))));
        break;
      case Op::min_nan_f32:
        set(min_nan(f32(get(i.a)), f32(get(i.b)), false));
        break;
      case Op::max_nan_f32:
        set(min_nan(f32(get(i.a)), f32(get(i.b)), true));
        break;
      case Op::add_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) + f64(get(i.b))));
        break;
      case Op::mul_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) * f64(get(i.b))));
        break;
      case Op::div_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) / f64(get(i.b))));
        break;
      case Op::eq:
        set(get(i.a) == get(i.b));
        break;
      case Op::ne:
        set(get(i.a) != get(i.b));
        break;
      case Op::lt_s32:
        set(s32(get(i.a)) < s32(get(i.b)));
        break;
      case Op::le_s32:
        set(s32(get(i.a)) <= s32(get(i.b)));
        break;
      case Op::gt_s32:
        set(s32(get(i.a)) > s32(get(i.b)));
        break;
      case Op::ge_s32:
        set(s32(get(i.a)) >= s32(get(i.b)));
        break;
      case Op::lt_u:
        set(get(i.a) < get(i.b));
        break;
      case Op::le_u:
        set(get(i.a) <= get(i.b));
        break;
      case Op::gt_u:
        set(get(i.a) > get(i.b));
        break;
      case Op::ge_u:
        set(get(i.a) >= get(i.b));
        break;
      case Op::lt_s64:
        set(static_cast<std::int64_t>(get(i.a)) < static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::le_s64:
        set(static_cast<std::int64_t>(get(i.a)) <= static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::gt_s64:
        set(static_cast<std::int64_t>(get(i.a)) > static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::ge_s64:
        set(static_cast<std::int64_t>(get(i.a)) >= static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::eq_f32:
        set(f32(get(i.a)) == f32(get(i.b)));
        break;
      case Op::lt_f32:
        set(f32(get(i.a)) < f32(get(i.b)));
        break;
      case Op::gt_f32:
        set(f32(get(i.a)) > f32(get(i.b)));
        break;
      case Op::num_f32:
        set(!std::isnan(f32(get(i.a))) && !std::isnan(f32(get(i.b))));
        break;
      case Op::nan_f32:
        set(std::isnan(f32(get(i.a))) || std::isnan(f32(get(i.b))));
        break;
      case Op::eq_f64:
        set(f64(get(i.a)) == f64(get(i.b)));
        break;
      case Op::lt_f64:
        set(f64(get(i.a)) < f64(get(i.b)));
        break;
      case Op::gt_f64:
        set(f64(get(i.a)) > f64(get(i.b)));
        break;
      case Op::num_f64:
        set(!std::isnan(f64(get(i.a))) && !std::isnan(f64(get(i.b))));
        break;
      case Op::nan_f64:
        set(std::isnan(f64(get(i.a))) || std::isnan(f64(get(i.b))));
        break;
      case Op::selp:
        set((get(i.c) & 1) != 0 ? get(i.a) : get(i.b));
        break;
      case Op::bfi32:
        set(insert_bits(get(i.a), get(i.b), get(i.c), get(i.e), 32));
        break;
      case Op::bfi64:
        set(insert_bits(get(i.a), get(i.b), get(i.c), get(i.e), 64));
        break;
      case Op::bfind_shiftamt_u32:
        set(u32(get(i.a)) == 0 ? 0xffffffff : static_cast<unsigned>(std::countl_zero(u32(get(i.a)))));
        break;
      case Op::brev32: {
        std::uint32_t reversed = 0;
        for (unsigned bit = 0; bit < 32; ++bit) reversed |= (u32(get(i.a)) >> bit & 1) << (31 - bit);
        set(reversed);
        break;
      }
      case Op::prmt:
        set(permute(u32(get(i.a)), u32(get(i.b)), u32(get(i.c))));
        break;
      case Op::cvt_bf16x2:
        set(to_bf16(f32(get(i.a))) << 16 | to_bf16(f32(get(i.b))));
        break;
      case Op::cvt_f16x2:
        set(to_f16(f32(get(i.a))) << 16 | to_f16(f32(get(i.b))));
        break;
      case Op::pack64:
        set(u32(get(i.a)) | get(i.b) << 32);
        break;
      case Op::unpack64: {
        const std::uint64_t value = get(i.a);
        r[i.d[0]] = u32(value);
        r[i.d[1]] = value >> 32;
        ++pc;
        break;
      }
      case Op::tid_x:
        set(t.index);
        break;
      case Op::ntid_x:
        set(kernel.grid.threads);
        break;
      case Op::ctaid_x:
        set(t.block->x);
        break;
      case Op::ctaid_y:
        set(t.block->y);
        break;
      case Op::nctaid_x:
        set(kernel.grid.blocks);
        break;
      case Op::laneid:
        set(t.index % kWarp);
        break;
      case Op::globaltimer:
        set(steps_);
        break;
      case Op::branch:
        follow(i.offset);
        break;
      case Op::branch_if:
        if ((get(i.a) & 1) != 0)
          follow(i.offset);
        else
          ++pc;
        break;
      case Op::branch_unless:
        if ((get(i.a) & 1) == 0)
          follow(i.offset);
        else
          ++pc;
        break;
      case Op::call: {
        const CallSite& site = function->calls[static_cast<std::size_t>(i.offset)];
        std::uint64_t* const frame = r + function->frame_words;
        for (const ParamCopy& copy : site.params)
          std::memcpy(reinterpret_cast<std::byte*>(frame) + copy.to,
                      reinterpret_cast<const std::byte*>(r) + copy.from, copy.bytes);
        t.returns.push_back({function, pc, r});
        function = t.function = site.callee;
        r = t.frame = frame;
        code = function->code.data();
        constants = function->constants.data();
        pc = 0;
        break;
      }
      case Op::ret: {
        const Thread::Return back = t.returns.back();
        t.returns.pop_back();
        const CallSite& site =
            back.function->calls[static_cast<std::size_t>(back.function->code[back.pc].offset)];
        for (const ParamCopy& copy : site.results)
          std::memcpy(reinterpret_cast<std::byte*>(back.frame) + copy.to,
                      reinterpret_cast<const std::byte*>(r) + copy.from, copy.bytes);
        function = t.function = back.function;
        r = t.frame = back.frame;
        code = function->code.data();
        constants = function->constants.data();
        pc = back.pc + 1;
        break;
      }
      case Op::exit:
        t.pc = pc;
        return end_thread(t);
      case Op::load: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        if (!in_params(at, bytes)) checked(at, bytes, bytes, false);
        if (i.vector > 1 && t.moved == 0 && random(16) == 0 && std::ranges::find(i.d, i.a) == std::end(i.d)) {
          // Only some elements now; the others when the thread goes on.
          t.moved = 1 + random((1u << i.vector) - 2);
          for (unsigned k = 0; k < i.vector; ++k) {
            if ((t.moved >> k & 1) != 0)
              r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
          }
          t.pc = pc;
          return;
        }
        for (unsigned k = 0; k < i.vector; ++k) {
          if ((t.moved >> k & 1) != 0) continue;
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
        }
        t.moved = 0;
        ++pc;
        break;
      }
      case Op::store: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        checked(at, bytes, bytes, true);
        const auto put = [&](unsigned k) {
          const std::uint64_t value = get(i.d[k]);
          std::memcpy(reinterpret_cast<std::byte*>(at) + k * i.width, &value, i.width);
        };
        last_progress_ = steps_;
        if (i.vector > 1 && t.moved == 0 && random(16) == 0) {
          // Only some elements now; the others when the thread goes on.
          t.moved = 1 + random((1u << i.vector) - 2);
          for (unsigned k = 0; k < i.vector; ++k) {
            if ((t.moved >> k & 1) != 0) put(k);
          }
          t.pc = pc;
          return;
        }
        for (unsigned k = 0; k < i.vector; ++k) {
          if ((t.moved >> k & 1) == 0) put(k);
        }
        t.moved = 0;
        loops = 0;
        ++pc;
        break;
      }
      case Op::load_param: {
        const auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::uintptr_t at = i.b == 1 ? param_begin + offset : get(i.a) + offset;
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        if (!in_params(at, bytes) || at % bytes != 0) {
          t.pc = pc;
          fail(t, "a parameter that does not exist");
        }
        for (unsigned k = 0; k < i.vector; ++k)
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
        ++pc;
        break;
      }
      case Op::param_address:
        set(param_begin);
        break;
      case Op::load_frame:
        for (unsigned k = 0; k < i.vector; ++k)
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(r) + i.offset + k * i.width, i.width);
        ++pc;
        break;
      case Op::store_frame:
        for (unsigned k = 0; k < i.vector; ++k) {
          const std::uint64_t value = get(i.d[k]);
          std::memcpy(reinterpret_cast<std::byte*>(r) + i.offset + k * i.width, &value, i.width);
        }
        ++pc;
        break;
      case Op::load_shared:
      case Op::store_shared: {
        const std::uint64_t at =
            u32(get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset)));
        if (i.vector != 1 || at % i.width != 0 || at + i.width > t.block->shared.size()) {
          t.pc = pc;
          fail(t, "outside of shared memory");
        }
        std::byte* const data = t.block->shared.data() + at;
        if (i.op == Op::load_shared) {
          r[i.d[0]] = load_bytes(data, i.width);
        } else {
          const std::uint64_t value = get(i.d[0]);
          std::memcpy(data, &value, i.width);
          last_progress_ = steps_;
          loops = 0;
        }
        ++pc;
        break;
      }
      case Op::atom_add32:
      case Op::atom_exch32: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        checked(at, 4, 4, true);
        auto* const word = reinterpret_cast<std::uint32_t*>(at);
        const std::uint32_t old = *word;
        *word = i.op == Op::atom_add32 ? old + u32(get(i.b)) : u32(get(i.b));
        last_progress_ = steps_;
        loops = 0;
        set(old);
        break;
      }
      case Op::bar:
        t.pc = pc;
        return arrive(t, u32(get(i.a)), u32(get(i.b)), true, -1);
      case Op::bar_red_and:
        t.pc = pc;
        return arrive(t, u32(get(i.a)), u32(get(i.b)), (get(i.c) & 1) != 0, i.d[0]);
      case Op::bar_warp:
        t.pc = pc;
        (void)arrive_at(t, i, u32(get(i.a)), 0);
        return;
      case Op::shfl_idx:
      case Op::vote_all:
      case Op::vote_any:
        t.pc = pc;
        (void)arrive_at(t, i, u32(get(i.e)), get(i.a));
        return;
      case Op::depend_wait:
        if (lanes_[kernel.lane]->done < kernel.position) {
          t.pc = pc;
          t.state = Thread::State::at_dependency;
          return suspend(t);
        }
        ++pc;
        break;
      case Op::depend_launch:
        if (!t.block->allows_next) --kernel.holding;
        t.block->allows_next = true;
        ++pc;
        break;
    }
  }
}

}  // namespace onehop::ptx
