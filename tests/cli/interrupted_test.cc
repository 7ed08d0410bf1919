// SPDX-License-Identifier: Apache-2.0
// A run that ends early leaves a valid report of the finished rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace onehop::test {
namespace {

using nlohmann::json;

class Interrupted : public CommandTest, public ::testing::WithParamInterface<std::string> {
 protected:
  /// Many short rows, so that the signal arrives between them.
  [[nodiscard]] std::vector<std::string> many_rows(const std::string& to) const {
    std::string sizes = "4K";
    for (int i = 0; i < 3000; ++i) sizes += ",4K";
    std::vector<std::string> arguments = {"bench",   "all-reduce", "--device", "host",     "--ranks",
                                          "2",       "--iters",    "20",       "--repeat", "1",
                                          "--sizes", sizes,        "--json",   to};
    if (GetParam() == "threads") arguments.emplace_back("--threads");
    return arguments;
  }
};

TEST_P(Interrupted, TheFileHoldsTheRowsThatTheTableShowed) {
  const auto path = base_ / "r.json";
  std::vector<std::string> arguments = many_rows(path);
  arguments.insert(arguments.end(), {"--html", base_ / "r.html"});
  Command command(arguments, options_);
  (void)command.wait_for_lines(25);
  command.signal(SIGINT);
  const Result result = command.finish();
  EXPECT_NE(result.exit_code, 0);
  const std::vector<std::string> lines = lines_of(result.out);
  std::size_t shown = 0;
  for (const std::string& line : lines) shown += line.ends_with("    ok") ? 1 : 0;
  ASSERT_GE(shown, 5u) << result.out;
  const json document = json::parse(read(path));
  EXPECT_EQ(document.at("complete"), false);
  // The row of the table comes first.
  EXPECT_GE(document.at("results").size() + 1, shown);
  EXPECT_GE(document.at("results").size(), 5u);
  EXPECT_FALSE(std::filesystem::exists(base_ / "r.html")) << "no empty page";
}

/// What is on the terminal's last line, where the shell shows its prompt.
std::string last_line(const std::string& screen) {
  return screen.substr(screen.rfind('\n') + 1);
}

TEST_F(CommandTest, ControlCLeavesTheTerminalAtTheBeginningOfALine) {
  options_.on_terminal = true;
  const std::vector<std::string> bench = {"bench", "all-reduce", "--device", "host",    "--ranks",
                                          "2",     "--sizes",    "64M",      "--iters", "100000"};
  const std::vector<std::string> tune = {
      "tune",    "--device", "host",  "--ranks",           "2", "--collectives", "all-reduce",
      "--sizes", "64M",      "--out", base_ / "table.json"};
  for (const auto& [arguments, shown] :
       {std::pair{bench, " ..."},
        {tune, " ..."},
        {{"launch", "-n", "2", "--", "sh", "-c", "echo up; sleep 60"}, "up"}}) {
    Command command(arguments, options_);
    command.wait_for_error(shown);
    command.type("\x03");
    const Result result = command.finish();
    EXPECT_EQ(result.exit_code, -SIGINT) << arguments.front() << ": " << result.out;
    EXPECT_THAT(result.out, ::testing::HasSubstr("^C")) << arguments.front();
    // The terminal may write its echo after the command's newline.
    std::string screen = result.out;
    screen.erase(screen.find("^C"), 2);
    EXPECT_EQ(last_line(screen), "") << arguments.front() << ": " << result.out;
    if (arguments.front() == "launch") {
      const std::vector<std::string> lines = lines_of(screen);
      EXPECT_EQ(std::ranges::count(screen, '\n'), std::ranges::count(lines, "up\r") + 1) << result.out;
    }
  }
}

TEST_F(CommandTest, AnInterruptWritesNothingMoreToAPipe) {
  Command command({"launch", "-n", "2", "--", "sh", "-c", "echo up; sleep 60"}, options_);
  (void)command.wait_for_lines(2);
  command.signal(SIGINT);
  const Result result = command.finish();
  EXPECT_EQ(result.out, "up\nup\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(CommandTest, AnInterruptedTuneLeavesNoEmptyTable) {
  const auto path = base_ / "table.json";
  Command command({"tune", "--device", "host", "--ranks", "2", "--collectives", "all-reduce", "--sizes",
                   "64K,16M", "--out", path},
                  options_);
  command.wait_for_error("all-reduce, default:");  // others follow
  command.signal(SIGINT);
  EXPECT_NE(command.finish().exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_P(Interrupted, JsonOnStandardOutputIsWhole) {
  options_.environment["ONEHOP_LOG"] = "debug";  // the only output before the end
  Command command(many_rows("-"), options_);
  command.wait_for_error("rank 0 of 'bench': all_reduce(");
  command.signal(SIGINT);
  const Result result = command.finish();
  EXPECT_NE(result.exit_code, 0);
  const json document = json::parse(result.out);
  EXPECT_EQ(document.at("complete"), false);
  EXPECT_TRUE(document.at("results").is_array());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Interrupted, ::testing::Values("processes", "threads"),
                         [](const auto& ranks) { return ranks.param; });

}  // namespace
}  // namespace onehop::test
