// SPDX-License-Identifier: Apache-2.0
// What is said of a run on GPUs, from figures that were never measured.
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/saved.h"

namespace onehop::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A document with one report.
BenchDocument gpu_document() {
  BenchDocument document;
  document.launcher = "onehop";
  document.gpus =
      GpuMachine{{"NVIDIA H200", "NVIDIA H200", "NVIDIA H200", "NVIDIA H200"}, "580.1", "13.0", "2.28.9", 18};
  BenchReport& report = document.reports.emplace_back();
  report.options.cuda = true;
  report.options.nccl = {NcclPeer{}};
  report.options.ranks = 4;
  report.options.type = DType::bf16;
  report.options.wide = true;
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
  return document;
}

TEST(RatioToPeers, IsToTheFastestOfThoseThatHaveATime) {
  const BenchReport report = gpu_document().reports.front();
  EXPECT_DOUBLE_EQ(ratio_to_peers(report.rows[0]).value(), 0.4);
  EXPECT_DOUBLE_EQ(ratio_to_peers(report.rows[1]).value(), 1.25);
  EXPECT_FALSE(ratio_to_peers(BenchRow{}));
}

TEST(GpuReport, JsonHasThePeersThatHaveATimeAndTheMachine) {
  const json document = json::parse(to_json(gpu_document()));
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
  BenchDocument document = gpu_document();
  BenchReport& report = document.reports.front();
  report.options.collective = find_collective("scatter");
  report.options.root = Rank{2};
  for (BenchRow& row : report.rows) row.peers.pop_back();
  EXPECT_THAT(describe(report.options), AllOf(HasSubstr(", bf16, "), HasSubstr(", root 2")));
  const json written = json::parse(to_json(document));
  EXPECT_EQ(written.at("run").at("op"), "none");
  EXPECT_EQ(written.at("run").at("root"), 2);
  EXPECT_NEAR(written.at("results").at(0).at("peers").at("nccl").at("busbw_gbps").get<double>(),
              1024 / 8.0 / 1e3 * 0.75, 1e-12);
  ::testing::internal::CaptureStdout();
  Table table(stdout, false);
  table.begin(report.options, document);
  for (const BenchRow& row : report.rows) table.row(row, report.options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text,
              AllOf(HasSubstr("scatter: 4 GPU ranks"), HasSubstr("none"), HasSubstr("    nccl ours/best"),
                    HasSubstr("8.00      0.25\n"), Not(HasSubstr("nccl-sym"))));
}

TEST(GpuReport, ThePageShowsPeersAsCurvesColumnsAndNotes) {
  const std::string page = to_html(gpu_document());
  EXPECT_THAT(page, AllOf(HasSubstr("4 x NVIDIA H200 (NV18), driver 580.1, CUDA 13.0, NCCL 2.28.9"),
                          HasSubstr("<polyline class=\"peer peer1\""), HasSubstr("<th>nccl-sym"),
                          HasSubstr("<th>ours / best</th>"), HasSubstr("<td>0.40</td>"),
                          HasSubstr("<td>-</td>"), HasSubstr("&lt;broken&gt;"), Not(HasSubstr("<broken>"))));
}

TEST(GpuReport, ThePageComparesWithTheFastestPeerAndNamesEachCurve) {
  const std::string page = to_html(gpu_document());
  EXPECT_THAT(page, AllOf(HasSubstr("<h2>Time relative to the fastest peer"), HasSubstr("class=\"baseline\""),
                          HasSubstr("onehop, 1KB: 0.4\u00d7"), HasSubstr("onehop, 4KB: 1.25\u00d7"),
                          HasSubstr(">nccl-sym</text>"), HasSubstr("prefers-color-scheme: dark")));
  BenchDocument alone = gpu_document();
  for (BenchRow& row : alone.reports.front().rows) row.peers.clear();
  const std::string other = to_html(alone);
  EXPECT_THAT(other, AllOf(HasSubstr("<h2>Time per call"), Not(HasSubstr("relative to")),
                           Not(HasSubstr("class=\"name"))));
}

