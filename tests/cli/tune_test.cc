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
  /// Measures one collective, to be fast.
  [[nodiscard]] Result tune(std::vector<std::string> rest,
                            const std::string& collectives = "all-reduce") const {
    rest.insert(rest.begin(), {"tune", "--device", "host", "--iters", "3", "--collectives", collectives});
    return run(rest, options_);
  }
  [[nodiscard]] Result show(std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"tune", "--show"});
    return run(rest, options_);
  }
  [[nodiscard]] Result explain(std::vector<std::string> call, const std::vector<std::string>& rest) const {
    call.insert(call.begin(), {"tune", "--explain"});
    call.insert(call.end(), rest.begin(), rest.end());
    return run(call, options_);
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
  EXPECT_THAT(result.err, AllOf(HasSubstr("all-reduce of 2 host ranks, bf16, f32"), HasSubstr("default us"),
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

TEST_F(Tune, ShowsTheFiguresOfEveryChoiceBeforeItPicks) {
  const Result result = tune({"--ranks", "2", "--sizes", "4K,64K"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = lines_of(result.err);
  EXPECT_THAT(lines.front(), HasSubstr(": onehop tune --device host"));
  const auto at = [&](const std::string& text) {
    return std::find_if(lines.begin(), lines.end(),
                        [&](const std::string& line) { return line.starts_with(text); });
  };
  EXPECT_LT(at("# all-reduce, default: 4K "), at("# all-reduce, one_shot in chunks of 64K: 4K "));
  EXPECT_LT(at("# all-reduce, one_shot in chunks of 64K: 4K "), at("# all-reduce of 2 host ranks, bf16"));
  ASSERT_NE(at("# all-reduce of 2 host ranks, bf16"), lines.end());
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(Tune, PrintsTheTableWhenNoFileIsNamed) {
  const Result result = tune({"--ranks", "3", "--sizes", "4K", "--types", "i32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Tuning table = Tuning::from_json(result.out);
  ASSERT_THAT(table.rows, SizeIs(2));
  EXPECT_EQ(table.rows[0].types, TypeClass::floats) << "not measured, so they stay as they were";
  EXPECT_EQ(table.rows[0].choice, std::nullopt);
  EXPECT_EQ(table.rows[1].types, TypeClass::any);
}

TEST_F(Tune, MeasuresEveryCollectiveThatHasAChoice) {
  const Result result =
      run({"tune", "--device", "host", "--iters", "1", "--ranks", "2", "--sizes", "1K"}, options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Tuning table = Tuning::from_json(result.out);
  std::vector<Collective> measured;
  for (const TuningRow& row : table.rows) measured.push_back(row.collective);
  EXPECT_EQ(measured, tunable_collectives(Backend::host));
}

TEST_F(Tune, JoinsTheJobOfALauncher) {
  const Result result = run({"launch", "-n", "2", "--", ONEHOP_COMMAND, "tune", "--device", "host", "--sizes",
                             "4K", "--iters", "3", "--collectives", "reduce"},
                            options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const TuningRow row = Tuning::from_json(result.out).rows.back();
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.collective, Collective::reduce);
}

TEST_F(Tune, BenchUsesTheAlgorithmOfTheTable) {
  constexpr const char* kRow =
      R"({"collective": "all-reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": "max",
          "algorithm": "%", "chunk": 65536})";
  for (const char* algorithm : {"one-shot", "two-shot"}) {
    std::string row = kRow;
    std::string name = algorithm;
    std::replace(name.begin(), name.end(), '-', '_');
    row.replace(row.find('%'), 1, name);
    write_table(R"({"onehop_tuning": 2, "rows": [)" + row + "]}");
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
  write_table(R"({"onehop_tuning": 2, "rows": [{"collective": "all-reduce", "backend": "cuda", "ranks": 4,
      "types": "float", "up_to": "max", "algorithm": "ll_one_shot", "blocks": 0, "threads": 128}]})");
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

TEST_F(Tune, ATableOfVersion1IsNoLongerRead) {
  write_table(R"({"onehop_tuning": 1, "rows": []})");
  const Result result = show({"--device", "host"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("version 1 is no longer read; 'onehop tune --out FILE' writes a new table"));
}

constexpr const char* kTwoRows = R"({"onehop_tuning": 2, "rows": [
  {"collective": "all-reduce", "backend": "host", "ranks": 3, "types": "float", "up_to": 65536,
   "algorithm": "one_shot", "chunk": 65536},
  {"collective": "all-reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": 65536,
   "algorithm": "one_shot"}]})";

TEST_F(Tune, ShowsTheFilesRowsAndThenTheLibrarysWithoutRanksOrGpus) {
  options_.environment["CUDA_VISIBLE_DEVICES"] = "";
  const Result own = show({"--ranks", "3", "--device", "host"});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_EQ(own.err, "");
  EXPECT_EQ(lines_of(own.out).front(), "# 3 host ranks: the library's own table");
  const std::size_t rows = default_tuning(Backend::host, 3).rows.size();
  EXPECT_THAT(lines_of(own.out), SizeIs(2 + rows));
  EXPECT_THAT(own.out, Not(HasSubstr("file")));

  write_table(kTwoRows);
  const Result with_file = show({"--ranks", "3", "--device", "host"});
  ASSERT_EQ(with_file.exit_code, 0) << with_file.err;
  std::vector<std::string> lines = lines_of(with_file.out);
  EXPECT_THAT(with_file.out, HasSubstr("table.json', then the library's"));
  EXPECT_THAT(with_file.out, HasSubstr("# the file has 1 more row for other groups"));
  std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
  ASSERT_THAT(lines, SizeIs(2 + rows));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("all-reduce"), HasSubstr("64K"), HasSubstr("file"),
                              HasSubstr("one_shot in chunks of 64K")));

  const Result named = show({"--ranks", "3", "--device", "host", "--tuning", base_ / "table.json"});
  EXPECT_EQ(named.out, with_file.out);
  EXPECT_THAT(show({"--ranks", "8", "--device", "cuda"}).out, HasSubstr("# 8 GPUs with NVLink: "));
  EXPECT_THAT(show({"--ranks", "8", "--device", "cuda", "--links", "pcie"}).out,
              HasSubstr("# 8 GPUs with PCIe: "));
  const Result some = show({"--device", "host", "--collectives", "reduce"});
  EXPECT_THAT(some.out, AllOf(HasSubstr("# 4 host ranks"), Not(HasSubstr("all-reduce"))));
}

TEST_F(Tune, ShowsATableThatGroupsCanUse) {
  write_table(kTwoRows);
  const std::string path = base_ / "shown.json";
  const Result result = show({"--ranks", "3", "--device", "host", "--json", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("algorithm"));
  const Tuning table = Tuning::from_json(read(path));
  EXPECT_EQ(table.rows.size(), 1 + default_tuning(Backend::host, 3).rows.size());
  EXPECT_EQ(show({"--ranks", "3", "--device", "host", "--json", "-"}).out, read(path));
  options_.environment["ONEHOP_TUNING"] = path;
  EXPECT_EQ(bench({"--ranks", "3", "--sizes", "1K"}).exit_code, 0);
}

TEST_F(Tune, ExplainsWhichRowACallUses) {
  options_.environment["CUDA_VISIBLE_DEVICES"] = "";
  write_table(kTwoRows);
  const std::vector<std::string> three{"--ranks", "3", "--device", "host"};
  const Result of_file = explain({"all-reduce", "4K", "bf16"}, three);
  ASSERT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_EQ(of_file.out,
            "all-reduce of 4K of bf16 on 3 host ranks: one_shot in chunks of 64K\n"
            "The call uses this row:\n"
            "  file: types float, buffers any, up to 64K: one_shot in chunks of 64K\n");
  const Result own = explain({"all_reduce", "64K", "i32"}, three);
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_THAT(own.out, AllOf(HasSubstr("\n  library, "),
                             HasSubstr("  file: types float, buffers any, up to 64K: one_shot in chunks of "
                                       "64K; i32 is not a floating-point type\n")));
  const Result none = explain({"gather", "4K", "bf16"}, three);
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "gather of 4K of bf16 on 3 host ranks: there is no choice of algorithms\n");
  const std::vector<std::string> gpus{"--ranks", "4", "--device", "cuda"};
  EXPECT_THAT(explain({"all-gather", "1G", "bf16"}, gpus).out, HasSubstr("not declared symmetric"));
  std::vector<std::string> symmetric = gpus;
  symmetric.emplace_back("--symmetric");
  EXPECT_THAT(explain({"all-gather", "1G", "bf16"}, symmetric).out,
              HasSubstr("buffers symmetric, up to max"));
}

}  // namespace
}  // namespace onehop::test
