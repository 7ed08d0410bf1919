// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each adds itself to the app. Its callback sets `run` to a function that does the work and
// returns the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace onehop::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  ///< the command failed
inline constexpr int kExitUsage = 2;   ///< the command line is wrong

/// A wrong command line: one line to stderr with a pointer to --help, exit code 2.
class UsageError : public std::exception {
 public:
  explicit UsageError(std::string message) : message_(std::move(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// `command_line`: the arguments of this process; bench and tune start it again for every rank.
void add_bench(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run);
void add_tune(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run);
void add_topo(CLI::App& app, std::function<int()>& run);
void add_p2p_check(CLI::App& app, std::function<int()>& run);
void add_doctor(CLI::App& app, std::function<int()>& run);
void add_launch(CLI::App& app, std::function<int()>& run);
void add_nccl_run(CLI::App& app, std::function<int()>& run);
void add_compare(CLI::App& app, std::function<int()>& run);
void add_help(CLI::App& app, std::function<int()>& run);

/// The build's request for the command's options; --help does not show it.
inline constexpr const char* kCommandTreeOption = "--command-tree";
/// Prints every subcommand and option as JSON, from which tools/onehop/command_documents.py makes the man page
/// and the shell completions. Returns the exit code.
int print_command_tree(const CLI::App& app);

/// The subcommands that --help shows.
[[nodiscard]] std::vector<std::string> names_of_commands(const CLI::App& app);

}  // namespace onehop::cli
