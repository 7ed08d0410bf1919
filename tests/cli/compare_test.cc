// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "onehop/error.h"

namespace onehop::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

BenchRow row(std::uint64_t bytes, double us, std::vector<double> rounds = {}) {
  BenchRow row;
  row.bytes = bytes;
  row.time = {us, us, us};
  row.rounds = std::move(rounds);
  return row;
}

BenchReport report_of(const char* collective, std::vector<BenchRow> rows) {
  BenchReport report;
  report.options.collective = find_collective(collective);
  report.rows = std::move(rows);
  report.complete = true;
  return report;
}

BenchDocument document(std::vector<BenchReport> reports) {
  BenchDocument document;
  document.origin = {"2025-03-01T12:00:00Z", "node7", "onehop bench all-reduce"};
  document.launcher = "onehop";
  document.reports = std::move(reports);
  return document;
}

ReportRows report(const std::string& name, const std::vector<std::pair<unsigned, double>>& rows,
                  DType type = DType::f32) {
  BenchReport report = report_of("all-reduce", {});
  report.options.type = type;
  for (const auto& [bytes, us] : rows) report.rows.push_back(row(bytes, us));
  return rows_of(document({report}), name);
}

TEST(Compare, RowsAreFasterSlowerOrTheSameWithinTheThreshold) {
  const Comparison result = compare(report("a", {{1024, 10}, {2048, 10}, {4096, 10}, {8192, 10}}),
                                    report("b", {{1024, 10.4}, {2048, 20}, {4096, 5}, {16384, 1}}), 0.05);
  ASSERT_THAT(result.rows, SizeIs(3));
  EXPECT_STREQ(result.rows[0].verdict, "same");
  EXPECT_STREQ(result.rows[1].verdict, "slower");
  EXPECT_DOUBLE_EQ(result.rows[1].ratio, 2);
  EXPECT_STREQ(result.rows[2].verdict, "faster");
  EXPECT_EQ(result.only_one, 2u);
  EXPECT_EQ(result.faster, 1u);
  EXPECT_EQ(result.slower, 1u);
}

TEST(Compare, RowsWhoseRoundsOverlapAreTheSame) {
  const auto of = [](double median, std::vector<double> rounds) {
    return rows_of(document({report_of("all-reduce", {row(4, median, std::move(rounds))})}), "r");
  };
  const auto verdict = [&](const ReportRows& a, const ReportRows& b) {
    return std::string(compare(a, b, 0.05).rows.at(0).verdict);
  };
  EXPECT_EQ(verdict(of(10, {8, 10, 21}), of(20, {20, 20, 30})), "same");
  EXPECT_EQ(verdict(of(20, {20, 20, 30}), of(10, {8, 10, 21})), "same");
  EXPECT_EQ(verdict(of(10, {8, 10, 19}), of(21, {20, 21, 30})), "slower");
  EXPECT_EQ(verdict(of(21, {20, 21, 30}), of(10, {8, 10, 19})), "faster");
  EXPECT_EQ(verdict(of(10, {9.9, 10, 10.1}), of(10.3, {10.2, 10.3, 10.4})), "same") << "within the threshold";
  EXPECT_EQ(verdict(of(10, {8, 10, 19}), report("b", {{4, 20}})), "slower") << "a report without rounds";
  EXPECT_THAT(
      to_text(compare(of(10, {8, 10, 21}), of(20, {20, 20, 30}), 0.05)),
      AllOf(HasSubstr("same: rounds overlap\n"),
            HasSubstr("# no difference in 1 size: none beyond 5% and beyond the spread of its rounds\n")));
}

TEST(Compare, AnInterruptedRunIsNamed) {
  const auto of = [](bool complete) {
    BenchReport report = report_of("all-reduce", {row(4, 1)});
    report.complete = complete;
    return rows_of(document({report}), "r");
  };
  EXPECT_THAT(compare(of(true), of(false), 0.05).differences, ElementsAre("complete: true, false"));
  EXPECT_THAT(compare(of(true), of(true), 0.05).differences, ::testing::IsEmpty());
}

TEST(Compare, WhatWasNotedOfARunIsShownOnce) {
  BenchReport noted = report_of("all-reduce", {row(4, 1)});
  noted.notes = {"other programs used 1.2 of 2 processors"};
  BenchReport too = report_of("broadcast", {row(4, 1)});
  too.notes = noted.notes;
  const Comparison result = compare(rows_of(document({report_of("all-reduce", {row(4, 1)})}), "quiet"),
                                    rows_of(document({noted, too}), "busy"), 0.05);
  EXPECT_THAT(result.a.notes, ::testing::IsEmpty());
  EXPECT_THAT(result.b.notes, ElementsAre("other programs used 1.2 of 2 processors"));
  EXPECT_THAT(to_text(result), HasSubstr("# B: other programs used 1.2 of 2 processors\n"));
  EXPECT_THAT(to_html(result), HasSubstr("B: other programs used 1.2 of 2 processors"));
  EXPECT_EQ(json::parse(to_json(result)).at("notes").at("b").size(), 1u);
}

