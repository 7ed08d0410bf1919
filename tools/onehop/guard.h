// SPDX-License-Identifier: Apache-2.0
// The process between the launcher and the ranks. It starts them, and ends every process of the job when the
// launcher ends, in whatever way: a launcher that is killed by SIGKILL can do nothing itself, and its children's
// children would live on.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "os/unique_fd.h"

namespace onehop::cli {

/// How to start one rank.
struct RankProgram {
  std::vector<std::string> environment;  ///< NAME=value
  os::UniqueFd input;                    ///< empty descriptors: the launcher's own
  os::UniqueFd output;
  os::UniqueFd errors;
  const cpu_set_t* processors = nullptr;  ///< nullptr: wherever the launcher may run
};

/// The reason why a rank's program did not start. The child writes it to a pipe.
struct StartError {
  int number = 0;  ///< errno; 0: it started
  bool binding = false;
};

/// What the guard tells the launcher: that a rank was started, and that it ended.
struct RankNews {
  int rank = -1;
  bool ended = false;
  pid_t pid = -1;      ///< also its process group
  StartError error{};  ///< if it did not start; no further rank is started then
  int code = 0;        ///< once it ended: CLD_EXITED, CLD_KILLED or CLD_DUMPED
  int status = 0;      ///< the exit code or signal
};

/// The launcher's side. Covered are all descendants of the ranks, in whatever sessions and process groups. Not
/// covered: processes that other services start for them (systemd-run, docker, at), processes of other users
/// (sudo), and the descendants of ranks if the guard itself is killed; the ranks then still die with it.
class Guard {
 public:
  Guard() = default;
  ~Guard() { end(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// Starts the guard, which starts the ranks in order. `restore_signals` runs in each rank between fork and exec. The
  /// calling process must have no other threads.
  void start(const std::vector<std::string>& command, std::vector<RankProgram> programs,
             const std::function<void()>& restore_signals);
  /// For poll(2): readable when there is news.
  [[nodiscard]] int fd() const { return news_.get(); }
  /// Waits for the next news; nullopt once the guard is gone.
  [[nodiscard]] std::optional<RankNews> next();
  /// Kills all processes of the job and waits for their end. The numbers in the news are valid until then.
  void end() noexcept;

 private:
  pid_t pid_ = -1;
  os::UniqueFd news_;
  os::UniqueFd lifeline_;  ///< nobody writes to it: its closing tells the guard that the launcher has ended
};

}  // namespace onehop::cli
