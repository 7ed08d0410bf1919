// SPDX-License-Identifier: Apache-2.0
// Output of several processes on one stream, line by line, each with its rank before it.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "fd.h"

namespace onehop::cli {

/// Reads the pipes of all ranks and writes whole lines, as "[rank] line", to one descriptor: lines of
/// different ranks never mix. Never blocks: the owner polls what `add_polls` asks for and hands the answers
/// to `handle`. A reader of the output that is slow slows the ranks down, never the owner's loop.
class RankOutput {
 public:
  explicit RankOutput(int to) : to_(to) {}

  /// The write end of a new pipe for the next rank (ranks are numbered in the order of these calls).
  [[nodiscard]] Fd add_rank();

  void add_polls(std::vector<pollfd>& polls) const;
  void handle(const std::vector<pollfd>& polls);
  /// True when every rank closed its end and everything is written, or nobody reads any more.
  [[nodiscard]] bool finished() const;
  /// Takes what the pipes hold now and stops listening, whoever still has them open.
  void stop_reading();
  /// True once the output's reader went away (EPIPE).
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  struct Source {
    Fd pipe;
    std::string line;  // what was read since the last end of line
  };
  void read_some(std::size_t rank);
  void emit(std::size_t rank, std::string_view line);
  void write_some();

  int to_;
  bool broken_ = false;
  std::vector<Source> sources_;
  std::string queue_;
};

}  // namespace onehop::cli
