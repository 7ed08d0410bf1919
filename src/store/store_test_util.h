// SPDX-License-Identifier: Apache-2.0
// Utilities of the store tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/store.h"

#include "support/errors.h"

namespace onehop {

using testing::message_of;

/// A new directory of mode 0700, removed by the destructor.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "onehop-store-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Runs `body` in a forked child and returns its exit status: 0, 1 if it threw, or the argument that it
/// passed to _exit.
inline int run_in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& e) {
      (void)!::write(STDERR_FILENO, e.what(), std::string_view(e.what()).size());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// Runs body(0) .. body(count - 1) concurrently and joins them.
inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

class Stopwatch {
 public:
  [[nodiscard]] Duration elapsed() const {
    return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// How long a call may exceed its deadline: the documented limit, plus a margin for a machine that is busy
/// with other tests.
inline constexpr Duration kPromise{100};
inline constexpr Duration kBusyMachine{1000};

}  // namespace onehop
