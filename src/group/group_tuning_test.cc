// SPDX-License-Identifier: Apache-2.0
#include "group/group_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "group/state.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class GroupTuningTest : public ::testing::Test {
 protected:
  GroupTuningTest() {
    char name[] = "/tmp/onehop-group-tuning-test-XXXXXX";
    base_ = ::mkdtemp(name);
  }
  ~GroupTuningTest() override {
    (void)::unsetenv("ONEHOP_TUNING");
    std::filesystem::remove_all(base_);
  }

  [[nodiscard]] std::string write(const char* name, const std::string& text) const {
    const std::string path = base_ / name;
    std::ofstream(path) << text;
    return path;
  }

  /// A group of host ranks in which rank 0 gets `first` and the others `rest`.
  [[nodiscard]] static std::vector<std::string> join(int size, const std::string& first,
                                                     const std::string& rest,
                                                     const std::function<void(Group&)>& body) {
    const std::shared_ptr<Store> store = memory_store();
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        try {
          JoinOptions options;
          options.rank = Rank{r};
          options.size = size;
          options.tuning = r == 0 ? first : rest;
          Group group = Group::join(store, options);
          body(group);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(r)] = error.message();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::filesystem::path base_;
};

/// Rows with `up_to` = 0, 1, 2, ..., `count` in all.
Tuning rows(int count) {
  Tuning tuning;
  for (int i = 0; i < count; ++i) {
    tuning.rows.push_back({.ranks = 3,
                           .up_to = static_cast<std::uint64_t>(i),
                           .choice = AlgorithmChoice{.algorithm = "two_shot", .chunk = 64 << 10}});
  }
  return tuning;
}

TEST_F(GroupTuningTest, RankZerosFileReachesAllRanksHoweverLong) {
  for (const int count : {0, 1, 1000}) {
    const Tuning tuning = rows(count);
    const std::string path = write("table", tuning.to_json());
    const auto errors = join(3, path, "/nobody/reads/this", [&](Group& group) {
      EXPECT_EQ(group.state().tuning().table, tuning);
      EXPECT_EQ(group.tuning_file(), path);
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_F(GroupTuningTest, TheEnvironmentNamesAFileWhereTheOptionsNameNone) {
  const std::string ours = write("ours", rows(1).to_json());
  const std::string theirs = write("theirs", rows(2).to_json());
  ASSERT_EQ(::setenv("ONEHOP_TUNING", theirs.c_str(), 1), 0);
  EXPECT_THAT(join(2, "", "", [&](Group& group) { EXPECT_EQ(group.tuning_file(), theirs); }), Each(""));
  EXPECT_THAT(join(2, ours, "", [&](Group& group) { EXPECT_EQ(group.tuning_file(), ours); }), Each(""));
}

TEST_F(GroupTuningTest, AGroupHasNoTableUnlessOneIsNamed) {
  const TuningText none = choose_tuning({});
  EXPECT_EQ(none.file, "");
  EXPECT_EQ(none.json, "");

  EXPECT_THAT(join(2, "", "",
                   [](Group& group) {
                     EXPECT_EQ(group.tuning_file(), "");
                     EXPECT_EQ(group.state().tuning().table, Tuning{});
                   }),
              Each(""));
}

TEST_F(GroupTuningTest, AFileThatCannotBeReadFailsOnAllRanksWithOneLine) {
  const std::string missing = base_ / "missing";
  const std::string bad = write("bad", R"({"onehop_tuning": 2, "rows": [{}]})");
  const auto never = [](Group&) { ADD_FAILURE() << "joined"; };
  EXPECT_THAT(join(3, missing, "", never),
              Each(AllOf(HasSubstr("rank 0: tuning file '" + missing + "' does not exist"),
                         HasSubstr("JoinOptions::tuning"))));
  EXPECT_THAT(join(3, base_, "", never), Each(HasSubstr("is a directory")));
  EXPECT_THAT(join(3, bad, "", never),
              Each(HasSubstr("rank 0: tuning file '" + bad + "': rows[0]: the field 'backend' is missing")));
  const std::string old = write("old", R"({"onehop_tuning": 1, "rows": []})");
  EXPECT_THAT(join(2, old, "", never),
              Each(HasSubstr("'" + old + "': onehop_tuning: version 1 is no longer read")));
  const std::string huge = write("huge", std::string(kMaxTuningBytes + 1, ' '));
  EXPECT_THAT(join(2, huge, "", never), Each(HasSubstr("more than the limit of 262144 bytes")));
}

TEST_F(GroupTuningTest, GroupsThatAreSplitOffInheritTheTable) {
  const std::string path = write("table", rows(2).to_json());
  const auto errors = join(4, path, "", [&](Group& group) {
    const std::optional<Group> half = group.split(group.rank().value % 2);
    ASSERT_TRUE(half.has_value());
    EXPECT_EQ(half->tuning_file(), path);
    EXPECT_EQ(half->state().tuning().table, rows(2));
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace onehop
