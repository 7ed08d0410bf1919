// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>

#include "onehop/store.h"

#include "base/deadline.h"
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
    const Deadline deadline = Deadline::after(timeout);
    std::unique_lock lock(mutex_);
    store::KeyTable::Value value;
    changed_.wait_until(lock, deadline.at(), [&] { return (value = table_.find(key)) != nullptr; });
    lock.unlock();
    return value ? std::optional<std::string>(*value) : std::nullopt;
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
