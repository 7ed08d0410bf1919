// SPDX-License-Identifier: Apache-2.0
// What is said of a run on GPUs, from figures that were never measured.
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace onehop::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

BenchReport gpu_report() {
  BenchReport report;
  report.options.cuda = true;
  report.options.nccl = true;
  report.options.ranks = 4;
  report.options.type = DType::bf16;
  report.options.wide = true;
  report.launcher = "onehop";
  report.gpus =
      GpuMachine{{"NVIDIA H200", "NVIDIA H200", "NVIDIA H200", "NVIDIA H200"}, "580.1", "13.0", "2.28.9", 18};
  report.notes = {"nccl-sym at 4096 bytes: <broken>"};
  BenchRow both;
  both.bytes = 1024;
  both.count = 512;
  both.algorithm = Algorithm::one_shot;
  both.time = {2.0, 1.9, 2.2};
  both.busbw = 1.5;
  both.batch = 100;
  both.samples = 20;
  both.checked = true;
  both.peers = {{"nccl", {8.0, 7.5, 9.0}, true}, {"nccl-sym", {5.0, 4.9, 5.5}, true}};
  BenchRow one = both;
  one.bytes = 4096;
  one.time = {4.0, 3.9, 4.2};
  one.peers = {{"nccl", {3.2, 3.1, 3.3}, true}, {"nccl-sym", {}, false}};
  report.rows = {both, one};
  return report;
}

TEST(RatioToPeers, IsToTheFastestOfThoseThatHaveATime) {
  const BenchReport report = gpu_report();
  EXPECT_DOUBLE_EQ(ratio_to_peers(report.rows[0]).value(), 0.4);
  EXPECT_DOUBLE_EQ(ratio_to_peers(report.rows[1]).value(), 1.25);
  EXPECT_FALSE(ratio_to_peers(BenchRow{}));
}

TEST(GpuReport, JsonHasThePeersThatHaveATimeAndTheMachine) {
  const json document = json::parse(to_json(gpu_report()));
  EXPECT_EQ(document.at("run").at("mode"), "chain");
  EXPECT_EQ(document.at("run").at("device"), "cuda");
  EXPECT_EQ(document.at("machine").at("gpus").at("nccl"), "2.28.9");
  EXPECT_EQ(document.at("machine").at("gpus").at("names").size(), 4u);
  EXPECT_EQ(document.at("notes").size(), 1u);
  const json& first = document.at("results").at(0);
  EXPECT_EQ(first.at("peers").at("nccl-sym").at("time_us").at("median"), 5.0);
  EXPECT_NEAR(first.at("peers").at("nccl").at("busbw_gbps").get<double>(), 1024 / 8.0 / 1e3 * 1.5, 1e-12);
  EXPECT_DOUBLE_EQ(first.at("ratio_to_best_peer"), 0.4);
  EXPECT_FALSE(document.at("results").at(1).at("peers").contains("nccl-sym"));
}

TEST(GpuReport, OfAMovedBlockHasNoOpAndNoColumnForWhatNcclHasNot) {
  BenchReport report = gpu_report();
  report.options.collective = find_collective("scatter");
  report.options.root = Rank{2};
  for (BenchRow& row : report.rows) row.peers.pop_back();
  EXPECT_THAT(describe(report.options), AllOf(HasSubstr(", bf16, "), HasSubstr(", root 2")));
  const json document = json::parse(to_json(report));
  EXPECT_EQ(document.at("run").at("op"), "none");
  EXPECT_EQ(document.at("run").at("root"), 2);
  EXPECT_NEAR(document.at("results").at(0).at("peers").at("nccl").at("busbw_gbps").get<double>(),
              1024 / 8.0 / 1e3 * 0.75, 1e-12);
  ::testing::internal::CaptureStdout();
  Table table(stdout, false);
  table.begin(report.options, report.gpus);
  for (const BenchRow& row : report.rows) table.row(row, report.options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text,
              AllOf(HasSubstr("scatter: 4 GPU ranks"), HasSubstr("none"), HasSubstr("nccl(us) ours/best"),
                    HasSubstr("8.00      0.25\n"), Not(HasSubstr("nccl-sym"))));
}

TEST(GpuReport, ThePageShowsPeersAsCurvesColumnsAndNotes) {
  const std::string page = to_html(gpu_report());
  EXPECT_THAT(page, AllOf(HasSubstr("4 x NVIDIA H200 (NV18), driver 580.1, CUDA 13.0, NCCL 2.28.9"),
                          HasSubstr("<polyline class=\"peer peer1\""), HasSubstr("<th>nccl-sym"),
                          HasSubstr("<th>ours / best</th>"), HasSubstr("<td>0.40</td>"),
                          HasSubstr("<td>-</td>"), HasSubstr("&lt;broken&gt;"), Not(HasSubstr("<broken>"))));
}

TEST(GpuReport, ThePageComparesWithTheFastestPeerAndNamesEachCurve) {
  const std::string page = to_html(gpu_report());
  EXPECT_THAT(page, AllOf(HasSubstr("<h2>Time relative to the fastest peer"), HasSubstr("class=\"baseline\""),
                          HasSubstr("onehop, 1KB: 0.4\u00d7"), HasSubstr("onehop, 4KB: 1.25\u00d7"),
                          HasSubstr(">nccl-sym</text>"), HasSubstr("prefers-color-scheme: dark")));
  BenchReport alone = gpu_report();
  for (BenchRow& row : alone.rows) row.peers.clear();
  const std::string other = to_html(alone);
  EXPECT_THAT(other, AllOf(HasSubstr("<h2>Time per call"), Not(HasSubstr("relative to")),
                           Not(HasSubstr("class=\"name"))));
}

TEST(GpuReport, TheTableHasTheRatioLastAndAnotherColumnForEagerCalls) {
  BenchReport report = gpu_report();
  report.options.mode = BenchMode::eager;
  report.rows[0].host_ns = 3100;
  ::testing::internal::CaptureStdout();
  Table table(stdout, false);
  table.begin(report.options, report.gpus);
  for (const BenchRow& row : report.rows) table.row(row, report.options);
  table.note(report.notes[0]);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, AllOf(HasSubstr("4 GPU ranks"), HasSubstr("host(ns)"), HasSubstr("3100"),
                          HasSubstr("0.40\n"), HasSubstr("1.25\n"), HasSubstr("# note: nccl-sym")));
}

TEST(GpuReport, TheTableFits80ColumnsInEveryMode) {
  for (const bool nccl : {false, true}) {
    for (const BenchMode mode : {BenchMode::chain, BenchMode::eager}) {
      BenchReport report = gpu_report();
      report.options.wide = false;
      report.options.nccl = nccl;
      report.options.mode = mode;
      for (BenchRow& row : report.rows) row.host_ns = 3100;
      ::testing::internal::CaptureStdout();
      Table table(stdout, false);
      table.begin(report.options, report.gpus);
      for (const BenchRow& row : report.rows) table.row(row, report.options);
      const std::string text = ::testing::internal::GetCapturedStdout();
      for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        EXPECT_LE(end - at, 80u) << text.substr(at, end - at);
      EXPECT_EQ(text.find("ours/best") != std::string::npos, nccl);
    }
  }
}

}  // namespace
}  // namespace onehop::cli
