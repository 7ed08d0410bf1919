// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each adds itself to the app; when it was chosen, its callback sets `run` to the function
// that does the work and returns the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace onehop::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  ///< what was asked failed
inline constexpr int kExitUsage = 2;   ///< the command line makes no sense

/// A command line that makes no sense: one line to stderr with a pointer to --help, exit code 2.
class UsageError : public std::exception {
 public:
  explicit UsageError(std::string message) : message_(std::move(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// `command_line`: how this program was called; bench and tune start themselves again in every rank.
void add_bench(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run);
void add_tune(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run);
void add_topo(CLI::App& app, std::function<int()>& run);
void add_p2p_check(CLI::App& app, std::function<int()>& run);
void add_doctor(CLI::App& app, std::function<int()>& run);
void add_launch(CLI::App& app, std::function<int()>& run);
void add_compare(CLI::App& app, std::function<int()>& run);
void add_help(CLI::App& app, std::function<int()>& run);

/// What is wrong with an item of --devices, as CLI11's validators say it: it takes nothing for device 0.
[[nodiscard]] inline std::string complaint_about_devices(const std::string& item) {
  return item.empty() ? "names no device; write numbers, such as 0,1" : "";
}

/// Of the subcommands that --help shows.
[[nodiscard]] std::vector<std::string> names_of_commands(const CLI::App& app);

}  // namespace onehop::cli