TEST(Report, SeveralCollectivesAreOneDocumentAndOnePage) {
  BenchDocument document = gpu_document();
  document.reports.push_back(document.reports.front());
  document.reports[0].complete = true;
  document.reports[1].options.collective = find_collective("all-gather");
  const json written = json::parse(to_json(document));
  EXPECT_FALSE(written.contains("results"));
  ASSERT_EQ(written.at("reports").size(), 2u);
  EXPECT_EQ(written.at("reports").at(0).at("run").at("collective"), "all-reduce");
  EXPECT_EQ(written.at("reports").at(1).at("run").at("collective"), "all-gather");
  EXPECT_EQ(written.at("reports").at(1).at("results").size(), 2u);
  EXPECT_EQ(written.at("complete"), false);
  EXPECT_EQ(written.at("machine").at("gpus").at("driver"), "580.1");
  EXPECT_THAT(to_html(document),
              AllOf(HasSubstr("<h1>onehop bench, 2 collectives</h1>"), HasSubstr("href=\"#all-gather\""),
                    HasSubstr("<h2 class=\"collective\" id=\"all-gather\">all-gather</h2>"),
                    HasSubstr("2(n-1)/n of all-reduce, (n-1)/n of all-gather")));
}

TEST(Report, AxesOfOneSizeHaveLabels) {
  BenchDocument document = gpu_document();
  BenchReport& report = document.reports.front();
  report.rows.resize(1);
  report.rows[0].bytes = 1000;
  report.rows[0].time = {102, 100, 116};
  report.rows[0].peers.clear();
  const std::string page = to_html(document);
  EXPECT_THAT(page, AllOf(HasSubstr(">1000B</text>"), HasSubstr(">50 \u00b5s</text>"),
                          HasSubstr(">100 \u00b5s</text>"), HasSubstr(">200 \u00b5s</text>"),
                          HasSubstr("<rect class=\"band\"")));
}

TEST(Report, OurCurveIsDrawnOverThoseOfPeers) {
  const std::string page = to_html(gpu_document());
  EXPECT_GT(page.find("<polyline class=\"curve\""), page.find("dot peer1-mark"));
  EXPECT_GT(page.find("<polyline class=\"curve\""), page.find("<polyline class=\"peer peer1\""));
}

TEST(Report, ASavedReportIsReadAsItWasWritten) {
  BenchDocument document = gpu_document();
  document.build = {"0.1.0", "1a2b3c4"};
  document.origin = {"2025-03-01T12:00:00Z", "node7", "onehop bench all --sizes 1K,4K"};
  document.machine = {"a processor", 64, "Linux 6.1"};
  const auto expect_same = [&] {
    const std::string written = to_json(document);
    const BenchDocument read = parse_document(written, "r.json");
    EXPECT_EQ(to_json(read), written);
    EXPECT_EQ(to_html(read), to_html(document));
  };
  expect_same();
  BenchReport scatter = document.reports.front();
  scatter.options = {};
  scatter.options.ranks = 2;
  scatter.options.collective = find_collective("scatter");
  scatter.options.root = Rank{1};
  scatter.options.binding = Binding::cores;
  scatter.options.repeat = 3;
  scatter.options.tuning = "t.json";
  scatter.notes.clear();
  for (BenchRow& row : scatter.rows) {
    row.peers.clear();
    row.rounds = {1.5, 2, 2.5};
  }
  document.reports.push_back(scatter);
  document.reports.front().options.algorithm = Algorithm::two_shot;
  document.reports.front().options.op = ReduceOp::premul_sum;
  document.reports.front().options.factor = 0.5;
  expect_same();
}

TEST(Report, WhatIsNoSavedReportIsRefusedByNameAndField) {
  const auto refusal = [](const std::string& text) {
    try {
      (void)parse_document(text, "r.json");
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  for (const char* text : {"", "[]", "{}", "null", "{\"format\":\"onehop-compare\"}"})
    EXPECT_THAT(refusal(text), HasSubstr("'r.json' is no report of 'onehop bench --json'")) << text;
  const std::string whole = to_json(gpu_document());
  EXPECT_THAT(refusal(whole.substr(0, whole.size() / 2)), HasSubstr("'r.json' is no report"));
  EXPECT_THAT(refusal(whole.substr(0, whole.size() / 2)), HasSubstr(": it ends too early"));
  EXPECT_THAT(refusal("{\"format\": NaN}"), HasSubstr("not valid JSON at line 1, column 12"));
  // Read in full, it would take fifty times its size.
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), HasSubstr("nested deeper than 16 levels"));
  json written = json::parse(whole);
  written["run"]["collective"] = "all-gaffer";
  EXPECT_THAT(refusal(written.dump()), HasSubstr("r.json: run.collective: unknown collective 'all-gaffer'"));
  written["run"].erase("collective");
  EXPECT_THAT(refusal(written.dump()), HasSubstr("r.json: run: the field 'collective' is missing"));
}

TEST(Report, ARowWithoutAMedianHasNoPointInAPlot) {
  BenchDocument document = gpu_document();
  for (BenchRow& row : document.reports.front().rows) row.time.median_us = 0;
  EXPECT_THAT(to_html(document), Not(HasSubstr("<polyline")));
}

