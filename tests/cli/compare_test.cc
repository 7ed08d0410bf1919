// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "onehop/error.h"

namespace onehop::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ReportRows report(const std::string& name, const std::vector<std::pair<unsigned, double>>& rows,
                  const std::string& type = "f32") {
  json results = json::array();
  for (const auto& [bytes, us] : rows) results.push_back({{"bytes", bytes}, {"time_us", {{"median", us}}}});
  const json document = {{"format", "onehop-bench"},
                         {"date", "2025-03-01T12:00:00Z"},
                         {"host", "node7"},
                         {"command", "onehop bench all-reduce"},
                         {"run", {{"type", type}, {"ranks", 2}}},
                         {"results", results}};
  return parse_report(document.dump(), name);
}

std::string refusal_of(std::string_view text) {
  try {
    (void)parse_report(text, "r.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "accepted";
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
  const auto of = [](double median, const std::vector<double>& rounds) {
    const json row = {{"bytes", 4}, {"time_us", {{"median", median}}}, {"rounds_us", rounds}};
    const json document = {{"format", "onehop-bench"}, {"results", {row}}};
    return parse_report(document.dump(), "r");
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
  EXPECT_THAT(to_text(compare(of(10, {8, 10, 21}), of(20, {20, 20, 30}), 0.05)),
              HasSubstr("# no difference in 1 sizes: none beyond 5% and beyond the spread of its rounds\n"));
}

TEST(Compare, FiguresThatNobodyMeasuresAreRefused) {
  const auto refused = [](const char* time) {
    return refusal_of(fmt::format(
        R"({{"format": "onehop-bench", "results": [{{"bytes": 4, "time_us": {{"median": {}}}}}]}})", time));
  };
  EXPECT_EQ(refused("1e-200"),
            "'r.json' has a row with a time of 1e-200 us, which is neither 0 nor within 1e-15 to 1e+15");
  EXPECT_THAT(refused("1e200"), HasSubstr("a time of 1e+200 us"));
  EXPECT_THAT(refused("-1"), HasSubstr("a time of -1 us"));
  EXPECT_EQ(refused("0"), "accepted");
  EXPECT_THAT(refusal_of(R"({"format": "onehop-bench",
                             "results": [{"bytes": 18446744073709551615, "time_us": {"median": 1}}]})"),
              HasSubstr("a row of 18446744073709551615 bytes"));
}

TEST(Compare, AReportCannotWriteControlCharactersToATerminal) {
  constexpr std::string_view kWanted = "'r.json' has a text with control characters";
  EXPECT_EQ(refusal_of(R"({"format": "onehop-bench", "host": "\u001b[2J", "results": []})"), kWanted);
  EXPECT_EQ(refusal_of(R"({"format": "onehop-bench", "run": {"a\u0007": 1}, "results": []})"), kWanted);
  EXPECT_EQ(refusal_of(R"({"format": "onehop-bench", "results": [{"x": ["\u007f"]}]})"), kWanted);
}

TEST(Compare, AnInterruptedRunIsNamed) {
  const auto of = [](bool complete) {
    const json document = {{"format", "onehop-bench"},
                           {"complete", complete},
                           {"results", {{{"bytes", 4}, {"time_us", {{"median", 1}}}}}}};
    return parse_report(document.dump(), "r");
  };
  EXPECT_THAT(compare(of(true), of(false), 0.05).differences, ElementsAre("complete: true, false"));
  EXPECT_THAT(compare(of(true), of(true), 0.05).differences, ::testing::IsEmpty());
}

TEST(Compare, TheTextFits80ColumnsAndNamesFilesSettingsAndTheMean) {
  const Comparison result = compare(report("a.json", {{1024, 10}, {2048, 10}}),
                                    report("b.json", {{1024, 20}, {2048, 5}}, "bf16"), 0.05);
  EXPECT_THAT(result.differences, ElementsAre("type: f32, bf16"));
  const std::string text = to_text(result);
  EXPECT_THAT(text, AllOf(HasSubstr("# A: a.json, 2025-03-01T12:00:00Z on node7: onehop bench all-reduce\n"),
                          HasSubstr("type: f32, bf16"), HasSubstr("within 5%"),
                          HasSubstr("1 faster, 1 slower, 0 the same; geometric mean of B/A 1.000")));
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
    json reports = json::array();
    for (const auto& [collective, us] :
         {std::pair("all-reduce", all_reduce), std::pair("all-gather", all_gather)}) {
      reports.push_back({{"run", {{"collective", collective}, {"type", "f32"}}},
                         {"results", {{{"bytes", 4}, {"time_us", {{"median", us}}}}}}});
    }
    return parse_report(json{{"format", "onehop-bench"}, {"reports", reports}}.dump(), name);
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

TEST(Compare, WhatIsNoReportIsRefusedByName) {
  for (const char* text : {"", "[]", "{}", "null", "{\"format\":\"onehop-bench\"}",
                           "{\"format\":\"onehop-bench\",\"results\":{}}", "{\"format\":1,\"results\":[]}"}) {
    EXPECT_THAT(refusal_of(text), HasSubstr("'r.json' is no report")) << text;
  }
  for (const char* row : {"1", "{}", "{\"bytes\":-1,\"time_us\":{\"median\":1}}",
                          "{\"bytes\":1,\"time_us\":3}", "{\"bytes\":1,\"time_us\":{\"median\":\"1\"}}",
                          "{\"bytes\":1,\"time_us\":{\"median\":1},\"rounds_us\":[\"1\"]}"}) {
    EXPECT_THAT(refusal_of(std::string("{\"format\":\"onehop-bench\",\"results\":[") + row + "]}"),
                HasSubstr("'r.json' has a row"))
        << row;
  }
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
