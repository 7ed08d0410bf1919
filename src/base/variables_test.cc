// SPDX-License-Identifier: Apache-2.0
#include "base/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/log.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> complaints(std::vector<std::string_view> environment) {
  return complaints_about(environment);
}

TEST(Variables, NonsenseIsNamedWithTheLegalValues) {
  const std::pair<const char*, const char*> cases[] = {
      {"ONEHOP_LOG=loud", "trace, debug, info, warn, error or off"},
      {"ONEHOP_LOG=INFO", "trace, debug, info, warn, error or off"},
      {"ONEHOP_CHECK=maybe", "1 or 0"},
      {"ONEHOP_ALLOW_OVERLAPPING_DEVICES=2", "1 or 0"},
      {"ONEHOP_FORCE_FULLY_CONNECTED=perhaps", "1 or 0"},
      {"ONEHOP_HOST_ISA=mmx", "avx512, avx2 or baseline"},
      {"ONEHOP_FAULT=barrier", "point:rank:action"},
      {"ONEHOP_FAULT=barrier:x:kill", "point:rank:action"},
      {"ONEHOP_FAULT=barrier#0:1:kill", "point#visit:rank:action"},
      {"ONEHOP_FAULT=barrier:1:explode", "kill, stop, exit, error, delay or none"},
  };
  for (const auto& [entry, legal] : cases) {
    const std::string text(entry);
    const std::size_t equals = text.find('=');
    const auto found = complaints({entry});
    ASSERT_THAT(found, SizeIs(1)) << entry;
    EXPECT_THAT(found[0], AllOf(HasSubstr(text.substr(0, equals)),
                                HasSubstr("'" + text.substr(equals + 1) + "'"), HasSubstr(legal)));
  }
}

TEST(Variables, WhatMakesSenseIsNoComplaint) {
  EXPECT_THAT(complaints({"ONEHOP_LOG=debug", "ONEHOP_LOG=warning", "ONEHOP_CHECK=ON", "ONEHOP_CHECK=",
                          "ONEHOP_LOG", "ONEHOP_HOST_ISA=baseline", "ONEHOP_FAULT=barrier:1:kill",
                          "ONEHOP_FAULT=all_reduce.data#3:0:delay", "ONEHOP_FAULT=nowhere:-1:none",
                          "ONEHOP_TUNING=/a/file", "ONEHOP_STORE=file:/tmp/x", "ONEHOP_TEST_SEED=4",
                          "ONEHOP_DEBIAN_MIRROR=http://x", "PATH=/bin", "ONEHOPE=1", ""}),
              IsEmpty());
}

TEST(Variables, AnUnknownOneIsNamedWithTheNearestThatIsKnown) {
  auto found = complaints({"ONEHOP_LOGS=info", "ONEHOP_TUNNING=/x", "ONEHOP_SIZES=4"});
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_THAT(found[0], AllOf(HasSubstr("ONEHOP_LOGS"), HasSubstr("did you mean ONEHOP_LOG?")));
  EXPECT_THAT(found[1], HasSubstr("did you mean ONEHOP_TUNING?"));
  EXPECT_THAT(found[2], HasSubstr("did you mean ONEHOP_SIZE?"));
  found = complaints({"ONEHOP_COLORS=yes"});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0], AllOf(HasSubstr("ONEHOP_COLORS"), HasSubstr("onehop help environment")));
}

/// The rows of the guide's tables whose first cell is one of our variables.
std::map<std::string, std::string> documented() {
  std::ifstream page(ONEHOP_SOURCES "/docs/guide/groups.md");
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `ONEHOP_")) continue;
    const std::size_t end = line.find('`', 3);
    rows[line.substr(3, end - 3)] = line;
  }
  return rows;
}

TEST(Variables, TheGuideListsExactlyThoseOfTheTableWithTheirReadersAndValues) {
  auto rows = documented();
  for (const Variable& each : variables()) {
    const auto row = rows.find(std::string(each.name));
    ASSERT_NE(row, rows.end()) << each.name << " has no row in docs/guide/groups.md";
    EXPECT_THAT(row->second,
                HasSubstr("| " + std::string(each.readers) + " | " + std::string(each.values) + " |"));
    rows.erase(row);
  }
  for (const auto& [name, row] : rows) ADD_FAILURE() << name << " is in docs/guide/groups.md only";
}

/// Runs in a separate process, because the variable is read only once.
#define EXPECT_LOG(variable, value, statement, pattern) \
  EXPECT_EXIT(                                          \
      {                                                 \
        (void)::setenv(variable, value, 1);             \
        statement;                                      \
        std::_Exit(0);                                  \
      },                                                \
      ::testing::ExitedWithCode(0), pattern)

TEST(Log, ALevelShowsItselfAndWhatIsWorse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_LOG("ONEHOP_LOG", "info", log::info("hello {}", 1), "info onehop\\[[0-9]+\\] hello 1");
  EXPECT_LOG("ONEHOP_LOG", "info", (log::debug("hello"), log::warn("end")),
             ::testing::Not(HasSubstr("hello")));
  EXPECT_LOG("ONEHOP_LOG", "debug", log::debug("hello"), "debug onehop");
  EXPECT_LOG("ONEHOP_LOG", "off", log::warn("hello"), ::testing::Not(HasSubstr("hello")));
  EXPECT_LOG("ONEHOP_LOG", "", log::warn("hello"), "hello");
  EXPECT_LOG("ONEHOP_LOG", "warning", (log::info("hello"), log::warn("end")),
             ::testing::AllOf(HasSubstr("warning onehop"), ::testing::Not(HasSubstr("hello"))));
}

TEST(Log, ALevelThatIsOffIsNotAskedForTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        (void)::setenv("ONEHOP_LOG", "error", 1);
        const bool before = log::detail::g_threshold.load() == log::Level::trace;
        const bool on = log::enabled(log::Level::warn);
        std::_Exit(before && !on && log::detail::g_threshold.load() == log::Level::error ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Variables, AProcessWarnsOfItsEnvironmentOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto once = ::testing::AllOf(HasSubstr("ONEHOP_LOG='loud'"), HasSubstr("did you mean ONEHOP_CHECK?"),
                                     ::testing::Not(ContainsRegex("CHECKS.*\n.*CHECKS")));
  EXPECT_LOG(
      "ONEHOP_LOG", "loud",
      {
        (void)::setenv("ONEHOP_CHECKS", "1", 1);
        check_environment();
        check_environment();
      },
      once);
  EXPECT_LOG(
      "ONEHOP_LOG", "loud",
      {
        (void)::setenv("ONEHOP_FAILURE_FILE", "/tmp/f", 1);
        check_environment();
      },
      ::testing::Not(HasSubstr("ONEHOP_LOG")));
}

}  // namespace
}  // namespace onehop
