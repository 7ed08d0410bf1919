// SPDX-License-Identifier: Apache-2.0
// Starting the ranks of a job on this machine and seeing them to their end.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "onehop/error.h"
#include "onehop/types.h"

namespace onehop::cli {

struct LaunchOptions {
  int ranks = 0;
  std::vector<std::string> command;          ///< program (looked up in PATH) and its arguments
  std::vector<cpu_set_t> processors{};       ///< where each rank may run; empty: wherever this process may
  bool tag_output = false;                   ///< "[rank] " before every line of output
  Duration grace = std::chrono::seconds{5};  ///< from SIGTERM to SIGKILL when the job is ended
  /// For our own subcommands: ranks write the error they end with to a file (see report_failure) instead of
  /// stderr, so that one line can be said for all of them.
  bool collect_failures = false;
};

/// The error a rank ended with.
struct RankFailure {
  int rank = -1;
  ErrorCode code{};
  std::string message;
};

struct LaunchOutcome {
  int exit_code = 0;                  ///< 0, or that of the first rank that failed: its own, or 128 + signal
  int failed_rank = -1;               ///< the first rank that failed
  std::string how;                    ///< "exited with code 3", "was killed by SIGSEGV"
  int stopped_by = 0;                 ///< the signal this process was asked to end with and passed on
  std::vector<RankFailure> failures;  ///< with collect_failures, in rank order
};

/// Starts `ranks` processes with the environment of torchrun (RANK, WORLD_SIZE, LOCAL_RANK ...) plus
/// ONEHOP_RANK, ONEHOP_SIZE and ONEHOP_STORE, and waits for them. When one fails, all are ended. No process
/// of the job is left when this returns; none survives this process either. Must be called from the main
/// thread of a process that has no others. A program that cannot be run is exit code 127 (not found) or 126,
/// with Error in `how`.
[[nodiscard]] LaunchOutcome launch(const LaunchOptions& options);

/// In a rank of a launch with collect_failures: keeps the error for the launcher. False anywhere else.
[[nodiscard]] bool report_failure(const Error& error) noexcept;

/// Of errors several ranks ended with, the one the others follow from: a rank that lost its peer is not the
/// cause.
[[nodiscard]] const RankFailure* root_cause(const std::vector<RankFailure>& failures);

}  // namespace onehop::cli
