// SPDX-License-Identifier: Apache-2.0
#include "bench/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "onehop/error.h"

#include "bench/report.h"
#include "bench/saved.h"

namespace onehop::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What 2 GPUs took: 1 us, and beyond 1000 bytes a microsecond for 1000 bytes.
BenchDocument measured(const char* collective, int ranks = 2) {
  BenchDocument document;
  document.launcher = "onehop";
  document.gpus = GpuMachine{{"NVIDIA H200", "NVIDIA H200"}, "580.1", "13.0", "2.28.9", 18};
  BenchReport& report = document.reports.emplace_back();
  report.complete = true;
  report.options.collective = find_collective(collective);
  report.options.cuda = true;
  report.options.nccl = {NcclPeer{}};
  report.options.ranks = ranks;
  report.options.type = DType::u8;
  for (const std::uint64_t bytes : {1000, 2000, 6000, 24000, 96000}) {
    BenchRow row;
    row.bytes = bytes;
    row.time.median_us = static_cast<double>(bytes) / 1000;
    row.checked = true;
    row.peers = {{"nccl", {8.0, 7.5, 9.0}, true}};
    report.rows.push_back(row);
  }
  return document;
}

double time_of(const char* collective, std::size_t row, int ranks) {
  const BenchDocument document = predict(measured(collective), "two.json", ranks);
  return document.reports.front().rows.at(row).time.median_us;
}

TEST(Predict, AnAllReduceSendsToAllOrSpreadsTheWork) {
  EXPECT_DOUBLE_EQ(time_of("all-reduce", 0, 3), 2)
      << "2 x 1000 bytes in one hop: less than 1333, and another hop";
  EXPECT_DOUBLE_EQ(time_of("all-reduce", 3, 4), 24 * 1.5 + 1) << "not 3 x 24000 bytes";
  EXPECT_DOUBLE_EQ(time_of("all-reduce", 4, 8), 96 * 1.75 + 1) << "more than was measured: in proportion";
}

TEST(Predict, DataOfOneRankGoesToAllOrInTwoHops) {
  for (const char* collective : {"broadcast", "reduce"}) {
    EXPECT_DOUBLE_EQ(time_of(collective, 0, 3), 2) << collective;
    EXPECT_DOUBLE_EQ(time_of(collective, 3, 4), 25) << collective;
  }
}

TEST(Predict, BlocksTakeOneHop) {
  for (const char* collective : {"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"})
    EXPECT_DOUBLE_EQ(time_of(collective, 3, 4), 24 * 0.75 / 0.5) << collective;
  EXPECT_DOUBLE_EQ(time_of("send-recv", 3, 8), 24) << "a ring is the same on any number of ranks";
}

TEST(Predict, SizesAreWholeBlocksAndNothingElseIsKept) {
  const BenchDocument document = predict(measured("all-gather"), "two.json", 3);
  const BenchReport& report = document.reports.front();
  EXPECT_EQ(report.options.ranks, 3);
  const BenchRow& row = report.rows.front();
  EXPECT_EQ(row.bytes, 999u);
  EXPECT_EQ(row.count, 333u);
  EXPECT_FALSE(row.checked);
  EXPECT_TRUE(row.peers.empty());
  EXPECT_NEAR(row.algbw, 999 / row.time.median_us / 1000, 1e-9);
}

TEST(Predict, AReportSaysThatItIsAPrediction) {
  const std::string json = to_json(predict(measured("all-reduce"), "two.json", 8));
  EXPECT_EQ(nlohmann::json::parse(json).at("run").at("predicted_from"), 2);
  const BenchDocument again = parse_document(json, "eight.json");
  EXPECT_EQ(again.reports.front().options.predicted_from, 2);
  const std::string page = to_html(again);
  EXPECT_THAT(page, HasSubstr("8 GPU ranks (processes), predicted from 2,"));
  EXPECT_THAT(page, HasSubstr("from what 2 GPUs took"));
  EXPECT_THAT(page, Not(HasSubstr("<th>check"))) << "nothing was verified";
  try {
    (void)predict(again, "eight.json", 4);
    ADD_FAILURE() << "predicts from a prediction";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("'eight.json' is a prediction itself"));
  }
}

TEST(Predict, TheTableHasOnlyWhatIsPredicted) {
  const BenchDocument document = predict(measured("all-gather"), "two.json", 4);
  const BenchReport& report = document.reports.front();
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* const file = ::open_memstream(&text, &length);
  Table table(file, /*terminal=*/false);
  table.begin(report.options, document);
  table.row(report.rows.front(), report.options);
  ASSERT_EQ(std::fclose(file), 0);
  const std::string printed(text, length);
  std::free(text);
  EXPECT_THAT(printed, AllOf(HasSubstr("predicted from 2"), HasSubstr("time: us per call, predicted"),
                             HasSubstr("      bytes      count    time(us)    algbw    busbw\n"),
                             HasSubstr("       1000        250        1.50")));
}

TEST(Predict, OnlyWhatTwoGpusMeasured) {
  try {
    (void)predict(measured("all-reduce", 4), "four.json", 8);
    ADD_FAILURE() << "predicts from 4 ranks";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("'four.json' has all-reduce of 4 GPU ranks"), HasSubstr("2 GPUs")));
  }
}

}  // namespace
}  // namespace onehop::cli
