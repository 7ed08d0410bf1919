// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a job on this machine and waits for their end.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "onehop/error.h"
#include "onehop/types.h"

namespace onehop::cli {

struct LaunchOptions {
  int ranks = 0;
  std::vector<std::string> command;     ///< program (looked up in PATH) and its arguments
  std::vector<cpu_set_t> processors{};  ///< where each rank may run; empty: wherever this process may
  bool tag_output = false;              ///< "[rank] " before every line of output
  std::string log_folder{};  ///< rank r writes its output to rank-r.log there; empty: to this one's
  /// A rank that fails does not end the others. A line on stderr names it, and those that fail later.
  bool keep_going = false;
  Duration grace = std::chrono::seconds{5};  ///< from SIGTERM to SIGKILL when the job is ended
  /// For subcommands: ranks write their final error to a file (see report_failure) instead of stderr, so that
  /// the launcher prints one line for all of them.
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
  int stopped_by = 0;                 ///< the signal that asked this process to end; it was forwarded
  bool killed = false;                ///< ranks that did not end then were killed
  std::vector<RankFailure> failures;  ///< with collect_failures, in rank order
};

/// Starts `ranks` processes with the environment of torchrun (RANK, WORLD_SIZE, LOCAL_RANK ...) plus
/// ONEHOP_RANK, ONEHOP_SIZE and ONEHOP_STORE, and waits for them. When one fails, all are ended (unless keep_going). No descendant
/// of a rank outlives this call or this process, even one that is killed by SIGKILL (guard.h says what is not
/// covered). Call it from the main thread of a process without other
/// threads. The exit code of a program that cannot run is 127 (not found) or 126; `how` has the reason.
[[nodiscard]] LaunchOutcome launch(const LaunchOptions& options);

/// If the launch was stopped by a signal of which ranks died, or ranks had to be killed then, this process dies of it, too: a
/// shell's loop, for example, ends only with a command that Ctrl-C has killed. Otherwise returns.
void end_as(const LaunchOutcome& outcome);

/// In a rank of a launch with collect_failures: saves the error for the launcher. False otherwise.
[[nodiscard]] bool report_failure(const Error& error) noexcept;

/// The error that caused the others: a rank that lost its peer is not the cause. nullptr without failures.
[[nodiscard]] const RankFailure* root_cause(const std::vector<RankFailure>& failures);

}  // namespace onehop::cli
