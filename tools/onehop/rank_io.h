// SPDX-License-Identifier: Apache-2.0
// Standard input and output of the ranks of a launch.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "os/unique_fd.h"

namespace onehop::cli {

struct Pipe {
  os::UniqueFd read_end;
  os::UniqueFd write_end;
};
/// Both ends close-on-exec. `purpose` is for the message of the Error.
[[nodiscard]] Pipe make_pipe(const char* purpose);

/// Reads the pipes of all ranks and writes whole lines, as "[rank] line", to one descriptor: lines of
/// different ranks never mix. Never blocks: the owner polls the descriptors of `add_polls` and passes the
/// results to `handle`. A slow reader of the output slows the ranks down, not the owner's loop.
class RankOutput {
 public:
  explicit RankOutput(int to) : to_(to) {}

  /// The write end of a new pipe for the next rank. Ranks are numbered in the order of these calls.
  [[nodiscard]] os::UniqueFd add_rank();

  void add_polls(std::vector<pollfd>& polls) const;
  void handle(const std::vector<pollfd>& polls);
  /// True when every rank has closed its end and everything is written, or when nothing can be written.
  [[nodiscard]] bool finished() const;
  /// Reads what the pipes hold now and closes them, even if other processes still have them open.
  void stop_reading();
  /// True once the output cannot be written: its reader is gone, or its disk is full.
  [[nodiscard]] bool broken() const { return error_ != 0; }
  /// The errno of the write that failed, or 0.
  [[nodiscard]] int error() const { return error_; }

 private:
  struct Source {
    os::UniqueFd pipe;
    std::string line;  ///< read since the last end of line
  };
  void read_some(std::size_t rank);
  void emit(std::size_t rank, std::string_view line);
  void write_some();

  int to_;
  int error_ = 0;
  std::vector<Source> sources_;
  std::string queue_;
};

/// Forwards the terminal's input to rank 0. Ranks are in process groups of their own, and the kernel stops a
/// background group that reads from the terminal. A pipe, file or /dev/null needs no forwarding.
class TerminalInput {
 public:
  /// The standard input of rank 0; empty: the launcher's own.
  [[nodiscard]] os::UniqueFd start();
  void add_polls(std::vector<pollfd>& polls) const;
  void handle(const std::vector<pollfd>& polls);

 private:
  os::UniqueFd to_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace onehop::cli
