// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: threads of this process, or real forked processes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "onehop/onehop.h"

namespace onehop::testing {

/// Runs `body(rank)` on `n` threads and waits. An exception of a rank fails the test, with the rank's number.
void run_threads(int n, const std::function<void(Rank)>& body);

/// ONEHOP_TEST_GPUS: ranks share this many GPUs, rank r having GPU r modulo that number. So tests with many
/// ranks can be tried on machines with few GPUs. 0: unset; each rank has its own.
[[nodiscard]] int shared_gpus();

/// `options` for a rank of `n`. If its device is a GPU, it is rank 0's; the other ranks use the GPUs after it,
/// or those of ONEHOP_TEST_GPUS.
[[nodiscard]] JoinOptions options_of(Rank rank, int n, JoinOptions options);

/// Like run_threads, with each rank joined over a fresh memory store, with `options_of` for each.
void run_thread_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults = {});

/// How a rank that is a process ended.
struct Exit {
  int code = -1;       ///< exit code, or -1
  int signal = 0;      ///< signal that ended it, or 0
  std::string text;    ///< what the rank reported with `report`, or what it threw
  double seconds = 0;  ///< from the start of all ranks to the end of this one
};

/// Real processes, forked from a test that runs no threads. A rank that returns exits 0; a rank that throws,
/// or in which a gtest assertion fails, exits 1. A rank's uncaught Error becomes its text.
class Processes {
 public:
  /// `body(rank)` returns the text to report.
  Processes(int n, const std::function<std::string(Rank)>& body);
  ~Processes();  ///< kills the remaining processes

  [[nodiscard]] pid_t pid(int rank) const;
  /// Waits until all processes but those in `except` ended, at most `limit`. Those that did not are killed
  /// and reported with signal SIGKILL.
  [[nodiscard]] std::vector<Exit> wait(Duration limit, const std::vector<int>& except = {});

 private:
  struct Child;
  std::vector<Child> children_;
};

/// Forks `n` ranks that join over a fresh private file store and run `body`; expects all to succeed. GPUs as
/// above.
void run_process_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults = {});

/// A fresh private directory, removed by the destructor.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The resources that this process holds, for tests that nothing leaks or grows.
struct Footprint {
  int descriptors = 0;
  int threads = 0;
  int mappings = 0;
  std::size_t address_space = 0;  ///< bytes
};
[[nodiscard]] Footprint footprint();

}  // namespace onehop::testing
