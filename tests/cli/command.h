// SPDX-License-Identifier: Apache-2.0
// Running the onehop command in a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace onehop::test {

/// The exit code of the command, or minus the signal that killed it, and its output.
struct Result {
  int exit_code = 0;
  std::string out;
  std::string err;
};

struct CommandOptions {
  std::string input;  ///< its standard input, then end of file
  /// Added to the environment of the test, without the variables of launchers.
  std::map<std::string, std::string> environment;
  /// Its input and output are a terminal of its own with 80 columns: `input` is typed there, and `out` and `err` of the
  /// result are both in `out`, with "\r\n" at the ends of lines.
  bool on_terminal = false;
  std::string program = ONEHOP_COMMAND;  ///< the command, or a copy of it elsewhere
};

/// A running onehop. The destructor kills it. Every wait fails the test after a generous deadline.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments, const CommandOptions& options = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits until the standard output so far holds `count` lines and returns them.
  [[nodiscard]] std::vector<std::string> wait_for_lines(std::size_t count);
  /// Waits until its standard error, or the terminal, holds `text`.
  void wait_for_error(const std::string& text);
  void signal(int number) const;
  /// Types at the terminal. "\x03" is Ctrl-C.
  void type(const std::string& text) const;
  /// Reads everything and waits for the end.
  [[nodiscard]] Result finish();

 private:
  void start_on_terminal(char* const* argv, char* const* envp);
  bool read_more();

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  Result result_;
};

[[nodiscard]] Result run(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// True once the process has ended (it may be a zombie); false after a generous deadline.
[[nodiscard]] bool disappears(pid_t pid);

[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

/// The content of a file.
[[nodiscard]] std::string read(const std::filesystem::path& path);

/// A test with a directory of its own, in which `run` holds the private directories of its commands.
class CommandTest : public ::testing::Test {
 protected:
  CommandTest();
  ~CommandTest() override;
  /// Private directories that commands have not removed.
  [[nodiscard]] std::ptrdiff_t left_behind() const;

  std::filesystem::path base_;
  CommandOptions options_;
};

}  // namespace onehop::test
