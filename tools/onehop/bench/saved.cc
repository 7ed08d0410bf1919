// SPDX-License-Identifier: Apache-2.0
#include "bench/saved.h"

#include <array>
#include <limits>

#include "base/check.h"
#include "base/json_field.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kMaxReports = 64;
constexpr std::size_t kMaxRows = 4096;
constexpr std::size_t kMaxText = 64 << 10;
constexpr int kMaxCount = std::numeric_limits<int>::max();

/// The value that `parse` finds in the text. An Error of `parse` becomes one that names the field.
template <class Parse>
auto parsed(const JsonField& field, const Parse& parse) {
  try {
    return parse(field.text());
  } catch (const Error& error) {
    field.wrong("{}", error.message());
  }
}

template <class T, std::size_t N>
T named(const JsonField& field, const Named<T> (&names)[N]) {
  return parsed(field, [&](const std::string& text) { return parse_name(names, text); });
}

BenchTime time_of(const JsonField& field) {
  return {field.at("median").number(), field.at("min").number(), field.at("p95").number()};
}

BenchOptions options_of(const JsonField& run) {
  BenchOptions options;
  options.collective = parsed(run.at("collective"), [](const std::string& name) {
    const Collective* const found = find_collective(name);
    require(found != nullptr, "unknown collective '{}'", name);
    return found;
  });
  options.ranks = run.at("ranks").small(1, kMaxHostRanks);
  options.threads = run.at("ranks_are").is("threads");
  options.cuda = run.at("device").is("cuda");
  options.type = parsed(run.at("type"), [](const std::string& name) { return parse_dtype(name); });
  if (options.collective->reduces)
    options.op = parsed(run.at("op"), [](const std::string& name) { return parse_reduce_op(name); });
  if (const auto factor = run.find("factor")) options.factor = factor->number();
  if (const auto root = run.find("root")) options.root = Rank{root->small(0, kMaxHostRanks - 1)};
  if (!run.at("algorithm").is("auto"))
    options.algorithm = run.at("algorithm").one_of(std::array{Algorithm::one_shot, Algorithm::two_shot});
  if (!run.at("tuning").is("shipped")) options.tuning = run.at("tuning").text(kMaxText);
  options.buffers = named(run.at("buffers"), kBuffers);
  options.in_place = run.at("in_place").flag();
  options.warmup = run.at("warmup").small(0, kMaxCount);
  options.binding = named(run.at("bind"), kBindings);
  options.repeat = run.at("repeat").small(1, kMaxCount);
  if (run.at("policy").is("legacy")) options.policy = AlgorithmPolicy::legacy;
  if (options.cuda) {
    options.mode = named(run.at("mode"), kBenchModes);
    options.cold = run.at("cold").flag();
    options.parts = run.at("parts").small(1, kMaxCount);
  }
  return options;
}

void read_peers(const Json& peers, const JsonField& field, BenchRow& row) {
  for (const auto& [name, value] : peers.items()) {
    const JsonField peer = field.at(name.c_str());
    row.peers.push_back({name, time_of(peer.at("time_us")), peer.at("checked").flag()});
  }
}

BenchRow row_of(const JsonField& field, const Json& value) {
  BenchRow row;
  row.bytes = field.at("bytes").bytes();
  row.count = field.at("count").bytes();
  row.algorithm =
      field.at("algorithm").one_of(std::array{Algorithm::none, Algorithm::one_shot, Algorithm::two_shot});
  row.time = time_of(field.at("time_us"));
  row.algbw = field.at("algbw_gbps").number();
  row.busbw = field.at("busbw_gbps").number();
  row.samples = field.at("samples").small(0, kMaxCount);
  row.batch = field.at("calls_per_sample").small(0, kMaxCount);
  row.checked = field.at("checked").flag();
  if (const auto host = field.find("host_ns")) row.host_ns = host->number();
  if (const auto rounds = field.find("rounds_us")) {
    rounds->each(kMaxRows, [&](const JsonField& us, std::size_t) { row.rounds.push_back(us.number()); });
  }
  if (const auto peers = field.find("peers")) read_peers(value.at("peers"), *peers, row);
  return row;
}

BenchReport report_of(const JsonField& field, const Json& value) {
  BenchReport report;
  report.options = options_of(field.at("run"));
  report.complete = field.at("complete").flag();
  field.at("results").each(kMaxRows, [&](const JsonField& row, std::size_t i) {
    report.rows.push_back(row_of(row, value.at("results").at(i)));
    report.options.nccl = report.options.nccl || !report.rows.back().peers.empty();
  });
  if (const auto notes = field.find("notes")) {
    notes->each(kMaxRows,
                [&](const JsonField& note, std::size_t) { report.notes.push_back(note.text(kMaxText)); });
  }
  return report;
}

GpuMachine gpus_of(const JsonField& field) {
  GpuMachine gpus;
  field.at("names").each(kMaxHostRanks,
                         [&](const JsonField& name, std::size_t) { gpus.names.push_back(name.text()); });
  gpus.driver = field.at("driver").text();
  gpus.cuda = field.at("cuda").text();
  if (const auto nccl = field.find("nccl")) gpus.nccl = nccl->text();
  if (const auto nvlinks = field.find("nvlinks_per_pair")) gpus.nvlinks = nvlinks->small(0, kMaxCount);
  return gpus;
}

}  // namespace

BenchDocument parse_document(std::string_view text, const std::string& name) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_report =
      value.is_object() && value.contains("format") && value.at("format") == "onehop-bench";
  require(is_report, "'{}' is no report of 'onehop bench --json'", name);
  const JsonField top(value, "", name);
  BenchDocument document;
  document.build = {top.at("onehop").at("version").text(), top.at("onehop").at("commit").text()};
  document.origin = {top.at("date").text(), top.at("host").text(), top.at("command").text(kMaxText)};
  const JsonField machine = top.at("machine");
  document.machine = {machine.at("cpu").text(), machine.at("cores").small(0, kMaxCount),
                      machine.at("kernel").text()};
  if (const auto gpus = machine.find("gpus")) document.gpus = gpus_of(*gpus);
  if (const auto reports = top.find("reports")) {
    reports->each(kMaxReports, [&](const JsonField& report, std::size_t i) {
      document.reports.push_back(report_of(report, value.at("reports").at(i)));
      document.launcher = report.at("run").at("launcher").text();
    });
    if (document.reports.empty()) reports->wrong("is empty");
  } else {
    document.reports.push_back(report_of(top, value));
    document.launcher = top.at("run").at("launcher").text();
  }
  return document;
}

}  // namespace onehop::cli