TEST(Compare, WhatWasNotedOfBothRunsIsShownOnce) {
  BenchReport noted = report_of("all-reduce", {row(4, 1)});
  noted.notes = {"no NCCL", "a slow disk"};
  BenchReport other = noted;
  other.notes = {"no NCCL", "a hot room"};
  const Comparison result = compare(rows_of(document({noted}), "a"), rows_of(document({other}), "b"), 0.05);
  const std::string text = to_text(result);
  EXPECT_THAT(text, HasSubstr("# A, B: no NCCL\n# A: a slow disk\n# B: a hot room\n"));
  EXPECT_EQ(text.find("no NCCL"), text.rfind("no NCCL"));
  const std::string page = to_html(result);
  EXPECT_THAT(page, HasSubstr("A, B: no NCCL"));
  EXPECT_EQ(page.find("no NCCL"), page.rfind("no NCCL"));
}

TEST(Compare, ASettingThatOnlyOneRunHasIsNamed) {
  const auto of = [](const char* collective) {
    return rows_of(document({report_of(collective, {row(4, 1)})}), "r");
  };
  const auto root = ElementsAre("collective: all-gather, broadcast", "root: none, 0");
  EXPECT_THAT(compare(of("all-gather"), of("broadcast"), 0.05).differences, root);
  EXPECT_THAT(compare(of("broadcast"), of("all-gather"), 0.05).differences,
              ElementsAre("collective: broadcast, all-gather", "root: 0, none"));
}

TEST(Compare, TheTextFits80ColumnsAndNamesFilesSettingsAndTheMean) {
  const Comparison result = compare(report("a.json", {{1024, 10}, {2048, 10}}),
                                    report("b.json", {{1024, 20}, {2048, 5}}, DType::bf16), 0.05);
  EXPECT_THAT(result.differences, ElementsAre("type: f32, bf16"));
  const std::string text = to_text(result);
  EXPECT_THAT(text,
              AllOf(HasSubstr("# A: a.json, 2025-03-01T12:00:00Z on node7: onehop bench all-reduce\n"),
                    HasSubstr("type: f32, bf16"),
                    HasSubstr("1 faster, 1 slower, 0 the same within 5%; geometric mean of B/A 1.000")));
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_LE(end - at, 80u);
  EXPECT_EQ(json::parse(to_json(result)).at("results").at(0).at("verdict"), "slower");
}

TEST(Compare, ThePageHasBothCurvesAndAVerdictPerRow) {
  const std::string page = to_html(compare(report("<a>", {{1024, 10}, {2048, 10}, {4096, 10}, {0, 1}}),
                                           report("b", {{1024, 10}, {2048, 20}, {4096, 5}, {0, 1}}), 0.05));
  EXPECT_THAT(page, AllOf(HasSubstr("<polyline class=\"curve\""), HasSubstr("<polyline class=\"peer peer0\""),
                          HasSubstr("A: &lt;a&gt;, 2025"), HasSubstr("<td class=\"slower\">slower</td>"),
                          HasSubstr("<td class=\"ok\">faster</td>"), HasSubstr(">no difference</td>"),
                          HasSubstr("B, 2KB: 2\u00d7"), HasSubstr("<b>1 of 4</b><span>B is slower")));
}

TEST(Compare, ReportsOfSeveralCollectivesAreComparedByCollectiveAndSize) {
  const auto all = [](const char* name, double all_reduce, double all_gather) {
    return rows_of(document({report_of("all-reduce", {row(4, all_reduce)}),
                             report_of("all-gather", {row(4, all_gather)})}),
                   name);
  };
  const Comparison result = compare(all("a", 10, 10), all("b", 20, 10), 0.05);
  ASSERT_THAT(result.rows, SizeIs(2));
  EXPECT_EQ(result.rows[0].collective, "all-gather");
  EXPECT_STREQ(result.rows[0].verdict, "same");
  EXPECT_STREQ(result.rows[1].verdict, "slower");
  EXPECT_THAT(result.differences, ::testing::IsEmpty());
  EXPECT_THAT(to_text(result), AllOf(HasSubstr("# all-gather\n"), HasSubstr("# all-reduce\n")));
  EXPECT_EQ(json::parse(to_json(result)).at("results").at(1).at("collective"), "all-reduce");
  EXPECT_THAT(to_html(result), HasSubstr("<h2 class=\"collective\">all-gather</h2>"));
}

TEST(Compare, OneCollectiveIsComparedWithTheSameOneOfAReportOfSeveral) {
  const ReportRows all = rows_of(
      document({report_of("all-gather", {row(4, 5), row(8, 7)}), report_of("all-reduce", {row(4, 10)})}),
      "all");
  const ReportRows one = rows_of(document({report_of("all-reduce", {row(4, 20)})}), "one");
  const Comparison result = compare(all, one, 0.05);
  ASSERT_THAT(result.rows, SizeIs(1));
  EXPECT_STREQ(result.rows[0].verdict, "slower");
  EXPECT_EQ(result.rows[0].collective, "all-reduce");
  EXPECT_THAT(to_text(result), HasSubstr("# 2 sizes are in one of the reports only\n"));
  EXPECT_THAT(to_text(compare(report("a", {{4, 1}, {8, 1}}), one, 0.05)),
              HasSubstr("# 1 size is in one of the reports only\n"));
}

TEST(Compare, ReportsWithoutACommonSizeAreRefused) {
  try {
    (void)compare(report("a", {{1024, 10}, {2048, 0}}), report("b", {{2048, 20}}), 0.05);
    FAIL() << "compared";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("'a' and 'b' have no size in common"));
  }
}

}  // namespace
}  // namespace onehop::cli
