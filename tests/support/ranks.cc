// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>

namespace onehop::testing {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void run_threads(int n, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&body, r] {
      try {
        body(Rank{r});
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << " threw: " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int shared_gpus() {
  const char* const count = std::getenv("ONEHOP_TEST_GPUS");
  return count == nullptr ? 0 : std::atoi(count);
}

JoinOptions options_of(Rank rank, int n, JoinOptions options) {
  options.rank = rank;
  options.size = n;
  if (!options.device.is_host()) {
    const int shared = shared_gpus();
    options.device.value += shared > 0 ? rank.value % shared : rank.value;
    options.allow_overlapping_devices = shared > 0;
  }
  return options;
}

void run_thread_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(n, [&](Rank rank) {
    Group group = Group::join(store, options_of(rank, n, defaults));
    body(group);
  });
}

struct Processes::Child {
  pid_t pid = -1;
  int pipe = -1;
  Clock::time_point started;
  bool ended = false;
  Exit exit;
};

namespace {

[[noreturn]] void run_child(int rank, int pipe, const std::function<std::string(Rank)>& body) {
  std::string text;
  int code = 0;
  try {
    text = body(Rank{rank});
  } catch (const std::exception& e) {
    text = e.what();
    code = 1;
  }
  if (::testing::Test::HasFailure()) code = 1;
  (void)!::write(pipe, text.data(), text.size());
  // No static destructors: the parent's test environment is not this process's.
  ::_exit(code);
}

}  // namespace

Processes::Processes(int n, const std::function<std::string(Rank)>& body) {
  const auto start = Clock::now();
  for (int r = 0; r < n; ++r) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      ::close(ends[0]);
      run_child(r, ends[1], body);
    }
    ::close(ends[1]);
    children_.push_back({.pid = pid, .pipe = ends[0], .started = start, .ended = false, .exit = {}});
  }
}

Processes::~Processes() {
  for (Child& child : children_) {
    if (!child.ended) {
      (void)::kill(child.pid, SIGKILL);
      (void)::waitpid(child.pid, nullptr, 0);
    }
    ::close(child.pipe);
  }
}

pid_t Processes::pid(int rank) const {
  return children_[static_cast<std::size_t>(rank)].pid;
}

std::vector<Exit> Processes::wait(Duration limit, const std::vector<int>& except) {
  const auto deadline = Clock::now() + limit;
  const auto excepted = [&](std::size_t r) {
    return std::find(except.begin(), except.end(), static_cast<int>(r)) != except.end();
  };
  const auto reap = [](Child& child, int status) {
    child.ended = true;
    child.exit.seconds = std::chrono::duration<double>(Clock::now() - child.started).count();
    if (WIFEXITED(status)) child.exit.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child.exit.signal = WTERMSIG(status);
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(child.pipe, buffer, sizeof buffer)) > 0;) {
      child.exit.text.append(buffer, static_cast<std::size_t>(got));
    }
  };
  while (true) {
    bool waiting = false;
    for (std::size_t r = 0; r < children_.size(); ++r) {
      Child& child = children_[r];
      int status = 0;
      if (child.ended || excepted(r)) continue;
      if (::waitpid(child.pid, &status, WNOHANG) == child.pid) {
        reap(child, status);
      } else {
        waiting = true;
        if (Clock::now() > deadline) (void)::kill(child.pid, SIGKILL);
      }
    }
    if (!waiting) break;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  std::vector<Exit> exits;
  for (const Child& child : children_) exits.push_back(child.exit);
  return exits;
}

void run_process_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults) {
  const TempDir dir;
  Processes processes(n, [&](Rank rank) {
    Group group = Group::join(file_store(dir.path()), options_of(rank, n, defaults));
    body(group);
    return std::string();
  });
  const std::vector<Exit> exits = processes.wait(std::chrono::seconds{100});
  for (std::size_t r = 0; r < exits.size(); ++r) {
    EXPECT_EQ(exits[r].code, 0) << "rank " << r << " ended by signal " << exits[r].signal << ": "
                                << exits[r].text;
  }
}

TempDir::TempDir() : path_((fs::temp_directory_path() / "onehop-test-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Footprint footprint() {
  Footprint now;
  now.descriptors =
      static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
  for (const auto& entry : fs::directory_iterator("/proc/self/task"))
    now.threads += entry.is_directory() ? 1 : 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  now.address_space = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return now;
}

}  // namespace onehop::testing
