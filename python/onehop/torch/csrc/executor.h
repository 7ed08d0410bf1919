// SPDX-License-Identifier: Apache-2.0
// A thread that runs tasks in order. It starts with the first task.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace onehop_torch {

/// Thread-safe. Tasks must not throw, and must not call drain() or stop() of their executor.
class Executor {
 public:
  using Task = std::function<void()>;

  Executor() = default;
  ~Executor() { stop(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    tasks_.push_back(std::move(task));
    ++unfinished_;
    changed_.notify_all();
  }

  /// Waits until all tasks that were posted before are finished. Each has a deadline of its own.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return unfinished_ == 0; });
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return unfinished_ == 0;
  }

  /// Finishes all tasks and ends the thread. A later post() starts another.
  void stop() {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
      thread = std::move(thread_);
    }
    if (thread.joinable()) thread.join();
    const std::lock_guard lock(mutex_);
    stopping_ = false;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it kept alive is released before it counts as finished
      lock.lock();
      --unfinished_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  size_t unfinished_ = 0;  ///< posted and not finished
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace onehop_torch
