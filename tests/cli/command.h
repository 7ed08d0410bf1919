// SPDX-License-Identifier: Apache-2.0
// Running the onehop command in a test.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace onehop::test {

/// How the command ended: its exit code, or minus the signal that killed it.
struct Result {
  int exit_code = 0;
  std::string out;
  std::string err;
};

struct CommandOptions {
  std::string input;  ///< its standard input, then end of file
  std::map<std::string, std::string>
      environment;  ///< on top of the test's own, which has no launcher's variables
};

/// A running onehop. Killed by the destructor. Every wait fails the test after a generous deadline.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments, const CommandOptions& options = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits until the standard output so far holds `count` lines and returns them.
  [[nodiscard]] std::vector<std::string> wait_for_lines(std::size_t count);
  /// Waits until its standard error holds `text`.
  void wait_for_error(const std::string& text);
  void signal(int number) const;
  /// Reads everything and waits for the end.
  [[nodiscard]] Result finish();

 private:
  bool read_more();

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  Result result_;
};

[[nodiscard]] Result run(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// True once the process is gone (or waits only for its parent to notice); false after a generous deadline.
[[nodiscard]] bool disappears(pid_t pid);

[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

}  // namespace onehop::test
