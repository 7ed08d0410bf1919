// SPDX-License-Identifier: Apache-2.0
// What the command shows on a terminal of 80 columns: colors, and lines that fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/command.h"

namespace onehop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kRed = "\x1b[31m";
constexpr std::size_t kColumns = 80;

class Terminal : public CommandTest {
 protected:
  Terminal() {
    options_.on_terminal = true;
    options_.environment.insert({{"TERM", "xterm"}, {"NO_COLOR", ""}, {"LC_ALL", "C"}});
  }

  /// A report of one size, which took so long.
  std::string report(const std::string& name, int microseconds) {
    const std::string path = base_ / name;
    const Result measured =
        run({"bench", "all-reduce", "--ranks", "1", "--sizes", "64", "--json", path}, options_);
    EXPECT_EQ(measured.exit_code, 0) << measured.out;
    nlohmann::json document = nlohmann::json::parse(std::ifstream(path));
    document["results"][0]["time_us"]["median"] = microseconds;
    document["results"][0].erase("rounds_us");
    std::ofstream(path) << document;
    return path;
  }
};

/// What the reader of the screen sees of each line.
std::vector<std::string> visible_lines(const std::string& screen) {
  // A line of progress is overwritten: "\r\x1b[K" begins the line anew.
  const std::string last = std::regex_replace(screen, std::regex("[^\n]*\r\x1b\\[K"), "");
  return lines_of(std::regex_replace(last, std::regex("\x1b\\[[0-9;]*m|\r"), ""));
}

/// A single word, such as a path, stays whole.
void expect_lines_that_fit(const std::string& screen) {
  for (const std::string& line : visible_lines(screen)) {
    const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
    EXPECT_TRUE(line.size() <= kColumns || one_word) << line;
  }
}

TEST_F(Terminal, VerdictsOfDoctorAreColoredAndItsLinesFit) {
  const Result result = run({"doctor"}, options_);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out,
              HasSubstr("  \x1b[32mok\x1b[0m sealed memfd                 create, seal, map and write"));
  EXPECT_THAT(result.out, HasSubstr("\x1b[32mThe host backend works here.\x1b[0m"));
  expect_lines_that_fit(result.out);
}

TEST_F(Terminal, LinesOfDoctorFitWhereverTheCommandIs) {
  const std::filesystem::path folder = base_ / std::string(kColumns, 'x');
  options_.program = folder / "bin" / "onehop";
  std::filesystem::create_directories(folder / "bin");
  std::filesystem::copy_file(ONEHOP_COMMAND, options_.program);
  const std::string library = std::filesystem::canonical(folder) / "libonehop_nccl.so";
  std::ofstream(library).close();
  const Result result = run({"doctor"}, options_);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr(library));
  expect_lines_that_fit(result.out);
}

TEST_F(Terminal, WhatFailsIsRed) {
  options_.environment["ONEHOP_RUNTIME_DIR"] = "/proc/nowhere";
  const Result result = run({"doctor"}, options_);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("  \x1b[31mno\x1b[0m private directory"));
  EXPECT_THAT(result.out, HasSubstr("\x1b[31mThe host backend does not work here.\x1b[0m"));
}

TEST_F(Terminal, RowsOfBenchFitAndTheirCheckIsGreen) {
  const Result result = run({"bench", "all-reduce", "--device", "host", "--ranks", "2", "--sizes", "4K,64M",
                             "--iters", "2", "--repeat", "2"},
                            options_);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("\x1b[32m     ok\x1b[0m\r\n"));
  for (const std::string& line : visible_lines(result.out)) EXPECT_LE(line.size(), kColumns) << line;
}

TEST_F(Terminal, HelpFits) {
  for (const char* const command :
       {"bench", "tune", "topo", "p2p-check", "doctor", "launch", "compare", "help"}) {
    for (const std::string& line : visible_lines(run({command, "--help"}, options_).out))
      EXPECT_LE(line.size(), kColumns) << line;
  }
}

TEST_F(Terminal, FasterIsGreenAndSlowerRed) {
  const std::string ten = report("ten.json", 10);
  const std::string twenty = report("twenty.json", 20);
  EXPECT_THAT(run({"compare", ten, twenty}, options_).out, HasSubstr("\x1b[31mslower\x1b[0m"));
  EXPECT_THAT(run({"compare", twenty, ten}, options_).out, HasSubstr("\x1b[32mfaster\x1b[0m"));
  EXPECT_THAT(run({"compare", ten, ten}, options_).out, Not(HasSubstr(kGreen)));
}

TEST_F(Terminal, NoColorAndDumbTerminalsAreRespected) {
  for (const auto& [name, value] : {std::pair{"NO_COLOR", "1"}, {"TERM", "dumb"}}) {
    CommandOptions options = options_;
    options.environment[name] = value;
    const Result result = run({"doctor"}, options);
    EXPECT_THAT(result.out, HasSubstr("  ok sealed memfd")) << name;
    EXPECT_THAT(result.out, Not(HasSubstr("\x1b["))) << name;
  }
}

TEST_F(Terminal, APipeGetsNoColorsAndAReportForProgramsNeitherOnATerminal) {
  const Result json = run({"doctor", "--json", "-"}, options_);
  EXPECT_THAT(json.out, Not(HasSubstr("\x1b[")));
  options_.on_terminal = false;
  for (const char* const color : {kGreen, kRed})
    EXPECT_THAT(run({"doctor"}, options_).out, Not(HasSubstr(color)));
}

}  // namespace
}  // namespace onehop::test
