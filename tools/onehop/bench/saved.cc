// SPDX-License-Identifier: Apache-2.0
#include "bench/saved.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/json_field.h"
#include "bench/plots.h"

namespace onehop::cli {
namespace {

constexpr int kFormatVersion = 1;
constexpr int kMaxDepth = 16;  ///< the format itself needs 8
constexpr std::size_t kMaxReports = 64;
constexpr std::size_t kMaxRows = 4096;
constexpr std::size_t kMaxText = 64 << 10;
constexpr std::size_t kMaxPeers = 16;
constexpr std::size_t kMaxName = 64;
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

/// A time or a bandwidth.
double measured(const JsonField& field) {
  const double value = field.number();
  if (!is_figure(value))
    field.wrong("must be 0 or a number from {:g} to {:g}, got {}", kLeastFigure, kMostFigure,
                field.describe());
  return value;
}

std::uint64_t size_of(const JsonField& field) {
  return static_cast<std::uint64_t>(field.integer(0, kMaxSize));
}

/// Whether it is the first of the two words.
bool is_first(const JsonField& field, std::string_view first, std::string_view second) {
  if (!field.is(first) && !field.is(second))
    field.wrong("must be {} or {}, got {}", first, second, field.describe());
  return field.is(first);
}

BenchTime time_of(const JsonField& field) {
  return {measured(field.at("median")), measured(field.at("min")), measured(field.at("p95"))};
}

BenchOptions options_of(const JsonField& run) {
  BenchOptions options;
  options.collective = parsed(run.at("collective"), [](const std::string& name) {
    const Benchmark* const found = find_collective(name);
    require(found != nullptr, "unknown collective '{}'", name);
    return found;
  });
  options.ranks = run.at("ranks").small(1, kMaxHostRanks);
  if (const auto from = run.find("predicted_from")) options.predicted_from = from->small(1, kMaxHostRanks);
  options.threads = is_first(run.at("ranks_are"), "threads", "processes");
  options.cuda = is_first(run.at("device"), "cuda", "host");
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
  // Reports of earlier versions name it.
  if (const auto policy = run.find("policy"); policy && !policy->is("tuned"))
    policy->wrong("must be tuned, got {}", policy->describe());
  if (options.cuda) {
    options.mode = named(run.at("mode"), kBenchModes);
    options.cold = run.at("cold").flag();
    options.parts = run.at("parts").small(1, kMaxCount);
  }
  return options;
}

void read_peers(const Json& peers, const JsonField& field, BenchRow& row) {
  if (peers.size() > kMaxPeers)
    field.wrong("has {} members, more than the limit of {}", peers.size(), kMaxPeers);
  for (const auto& [name, value] : peers.items()) {
    // JsonField::text checks values only, and a name of a field may be any bytes.
    const bool printable =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    if (!printable || name.empty() || name.size() > kMaxName)
      field.wrong("has a member whose name is not 1 to {} printable ASCII characters", kMaxName);
    const JsonField peer = field.at(name.c_str());
    row.peers.push_back({name, time_of(peer.at("time_us")), peer.at("checked").flag()});
  }
}

BenchRow row_of(const JsonField& field, const Json& value) {
  BenchRow row;
  row.bytes = size_of(field.at("bytes"));
  row.count = size_of(field.at("count"));
  row.algorithm =
      field.at("algorithm").one_of(std::array{Algorithm::none, Algorithm::one_shot, Algorithm::two_shot});
  row.time = time_of(field.at("time_us"));
  row.algbw = measured(field.at("algbw_gbps"));
  row.busbw = measured(field.at("busbw_gbps"));
  row.samples = field.at("samples").small(0, kMaxCount);
  row.batch = field.at("calls_per_sample").small(0, kMaxCount);
  row.checked = field.at("checked").flag();
  if (const auto host = field.find("host_ns")) row.host_ns = measured(*host);
  if (const auto rounds = field.find("rounds_us")) {
    rounds->each(kMaxRows, [&](const JsonField& us, std::size_t) { row.rounds.push_back(measured(us)); });
  }
  if (const auto peers = field.find("peers")) read_peers(value.at("peers"), *peers, row);
  return row;
}

/// The peers whose columns the rows need.
std::vector<NcclPeer> peers_in(const std::vector<BenchRow>& rows) {
  std::vector<NcclPeer> peers;
  for (std::string name : peer_names(rows)) {
    if (name.ends_with(NcclPeer::kWithWindows)) name.resize(name.size() - NcclPeer::kWithWindows.size());
    if (std::ranges::find(peers, name, &NcclPeer::name) == peers.end()) peers.push_back({name, ""});
  }
  return peers;
}

BenchReport report_of(const JsonField& field, const Json& value) {
  BenchReport report;
  report.options = options_of(field.at("run"));
  report.complete = field.at("complete").flag();
  field.at("results").each(kMaxRows, [&](const JsonField& row, std::size_t i) {
    report.rows.push_back(row_of(row, value.at("results").at(i)));
  });
  report.options.nccl = peers_in(report.rows);
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
  const std::string refusal = fmt::format("'{}' is no report of 'onehop bench --json'", name);
  // Its length is limited where it is read.
  const Json value = parse_json(text, refusal, {.bytes = text.size(), .depth = kMaxDepth});
  const bool is_report =
      value.is_object() && value.contains("format") && value.at("format") == "onehop-bench";
  require(is_report, "{}", refusal);
  const JsonField top(value, "", name);
  const JsonField version = top.at("format_version");
  if (const std::int64_t found = version.integer(0, kMaxCount); found != kFormatVersion)
    version.wrong("is {}; this onehop reads {}", found, kFormatVersion);
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
