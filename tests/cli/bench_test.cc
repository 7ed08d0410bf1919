// SPDX-License-Identifier: Apache-2.0
// onehop bench and doctor, whole, on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/command.h"

namespace onehop::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Bench : public CommandTest {
 protected:
  ~Bench() override { EXPECT_EQ(left_behind(), 0) << "private files were left behind"; }
  [[nodiscard]] Result bench(std::vector<std::string> rest) const {
    return bench_of("all-reduce", std::move(rest));
  }
  [[nodiscard]] Result bench_of(const std::string& collective, std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"bench", collective, "--device", "host", "--iters", "5", "--wide"});
    return run(rest, options_);
  }
  /// The rows of the table, split into columns.
  [[nodiscard]] static std::vector<std::vector<std::string>> rows(const std::string& out) {
    std::vector<std::vector<std::string>> all;
    bool header = true;
    for (const std::string& line : lines_of(out)) {
      if (line.starts_with('#')) continue;
      if (!std::exchange(header, false)) {
        std::istringstream words(line);
        all.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
      }
    }
    return all;
  }
};

TEST_F(Bench, PrintsAVerifiedRowPerSizeWithoutControlCharactersInAPipe) {
  const Result result = bench({"--ranks", "3", "--sizes", "4,1K,100000"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
  const auto table = rows(result.out);
  ASSERT_THAT(table, SizeIs(3));
  EXPECT_THAT(table, Each(SizeIs(12)));
  EXPECT_EQ(table[2][0], "100000");
  EXPECT_EQ(table[2][1], "25000");
  for (const auto& row : table) EXPECT_EQ(row.back(), "ok");
}

TEST_F(Bench, VerifiesEveryTypeAndOp) {
  for (const char* type :
       {"f16", "bf16", "f32", "f64", "e4m3", "e5m2", "i8", "u8", "i32", "u32", "i64", "u64"}) {
    for (const char* op : {"sum", "prod", "min", "max", "avg", "premul_sum"}) {
      const Result result = bench(
          {"--threads", "--ranks", "3", "--type", type, "--op", op, "--sizes", "1000", "--warmup", "0"});
      EXPECT_EQ(result.exit_code, 0) << type << " " << op << ": " << result.err;
    }
  }
}

TEST_F(Bench, VerifiesPremultipliedSumsByTheirFactor) {
  for (const auto& [type, factor] :
       {std::pair{"f32", "0.3333"}, std::pair{"bf16", "-3"}, std::pair{"e4m3", "1e-3"}, std::pair{"i8", "-7"},
        std::pair{"u64", "3"}}) {
    const auto path = base_ / "r.json";
    const Result result =
        bench({"--threads", "--ranks", "3", "--type", type, "--op", "premul_sum",
               std::string("--factor=") + factor, "--sizes", "1000", "--warmup", "0", "--json", path});
    ASSERT_EQ(result.exit_code, 0) << type << " by " << factor << ": " << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string(type) + " premul_sum by "));
    const json run = json::parse(read(path)).at("run");
    EXPECT_EQ(run.at("op"), "premul_sum");
    EXPECT_EQ(run.at("factor"), std::stod(factor));
  }
  const Result result =
      bench({"--threads", "--ranks", "2", "--type", "i32", "--op", "premul_sum", "--factor", "0.5"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("i32, premul_sum, factor 0.5"));
}

TEST_F(Bench, EveryKindOfBuffersAndAlgorithm) {
  for (const char* algorithm : {"one-shot", "two-shot"}) {
    for (const char* buffers : {"ordinary", "symmetric"}) {
      for (const char* placement : {"--in-place", "--check"}) {
        const Result result = bench(
            {"--ranks", "2", "--sizes", "64K", "--algorithm", algorithm, "--buffers", buffers, placement});
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_THAT(result.out, HasSubstr("ok"));
      }
    }
  }
}

const char* const kCollectives[] = {"all-reduce",   "all-gather", "reduce-scatter", "broadcast",
                                    "reduce",       "all-to-all", "gather",         "scatter",
                                    "all_to_all_v", "send-recv"};

TEST_F(Bench, VerifiesEveryCollectiveInEveryKindOfBuffers) {
  for (const std::string collective : kCollectives) {
    for (const char* buffers : {"ordinary", "symmetric"}) {
      for (const char* placement : {"--in-place", "--check"}) {
        const bool apart =
            collective == "all-to-all" || collective == "all_to_all_v" || collective == "send-recv";
        if (apart && placement == std::string("--in-place")) continue;
        const Result result = bench_of(collective, {"--ranks", "3", "--sizes", "1000,512K", "--type", "bf16",
                                                    "--warmup", "1", "--buffers", buffers, placement});
        ASSERT_EQ(result.exit_code, 0) << collective << ": " << result.err;
        const auto table = rows(result.out);
        ASSERT_THAT(table, SizeIs(2)) << collective;
        for (const auto& row : table) EXPECT_EQ(row.back(), "ok") << collective;
      }
    }
  }
}

TEST_F(Bench, TablesFit80ColumnsUnlessTheyAreWide) {
  const Result result = run({"bench", "all_reduce", "--device", "host", "--ranks", "2", "--sizes", "4K,1M",
                             "--iters", "5", "--op", "premul_sum", "--repeat", "2"},
                            options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& line : lines_of(result.out)) EXPECT_LE(line.size(), 80u) << line;
  ASSERT_THAT(rows(result.out), SizeIs(2));
  EXPECT_EQ(rows(result.out)[1].back(), "ok");
  EXPECT_THAT(result.out, HasSubstr("spread"));
}

TEST_F(Bench, AllMeasuresEveryCollectiveWithTheOptionsThatSuitIt) {
  const auto json_path = base_ / "r.json";
  const auto html_path = base_ / "r.html";
  const Result result =
      bench_of("all", {"--ranks", "2", "--sizes", "1K,4K", "--repeat", "1", "--in-place", "--algorithm",
                       "two-shot", "--op", "max", "--root", "1", "--json", json_path, "--html", html_path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(read(json_path));
  EXPECT_EQ(document.at("complete"), true);
  std::vector<std::string> collectives;
  const std::string page = read(html_path);
  for (const json& report : document.at("reports")) {
    const json& run = report.at("run");
    const std::string collective = run.at("collective");
    collectives.push_back(collective);
    const bool apart = collective.starts_with("all-to-all") || collective == "send-recv";
    const bool barrier = collective == "barrier";
    EXPECT_EQ(run.at("in_place"), !apart && !barrier) << collective;
    EXPECT_EQ(run.at("algorithm"),
              collective == "all-reduce" || collective == "reduce" ? "two-shot" : "auto");
    EXPECT_THAT(report.at("results"), SizeIs(barrier ? 1 : 2)) << collective;
    EXPECT_THAT(page, HasSubstr("id=\"" + collective + "\""));
    EXPECT_THAT(result.out, HasSubstr(collective + ": 2 host ranks"));
  }
  EXPECT_THAT(collectives, SizeIs(11));
  EXPECT_EQ(collectives.front(), "all-reduce");
  EXPECT_EQ(collectives.back(), "barrier");
}

TEST_F(Bench, APageIsMadeOfASavedReport) {
  const auto json_path = base_ / "r.json";
  const auto html_path = base_ / "r.html";
  const auto again_path = base_ / "again.html";
  Result result = bench({"--ranks", "2", "--sizes", "4K", "--json", json_path, "--html", html_path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = run({"bench", "--from", json_path, "--html", again_path}, options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(read(again_path), read(html_path));
  EXPECT_THAT(run({"bench", "--from", json_path}, options_).err, HasSubstr("name the page with --html"));
  EXPECT_THAT(run({"bench", "--from", json_path, "--predict", "8"}, options_).err,
              HasSubstr("host ranks; --predict needs what 2 GPUs measured"));
  EXPECT_THAT(run({"bench", "--from", json_path, "--predict", "8", "--json", json_path}, options_).err,
              HasSubstr("--json '" + json_path.string() + "' would replace the report that is shown"));
  EXPECT_THAT(run({"bench", "--from", json_path, "--html", json_path}, options_).err,
              HasSubstr("would replace the report"));
  EXPECT_THAT(run({"bench", "--from", json_path, "--html", "-", "--sizes", "4K"}, options_).err,
              HasSubstr("leave out --sizes"));
  result = run({"bench", "--from", html_path, "--html", again_path}, options_);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              HasSubstr("r.html' is no report of 'onehop bench --json': not valid JSON at line 1"));
}

TEST_F(Bench, FileNamesMayHaveAnyBytes) {
  const std::string name = base_ / "t\tab \x1b[31m \xff.json";
  const auto page = base_ / "page.html";
  Result result = bench({"--ranks", "2", "--sizes", "4K", "--json", name});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& text : {result.out, read(name)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\xff'), std::string::npos);
  }
  // The report holds the command line, and is read again.
  result = run({"compare", name, name, "--html", page}, options_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(read(page), HasSubstr("t\\x09ab \\x1b[31m \\xff.json"));
  EXPECT_EQ(read(page).find('\xff'), std::string::npos) << "a page is UTF-8";
  EXPECT_THAT(run({"bench", name}, options_).err, HasSubstr("t\\x09ab \\x1b[31m \\xff.json"));
}

TEST_F(Bench, APageOnStandardOutputIsAllThatIsThere) {
  const Result result = bench({"--ranks", "2", "--sizes", "4K", "--html", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("<!doctype html>")) << result.out.substr(0, 200);
}

TEST_F(Bench, ABarrierIsARowWithoutBytes) {
  const auto path = base_ / "r.json";
  const Result result = bench_of("barrier", {"--ranks", "2", "--json", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(read(path));
  ASSERT_THAT(document.at("results"), SizeIs(1));
  EXPECT_EQ(document.at("results").at(0).at("bytes"), 0);
  EXPECT_GT(document.at("results").at(0).at("time_us").at("median"), 0);
}

TEST_F(Bench, BoundRanksAreMeasuredAndSaySo) {
  for (const char* where : {"cores", "numa"}) {
    for (const char* ranks : {"--threads", "--check"}) {
      const Result result = bench({"--ranks", "3", "--sizes", "4K", "--bind", where, ranks, "--repeat", "3"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.out, HasSubstr(std::string("bound to ") + where + ", 3 rounds"));
    }
  }
}

TEST_F(Bench, EachRankIsBoundToACoreWhereThereIsOneForIt) {
  const auto binding = [&](const char* ranks, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--ranks", ranks, "--sizes", "4K", "--json", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = bench(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out).at("run").at("bind").get<std::string>();
  };
  EXPECT_EQ(binding("1", {}), "cores");
  EXPECT_EQ(binding("1", {"--bind", "none"}), "none");
  const unsigned more = std::thread::hardware_concurrency() + 1;
  if (more <= 64) {
    EXPECT_EQ(binding(std::to_string(more).c_str(), {"--threads"}), "none");
  }
}

TEST_F(Bench, EveryRoundIsInTheReport) {
  const json row =
      json::parse(bench({"--ranks", "2", "--sizes", "4K,8K", "--json", "-"}).out).at("results").at(1);
  const auto rounds = row.at("rounds_us").get<std::vector<double>>();
  ASSERT_THAT(rounds, SizeIs(7));
  EXPECT_TRUE(std::is_sorted(rounds.begin(), rounds.end()));
  EXPECT_EQ(row.at("time_us").at("median"), rounds[3]);
  EXPECT_DOUBLE_EQ(row.at("spread"), rounds[6] / rounds[0]);
}

TEST_F(Bench, ReportsSayWhenWhereAndHowTheyWereMade) {
  const auto html_path = base_ / "r.html";
  const Result result = bench({"--ranks", "2", "--sizes", "4K", "--json", "-", "--html", html_path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(result.out);  // and nothing else
  EXPECT_THAT(std::string(document.at("date")), ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_EQ(document.at("host"), host);
  const std::string command = document.at("command");
  EXPECT_THAT(command, HasSubstr("onehop bench all-reduce --device host"));
  EXPECT_EQ(document.at("complete"), true);
  EXPECT_THAT(read(html_path), HasSubstr("onehop bench all-reduce --device host"));
  const std::string text = bench({"--ranks", "2", "--sizes", "4K"}).out;
  EXPECT_THAT(text, HasSubstr(std::string("Z on ") + host + ": onehop bench all-reduce --device host"));
  for (const char* each : {"topo", "doctor"}) {
    EXPECT_THAT(run({each}, options_).out, HasSubstr(std::string("Z on ") + host + ": onehop " + each));
  }
  EXPECT_EQ(json::parse(run({"doctor", "--json", "-"}, options_).out).at("command"),
            "onehop doctor --json -");
}

TEST_F(Bench, JsonOfTheMachineGoesBesideTheTextOrInsteadOfIt) {
  for (const char* each : {"topo", "doctor"}) {
    const auto path = base_ / "machine.json";
    const Result both = run({each, "--json", path}, options_);
    EXPECT_EQ(both.exit_code, 0) << both.err;
    EXPECT_THAT(both.out, HasSubstr(std::string("onehop ") + each + " --json "));
    const json document = json::parse(read(path));
    const json& origin = each == std::string("topo") ? document.at("written") : document;
    EXPECT_EQ(origin.at("command"), std::string("onehop ") + each + " --json " + path.string());
    EXPECT_TRUE(origin.contains("date") && origin.contains("host"));
    EXPECT_TRUE(json::parse(run({each, "--json", "-"}, options_).out).is_object());
    EXPECT_TRUE(json::parse(run({each, "--json"}, options_).out).is_object());
  }
}

TEST_F(Bench, FileNamesMayBeAnyBytes) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"bench", "all-reduce", "--device", "host", "--ranks", "2", "--sizes", "4K"},
        std::vector<std::string>{"topo"}, std::vector<std::string>{"doctor"}}) {
    const std::string path = (base_ / "caf\xe9.json").string();
    std::vector<std::string> arguments = words;
    arguments.insert(arguments.end(), {"--json", path});
    const Result result = run(arguments, options_);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(json::parse(read(path)).is_object());
    std::filesystem::remove(path);
  }
}

TEST_F(Bench, ComparesReports) {
  const auto a = base_ / "a.json";
  const auto b = base_ / "b.json";
  ASSERT_EQ(bench({"--ranks", "2", "--sizes", "4K,64K", "--json", a}).exit_code, 0);
  // The same times: two runs may differ by any factor when other tests occupy the cores.
  std::filesystem::copy_file(a, b);
  const Result same = run({"compare", a, b, "--fail"}, options_);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(rows(same.out), AllOf(SizeIs(2), Each(SizeIs(5))));
  EXPECT_THAT(same.out, HasSubstr(": onehop compare"));

  json slower = json::parse(read(a));
  for (json& row : slower.at("results")) row.erase("rounds_us");  // they may overlap with twice as long ones
  std::ofstream(a) << slower;
  for (json& time : slower.at("results").at(1).at("time_us")) time = 2 * time.get<double>();
  std::ofstream(b) << slower;
  EXPECT_EQ(run({"compare", a, b, "--threshold", "90", "--fail"}, options_).exit_code, 1);
  EXPECT_EQ(run({"compare", a, b, "--threshold", "90"}, options_).exit_code, 0);
  EXPECT_EQ(run({"compare", a, b, "--threshold", "110", "--fail"}, options_).exit_code, 0);
}

TEST_F(Bench, MovesEveryTypeAndFromOrToEveryRoot) {
  for (const char* type : {"e4m3", "f16", "i32", "f64"}) {
    const Result result = bench_of(
        "all-to-all", {"--threads", "--ranks", "3", "--type", type, "--sizes", "9000", "--warmup", "0"});
    EXPECT_EQ(result.exit_code, 0) << type << ": " << result.err;
  }
  for (const char* collective : {"broadcast", "reduce", "gather", "scatter"}) {
    for (const char* root : {"0", "2"}) {
      const Result result = bench_of(
          collective, {"--threads", "--ranks", "3", "--root", root, "--sizes", "9000", "--warmup", "0"});
      EXPECT_EQ(result.exit_code, 0) << collective << ": " << result.err;
      EXPECT_THAT(result.out, HasSubstr(std::string(", root ") + root)) << collective;
    }
  }
}

TEST_F(Bench, ASizeThatDoesNotDivideIsReportedAsItWasMeasured) {
  const auto path = base_ / "r.json";
  const Result result = bench_of("all-gather", {"--ranks", "3", "--sizes", "1000", "--json", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(read(path));
  EXPECT_EQ(document.at("run").at("collective"), "all-gather");
  EXPECT_EQ(document.at("run").at("op"), "none");
  EXPECT_FALSE(document.at("run").contains("root"));
  const json& row = document.at("results").at(0);
  EXPECT_EQ(row.at("bytes"), 996);
  EXPECT_EQ(row.at("count"), 83) << "of a block";
  EXPECT_NEAR(row.at("busbw_gbps").get<double>(), row.at("algbw_gbps").get<double>() * 2 / 3, 1e-9);
}

TEST_F(Bench, RootedCollectivesSayTheirRoot) {
  const auto json_path = base_ / "r.json";
  const auto html_path = base_ / "r.html";
  const Result result = bench_of("reduce", {"--ranks", "2", "--root", "1", "--op", "max", "--sizes", "4K",
                                            "--json", json_path, "--html", html_path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(read(json_path));
  EXPECT_EQ(document.at("run").at("root"), 1);
  EXPECT_EQ(document.at("run").at("op"), "max");
  EXPECT_DOUBLE_EQ(document.at("results").at(0).at("busbw_gbps"),
                   document.at("results").at(0).at("algbw_gbps"));
  EXPECT_THAT(read(html_path), AllOf(HasSubstr("onehop reduce"), HasSubstr("busbw = algbw &times; 1)")));
}

TEST_F(Bench, WritesJsonAndAPageThatNeedsNoNetwork) {
  const auto json_path = base_ / "r.json";
  const auto html_path = base_ / "r.html";
  const Result result =
      bench({"--ranks", "2", "--sizes", "1K,64K", "--json", json_path, "--html", html_path, "--no-check"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(read(json_path));
  EXPECT_EQ(document.at("format"), "onehop-bench");
  EXPECT_EQ(document.at("run").at("ranks"), 2);
  EXPECT_GT(document.at("machine").at("cores"), 0);
  ASSERT_THAT(document.at("results"), SizeIs(2));
  for (const json& row : document.at("results")) {
    const json& time = row.at("time_us");
    EXPECT_GT(time.at("min"), 0);
    EXPECT_LE(time.at("min"), time.at("median"));
    EXPECT_LE(time.at("median"), time.at("p95"));
    EXPECT_NEAR(row.at("algbw_gbps").get<double>(),
                row.at("bytes").get<double>() / time.at("median").get<double>() / 1e3, 1e-9);
    EXPECT_DOUBLE_EQ(row.at("busbw_gbps"), row.at("algbw_gbps")) << "2(n-1)/n is 1 for two ranks";
    EXPECT_EQ(row.at("samples"), 5);
    EXPECT_EQ(row.at("checked"), false);
  }
  const std::string page = read(html_path);
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("</html>"), Not(HasSubstr("http")),
                          Not(HasSubstr("<script"))));
}

TEST_F(Bench, MeasuresAndVerifiesWhatOneRankDoesByItself) {
  for (const char* const collective : {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce",
                                       "all-to-all", "gather", "scatter"}) {
    const Result result = run({"bench", collective, "--device", "host", "--ranks", "1", "--sizes", "4K",
                               "--warmup", "1", "--iters", "2"});
    EXPECT_EQ(result.exit_code, 0) << collective << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("1 host rank"), HasSubstr("ok"))) << collective;
  }
}

TEST_F(Bench, JoinsTheJobOfALauncher) {
  const Result result = run({"launch", "-n", "3", "--", ONEHOP_COMMAND, "bench", "all-reduce", "--device",
                             "host", "--sizes", "4K", "--iters", "5"},
                            options_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 host ranks"));
  EXPECT_THAT(rows(result.out), SizeIs(1));
}

TEST_F(Bench, AJobOfOneRankIsMeasured) {
  const auto html_path = base_ / "one.html";
  const Result result = run({"launch", "-n", "1", "--", ONEHOP_COMMAND, "bench", "all-reduce", "--device",
                             "host", "--sizes", "4K", "--iters", "5", "--html", html_path},
                            options_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 host rank"));
  EXPECT_THAT(read(html_path), AllOf(HasSubstr("Time per call"), Not(HasSubstr("Bus bandwidth"))));
}

TEST_F(Bench, SizesThatDoNotFitAreOneLine) {
  // Sanitizers would end the process instead of returning null.
  for (const char* options : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    options_.environment[options] = "allocator_may_return_null=1";
  }
  const Result result = bench({"--ranks", "2", "--sizes", "1000T"});
  EXPECT_EQ(result.exit_code, 1);
  std::vector<std::string> lines = lines_of(result.err);
  std::erase_if(lines, [](const std::string& line) { return line.find("Sanitizer") != std::string::npos; });
  EXPECT_THAT(lines, SizeIs(1)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
}

TEST_F(Bench, DoctorSaysTheHostBackendWorks) {
  const Result text = run({"doctor"}, options_);
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("The host backend works here."), Not(HasSubstr("\x1b"))));
  for (const char c : text.out) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << "only ASCII in a pipe";

  const Result result = run({"doctor", "--json"}, options_);
  EXPECT_EQ(result.exit_code, 0);
  const json document = json::parse(result.out);
  EXPECT_EQ(document.at("host_backend_works"), true);
  const std::string gpus = document.at("gpu_summary");
  EXPECT_THAT(gpus, HasSubstr(document.at("gpu_backend_works") ? "works here" : "does not work here: "));
  EXPECT_THAT(text.out, HasSubstr(gpus.substr(1) + ".\n")) << "one line, at the end, says what about GPUs";
  bool end_to_end = false;
  for (const json& check : document.at("checks")) {
    end_to_end |= check.at("section") == "end to end" && check.at("status") == "works";
    if (check.at("essential") == true) {
      EXPECT_EQ(check.at("status"), "works") << check;
    }
    EXPECT_EQ(check.at("status") == "fails", check.at("remedy") != "") << check;
  }
  EXPECT_TRUE(end_to_end);
}

TEST_F(Bench, DoctorNamesWhatIsBrokenAndFails) {
  CommandOptions options;
  options.environment["ONEHOP_RUNTIME_DIR"] = "/nonexistent";
  const Result result = run({"doctor"}, options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("no private directory"), HasSubstr("-> set ONEHOP_RUNTIME_DIR")));
}

}  // namespace
}  // namespace onehop::test
