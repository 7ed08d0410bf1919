// SPDX-License-Identifier: Apache-2.0
#include "onehop/pool.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"

namespace onehop {
namespace {

constexpr std::size_t kUnit = SymmetricPool::kAlignment;

/// The free parts of a range. Adjacent runs are merged.
class FreeRuns {
 public:
  explicit FreeRuns(std::size_t bytes) : free_(bytes) { insert(0, bytes); }

  /// Best fit: takes `bytes` bytes from the front of the shortest run that holds them, the first of equals.
  /// Returns their offset, or SIZE_MAX when there is none.
  std::size_t take(std::size_t bytes) {
    const auto best = by_length_.lower_bound({bytes, 0});
    if (best == by_length_.end()) return SIZE_MAX;
    const auto [length, offset] = *best;
    erase(by_offset_.find(offset));
    if (length > bytes) insert(offset + bytes, length - bytes);
    free_ -= bytes;
    return offset;
  }

  void give_back(std::size_t offset, std::size_t bytes) {
    free_ += bytes;
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        erase(before);
      }
    }
    if (after != by_offset_.end() && offset + bytes == after->first) {
      bytes += after->second;
      erase(after);
    }
    insert(offset, bytes);
  }

  [[nodiscard]] std::size_t total() const { return free_; }
  [[nodiscard]] std::size_t longest() const { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }

 private:
  using ByOffset = std::map<std::size_t, std::size_t>;

  void insert(std::size_t offset, std::size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_length_.emplace(bytes, offset);
  }
  void erase(ByOffset::iterator run) {
    by_length_.erase({run->second, run->first});
    by_offset_.erase(run);
  }

  std::size_t free_;
  ByOffset by_offset_;                                       ///< offset, length
  std::set<std::pair<std::size_t, std::size_t>> by_length_;  ///< length, offset
};

}  // namespace

class SymmetricPool::State {
 public:
  explicit State(SymmetricBuffer memory)
      : buffer(std::move(memory)), base(buffer.local()), runs(buffer.bytes() / kUnit * kUnit) {}

  /// Offset from the beginning of the pool. Memory outside the pool gives a value greater than its length.
  [[nodiscard]] std::size_t offset_of(const void* data) const {
    return reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(base);
  }

  const SymmetricBuffer buffer;
  std::byte* const base;
  std::mutex mutex;  ///< guards what follows
  FreeRuns runs;
  std::map<std::size_t, std::size_t> handed_out;  ///< offset, length
};

SymmetricPool::SymmetricPool(SymmetricBuffer buffer) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.local());
  require(address % kAlignment == 0 && buffer.bytes() >= kAlignment,
          "a symmetric pool needs at least {} bytes that begin at a multiple of {}, not {} bytes at {:#x}",
          kAlignment, kAlignment, buffer.bytes(), address);
  state_ = std::make_unique<State>(std::move(buffer));
}

SymmetricPool::SymmetricPool(SymmetricPool&&) noexcept = default;
SymmetricPool& SymmetricPool::operator=(SymmetricPool&&) noexcept = default;
SymmetricPool::~SymmetricPool() = default;

std::byte* SymmetricPool::allocate(std::size_t bytes, Stream) {
  State& state = in_use();
  require(bytes > 0, "cannot allocate 0 bytes of a symmetric pool");
  const std::lock_guard lock(state.mutex);
  // A length beyond the pool's is not rounded up, since that might overflow.
  const std::size_t rounded =
      bytes > state.buffer.bytes() ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t offset = state.runs.take(rounded);
  if (offset == SIZE_MAX) {
    fail(ErrorCode::out_of_resources,
         "the symmetric pool has no {} bytes in one piece: its longest free run has {}, and {} of its {} "
         "bytes "
         "are free; make it larger, or free what is not needed",
         bytes, state.runs.longest(), state.runs.total(), state.buffer.bytes());
  }
  state.handed_out.emplace(offset, rounded);
  return state.base + offset;
}

void SymmetricPool::free(void* data, Stream) {
  State& state = in_use();
  const std::lock_guard lock(state.mutex);
  const auto at = state.handed_out.find(state.offset_of(data));
  require(at != state.handed_out.end(),
          "{} cannot be freed: it did not come from this symmetric pool, or was freed already", data);
  state.runs.give_back(at->first, at->second);
  state.handed_out.erase(at);
}

std::size_t SymmetricPool::offset_of(const void* data) const {
  const State& state = in_use();
  const std::size_t offset = state.offset_of(data);
  require(offset < state.buffer.bytes(), "{} is not in this symmetric pool of {} bytes at {}", data,
          state.buffer.bytes(), static_cast<const void*>(state.base));
  return offset;
}

const SymmetricBuffer& SymmetricPool::buffer() const {
  return in_use().buffer;
}

std::size_t SymmetricPool::free_bytes() const {
  State& state = in_use();
  const std::lock_guard lock(state.mutex);
  return state.runs.total();
}

SymmetricPool::State& SymmetricPool::in_use() const {
  require(state_ != nullptr, "this symmetric pool was moved from");
  return *state_;
}

}  // namespace onehop
