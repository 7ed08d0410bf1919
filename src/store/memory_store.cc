// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>

#include "onehop/store.h"

#include "base/deadline.h"
#include "base/interrupt.h"
#include "store/key_table.h"

namespace onehop {
namespace {

class MemoryStore final : public Store {
 public:
  std::string describe() const override { return "memory store"; }

 private:
  // The lock is held only briefly, so only a get waits.
  void do_set(std::string_view key, std::string_view value, Duration /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    table_.set(key, value);
    changed_.notify_all();
  }

  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    const Deadline deadline = within_clean_up(Deadline::after(timeout));
    while (true) {
      store::KeyTable::Value value;
      {
        std::unique_lock lock(mutex_);
        const Deadline slice = deadline.at_most(kInterruptSlice);
        changed_.wait_until(lock, slice.at(), [&] { return (value = table_.find(key)) != nullptr; });
      }
      if (value) return *value;
      if (deadline.expired()) return std::nullopt;
      throw_if_interrupted(
          "waiting for a key of the memory store");  // without the lock: it may use this store
    }
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t sum = table_.add(key, delta);
    changed_.notify_all();
    return sum;
  }

  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    std::string held = table_.compare_set(key, expected, desired);
    changed_.notify_all();
    return held;
  }

  bool do_delete_key(std::string_view key, Duration /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    return table_.erase(key);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  store::KeyTable table_;
};

}  // namespace

std::shared_ptr<Store> memory_store() {
  return std::make_shared<MemoryStore>();
}

}  // namespace onehop
