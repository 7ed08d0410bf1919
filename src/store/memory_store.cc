#include <condition_variable>
#include <mutex>

#include "onehop/store.h"

#include "base/deadline.h"
#include "store/key_table.h"
#include "store/rules.h"

namespace onehop {
namespace {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    table_.set(key, value);
    changed_.notify_all();
  }

  std::optional<std::string> get_for(std::string_view key, Duration timeout) override {
    store::check_key(key);
    const Deadline deadline = Deadline::after(timeout);
    std::unique_lock lock(mutex_);
    store::KeyTable::Value value;
    changed_.wait_until(lock, deadline.at(), [&] { return (value = table_.find(key)) != nullptr; });
    lock.unlock();
    return value ? std::optional<std::string>(*value) : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t sum = table_.add(key, delta);
    changed_.notify_all();
    return sum;
  }

  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    const std::lock_guard lock(mutex_);
    std::string held = table_.compare_set(key, expected, desired);
    changed_.notify_all();
    return held;
  }

  bool delete_key(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    return table_.erase(key);
  }

  std::string describe() const override { return "memory store"; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  store::KeyTable table_;
};

}  // namespace

std::shared_ptr<Store> memory_store() {
  return std::make_shared<MemoryStore>();
}

}  // namespace onehop