TEST(Report, ALongNameOfAPeerLeavesRoomForItsCurve) {
  const std::string name(64, 'n');
  BenchDocument document = gpu_document();
  for (BenchRow& row : document.reports.front().rows) row.peers.push_back({name, {7, 6, 8}, true});
  const std::string page = to_html(document);
  EXPECT_THAT(page, HasSubstr(">" + std::string(17, 'n') + "...</text>"));
  EXPECT_THAT(page, HasSubstr(name)) << "the legend and the table have it";
  // The names begin right of the axis, which is at 62.
  const std::size_t text = page.find("<text class=\"name ");
  ASSERT_NE(text, std::string::npos);
  EXPECT_GT(std::stod(page.substr(page.find(" x=\"", text) + 4)), 200);
}

TEST(Report, WhatNoPageCanShowIsRefusedByField) {
  const auto refusal = [](const char* path, const json& value) {
    json document = json::parse(to_json(gpu_document()));
    document[json::json_pointer(path)] = value;
    try {
      (void)parse_document(document.dump(), "r.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::protocol);
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("/format_version", 2), "r.json: format_version: is 2; this onehop reads 1");
  EXPECT_EQ(refusal("/run/device", "tpu"), "r.json: run.device: must be cuda or host, got \"tpu\"");
  EXPECT_EQ(refusal("/run/policy", "tuned"), "accepted") << "a report of an earlier version";
  EXPECT_EQ(refusal("/run/policy", "legacy"), "r.json: run.policy: must be tuned, got \"legacy\"");
  // Logarithmic axes from 0 or to infinity would have 2^31 labels.
  for (const double us : {-5.0, 5e-324, 1e300}) {
    EXPECT_THAT(refusal("/results/0/time_us/median", us),
                HasSubstr("results[0].time_us.median: must be 0 or a number from 1e-15 to 1e+15, got "))
        << us;
  }
  EXPECT_THAT(refusal("/results/0/bytes", ~std::uint64_t{0}),
              HasSubstr("results[0].bytes: must be an integer from 0 to 4611686018427387904"));
  EXPECT_THAT(refusal("/host", "\x1b[2J"), HasSubstr("r.json: host: ")) << "a sequence for a terminal";
  // Names are text, like values.
  for (const std::string& name : {std::string("\x1b[31m"), std::string("a\0b", 3), std::string()}) {
    EXPECT_EQ(refusal("/results/0/peers", {{name, 3}}),
              "r.json: results[0].peers: has a member whose name is not 1 to 64 printable ASCII characters");
  }
}

TEST(GpuReport, TheTableHasTheRatioLastAndAnotherColumnForEagerCalls) {
  BenchDocument document = gpu_document();
  BenchReport& report = document.reports.front();
  report.options.mode = BenchMode::eager;
  report.rows[0].host_ns = 3100;
  ::testing::internal::CaptureStdout();
  Table table(stdout, false);
  table.begin(report.options, document);
  for (const BenchRow& row : report.rows) table.row(row, report.options);
  table.note(report.notes[0]);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, AllOf(HasSubstr("4 GPU ranks"), HasSubstr("host(ns)"), HasSubstr("3100"),
                          HasSubstr("0.40\n"), HasSubstr("1.25\n"), HasSubstr("# note: nccl-sym")));
}

TEST(GpuReport, TheTableFits80ColumnsInEveryMode) {
  for (const std::vector<NcclPeer>& nccl :
       {std::vector<NcclPeer>{}, {NcclPeer{}}, {NcclPeer{}, NcclPeer{"new", "/lib"}}}) {
    for (const BenchMode mode : {BenchMode::chain, BenchMode::eager}) {
      BenchDocument document = gpu_document();
      BenchReport& report = document.reports.front();
      report.options.wide = false;
      report.options.nccl = nccl;
      report.options.mode = mode;
      for (BenchRow& row : report.rows) {
        row.host_ns = 3100;
        if (nccl.size() > 1)
          row.peers.insert(row.peers.end(), {{"new", {7, 6, 8}, true}, {"new-sym", {6, 5, 7}, true}});
      }
      ::testing::internal::CaptureStdout();
      Table table(stdout, false);
      table.begin(report.options, document);
      for (const BenchRow& row : report.rows) table.row(row, report.options);
      const std::string text = ::testing::internal::GetCapturedStdout();
      for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        EXPECT_LE(end - at, 80u) << text.substr(at, end - at);
      EXPECT_EQ(text.find("ours/best") != std::string::npos, !nccl.empty());
      EXPECT_EQ(text.find("new-sym") != std::string::npos, nccl.size() > 1);
    }
  }
}

}  // namespace
}  // namespace onehop::cli
