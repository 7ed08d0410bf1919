// SPDX-License-Identifier: Apache-2.0
#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "store/rules.h"

namespace onehop {

// Deletion of keys: a rank that has read everything it needs of one exchange adds one to the key
// `<prefix>/<sequence>/read`. The rank whose addition completes the count deletes the exchange's keys and the
// counter. That is safe because every reader has then finished, and each adds exactly once, so no rank uses
// these keys again. A weaker rule does not suffice: if all ranks have *begun* the next exchange, the same
// holds for an all_gather. But there may be no next exchange, and in a broadcast the root waits for no rank.
// After a failed call its keys remain: a rank that gave up cannot know whether others still wait with longer
// deadlines.
struct StoreExchange::State {
  std::shared_ptr<Store> store;
  std::string prefix;
  Rank rank;
  int size = 0;
  std::uint64_t sequence = 0;

  [[nodiscard]] std::string key(std::uint64_t step, Rank from) const {
    return fmt::format("{}/{}/{}", prefix, step, from.value);
  }

  [[nodiscard]] std::string read(std::uint64_t step, Rank from, const Deadline& deadline) const {
    const std::string name = key(step, from);
    std::optional<std::string> value = store->get_for(name, deadline.left());
    if (!value) {
      fail_from(from, ErrorCode::timeout,
                "rank {} has not arrived at exchange {} within {} ms: key {} is missing in the {}",
                from.value, step, deadline.timeout().count(), store::quoted(name), store->describe());
    }
    return *std::move(value);
  }

  /// Call after the last read of the step. `readers` is the number of ranks that call it; `owners` are the
  /// ranks whose keys are deleted.
  void finish(std::uint64_t step, int readers, Rank first_owner, int owners, const Deadline& deadline) const {
    const std::string count = fmt::format("{}/{}/read", prefix, step);
    if (store->add(count, 1, deadline.left()) != readers) return;
    for (int i = 0; i < owners; ++i) {
      (void)store->delete_key(key(step, Rank{first_owner.value + i}), deadline.left());
    }
    (void)store->delete_key(count, deadline.left());
  }

  void check_size(std::uint64_t step, Rank from, std::string_view payload, std::size_t expected) const {
    if (payload.size() == expected) return;
    fail_from(from, ErrorCode::protocol,
              "key {} from rank {} holds {} bytes, expected {}: do all ranks run the same build?",
              store::quoted(key(step, from)), from.value, payload.size(), expected);
  }
};

StoreExchange::StoreExchange(std::shared_ptr<Store> store, std::string prefix, Rank rank, int size)
    : state_(std::make_unique<State>()) {
  require(store != nullptr, "StoreExchange needs a store, got null");
  require(size >= 1 && rank.value >= 0 && rank.value < size,
          "StoreExchange: rank {} is not within a size of {}", rank.value, size);
  *state_ = {.store = std::move(store), .prefix = std::move(prefix), .rank = rank, .size = size};
}

StoreExchange::~StoreExchange() = default;
StoreExchange::StoreExchange(StoreExchange&&) noexcept = default;
StoreExchange& StoreExchange::operator=(StoreExchange&&) noexcept = default;

std::vector<std::string> StoreExchange::all_gather(std::string_view payload, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  State& s = *state_;
  store::check_value(s.key(s.sequence, s.rank), payload);  // also for a single rank, which sets no key
  const std::uint64_t step = s.sequence++;
  if (s.size > 1) s.store->set(s.key(step, s.rank), payload, deadline.left());
  std::vector<std::string> all;
  for (Rank from{0}; from.value < s.size; ++from.value) {
    all.push_back(from == s.rank ? std::string(payload) : s.read(step, from, deadline));
  }
  if (s.size > 1) s.finish(step, s.size, Rank{0}, s.size, deadline);
  return all;
}

std::string StoreExchange::broadcast(std::string_view payload, Rank root, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  State& s = *state_;
  require(root.value >= 0 && root.value < s.size, "broadcast: root {} is not within a size of {}", root.value,
          s.size);
  if (s.rank == root) store::check_value(s.key(s.sequence, root), payload);
  const std::uint64_t step = s.sequence++;
  if (s.rank == root) {
    if (s.size > 1) s.store->set(s.key(step, root), payload, deadline.left());
    return std::string(payload);
  }
  std::string received = s.read(step, root, deadline);
  s.finish(step, s.size - 1, root, 1, deadline);
  return received;
}

void StoreExchange::barrier(Duration timeout) {
  (void)all_gather(std::string_view{}, timeout);
}

// Sizes are checked after the exchange is complete, so that a mismatch fails the ranks that see it and leaves
// no keys behind.
std::vector<std::string> StoreExchange::all_gather_sized(std::string_view payload, std::size_t expected,
                                                         Duration timeout) {
  const std::uint64_t step = state_->sequence;
  std::vector<std::string> all = all_gather(payload, timeout);
  for (Rank from{0}; from.value < state_->size; ++from.value) {
    state_->check_size(step, from, all[static_cast<std::size_t>(from.value)], expected);
  }
  return all;
}

std::string StoreExchange::broadcast_sized(std::string_view payload, std::size_t expected, Rank root,
                                           Duration timeout) {
  const std::uint64_t step = state_->sequence;
  std::string received = broadcast(payload, root, timeout);
  state_->check_size(step, root, received, expected);
  return received;
}

}  // namespace onehop
