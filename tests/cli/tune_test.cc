// SPDX-License-Identifier: Apache-2.0
// onehop tune, and groups that follow what it wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "onehop/tuning.h"

#include "cli/command.h"

namespace onehop::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Tune : public CommandTest {
 protected:
  ~Tune() override { EXPECT_EQ(left_behind(), 0) << "private files were left behind"; }
  [[nodiscard]] Result tune(std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"tune", "--device", "host", "--iters", "3"});
    return run(rest, options_);
  }
  [[nodiscard]] Result bench(std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"bench", "all-reduce", "--device", "host", "--iters", "3", "--wide"});
    return run(rest, options_);
  }
  void write_table(const std::string& text) {
    std::ofstream(base_ / "table.json") << text;
    options_.environment["ONEHOP_TUNING"] = base_ / "table.json";
  }
  /// The algorithm of each row of bench's table.
  [[nodiscard]] static std::vector<std::string> algorithms(const std::string& out) {
    std::vector<std::string> all;
    for (const std::string& line : lines_of(out)) {
      std::istringstream words(line);
      const std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
      if (row.size() > 4 && row[0].find_first_not_of("0123456789") == std::string::npos)
        all.push_back(row[4]);
    }
    return all;
  }
};

TEST_F(Tune, WritesATableForTheseRanksAndAllSizesThatGroupsFollow) {
  const std::string path = base_ / "out.json";
  const Result result = tune({"--ranks", "2", "--sizes", "64K,1K", "--types", "bf16,f32", "--out", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 host ranks, bf16, f32"), HasSubstr("default us"),
                                Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
  std::vector<std::string> lines = lines_of(result.err);
  std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
  EXPECT_THAT(lines, SizeIs(3)) << "the head, and one per size";

  const Tuning table = Tuning::from_json(read(path));
  ASSERT_FALSE(table.rows.empty());
  EXPECT_LE(table.rows.size(), 2u);
  EXPECT_EQ(table.rows.back().up_to, kNoLimit);
  for (const TuningRow& row : table.rows) {
    EXPECT_EQ(row.backend, Backend::host);
    EXPECT_EQ(row.ranks, 2);
    EXPECT_EQ(row.types, TypeClass::floats);
  }

  options_.environment["ONEHOP_TUNING"] = path;
  const Result measured = bench({"--ranks", "2", "--sizes", "1K,64K,1M", "--json", base_ / "r.json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("tuning " + path));
  EXPECT_EQ(json::parse(read(base_ / "r.json")).at("run").at("tuning"), path);
}

TEST_F(Tune, ShowsTheFiguresOfEveryWayBeforeItChooses) {
  const Result result = tune({"--ranks", "2", "--sizes", "4K,64K"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = lines_of(result.err);
  EXPECT_THAT(lines.front(), HasSubstr(": onehop tune --device host"));
  const auto at = [&](const std::string& text) {
    return std::find_if(lines.begin(), lines.end(),
                        [&](const std::string& line) { return line.starts_with(text); });
  };
  EXPECT_LT(at("# default: 4K "), at("# one-shot in chunks of 64K: 4K "));
  EXPECT_LT(at("# one-shot in chunks of 64K: 4K "), at("# 2 host ranks, bf16"));
  ASSERT_NE(at("# 2 host ranks, bf16"), lines.end());
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(Tune, PrintsTheTableWhenNoFileIsNamed) {
  const Result result = tune({"--ranks", "3", "--sizes", "4K", "--types", "i32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Tuning table = Tuning::from_json(result.out);
  ASSERT_THAT(table.rows, SizeIs(2));
  EXPECT_EQ(table.rows[0].types, TypeClass::floats) << "not measured, so they stay as they were";
  EXPECT_EQ(table.rows[0].way, Way(DefaultWay{}));
  EXPECT_EQ(table.rows[1].types, TypeClass::any);
}

TEST_F(Tune, JoinsTheJobOfALauncher) {
  const Result result = run({"launch", "-n", "2", "--", ONEHOP_COMMAND, "tune", "--device", "host", "--sizes",
                             "4K", "--iters", "3"},
                            options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Tuning::from_json(result.out).rows.back().ranks, 2);
}

TEST_F(Tune, BenchGoesTheWayOfTheTable) {
  constexpr const char* kRow =
      R"({"collective": "all-reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": "max",
          "algorithm": "%", "chunk": 65536})";
  for (const char* algorithm : {"one-shot", "two-shot"}) {
    std::string row = kRow;
    row.replace(row.find('%'), 1, algorithm);
    write_table(R"({"onehop_tuning": 1, "rows": [)" + row + "]}");
    const Result result = bench({"--ranks", "2", "--sizes", "1K,100001,4M"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(algorithms(result.out), AllOf(SizeIs(3), Each(algorithm)));
  }
}

TEST_F(Tune, BenchSaysWhenItFollowsWhatIsShipped) {
  const Result result = bench({"--ranks", "2", "--sizes", "1K", "--json", base_ / "r.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tuning shipped"));
  EXPECT_EQ(json::parse(read(base_ / "r.json")).at("run").at("tuning"), "shipped");
}

TEST_F(Tune, AFileThatIsNoTableIsOneLineNamingRowAndValue) {
  write_table(R"({"onehop_tuning": 1, "rows": [{"collective": "all-reduce", "backend": "cuda", "ranks": 4,
      "types": "float", "up_to": "max", "protocol": "packets", "blocks": 0, "threads": 128}]})");
  for (const char* threads : {"--threads", "--check"}) {
    const Result result = bench({"--ranks", "3", "--sizes", "1K", threads});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr(base_ / "table.json"), HasSubstr("rows[0].blocks"),
                                  HasSubstr("got 0"), HasSubstr("onehop tune")));
    EXPECT_THAT(algorithms(result.out), IsEmpty());
  }
  options_.environment["ONEHOP_TUNING"] = "/nonexistent";
  const Result result = bench({"--ranks", "2", "--sizes", "1K"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("'/nonexistent' does not exist"), HasSubstr("ONEHOP_TUNING")));
  // Ranks that are ended because rank 0 failed leave directories behind, which the next run removes.
  options_.environment.erase("ONEHOP_TUNING");
  EXPECT_EQ(bench({"--ranks", "2", "--sizes", "1K"}).exit_code, 0);
}

}  // namespace
}  // namespace onehop::test
