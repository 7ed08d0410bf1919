// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "bench/statistics.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {

namespace {

nlohmann::json to_json(const BenchTime& time) {
  return {{"median", time.median_us}, {"min", time.min_us}, {"p95", time.p95_us}};
}

/// The slowest round over the fastest.
double spread(const BenchRow& row) {
  return row.rounds.back() / row.rounds.front();
}

nlohmann::json to_json(const BenchRow& row, double bus_factor) {
  nlohmann::json out = {{"bytes", row.bytes},
                        {"count", row.count},
                        {"algorithm", to_string(row.algorithm)},
                        {"time_us", to_json(row.time)},
                        {"algbw_gbps", row.algbw},
                        {"busbw_gbps", row.busbw},
                        {"samples", row.samples},
                        {"calls_per_sample", row.batch},
                        {"checked", row.checked}};
  if (row.host_ns > 0) out["host_ns"] = row.host_ns;
  if (!row.rounds.empty()) {
    out["rounds_us"] = row.rounds;
    out["spread"] = spread(row);
  }
  for (const PeerTime& peer : row.peers) {
    if (peer.time.median_us == 0) continue;
    const double algbw = algorithm_bandwidth(row.bytes, peer.time.median_us);
    out["peers"][peer.name] = {
        {"time_us", to_json(peer.time)}, {"busbw_gbps", algbw * bus_factor}, {"checked", peer.checked}};
  }
  if (const auto ratio = ratio_to_peers(row)) out["ratio_to_best_peer"] = *ratio;
  return out;
}

nlohmann::json to_json(const GpuMachine& gpus) {
  nlohmann::json out = {{"names", gpus.names}, {"driver", gpus.driver}, {"cuda", gpus.cuda}};
  if (gpus.nvlinks) out["nvlinks_per_pair"] = *gpus.nvlinks;
  if (!gpus.nccl.empty()) out["nccl"] = gpus.nccl;
  return out;
}

std::string tuning_of(const BenchOptions& options) {
  return options.tuning.empty() ? "shipped" : options.tuning;
}

}  // namespace

nlohmann::json settings(const BenchOptions& options, const std::string& launcher) {
  nlohmann::json run = {{"collective", options.collective->name},
                        {"ranks", options.ranks},
                        {"ranks_are", options.threads ? "threads" : "processes"},
                        {"launcher", launcher},
                        {"device", options.cuda ? "cuda" : "host"},
                        {"type", to_string(options.type)},
                        {"op", op_name(options)},
                        {"algorithm", options.algorithm ? to_string(*options.algorithm) : "auto"},
                        {"tuning", tuning_of(options)},
                        {"buffers", to_string(options.buffers)},
                        {"in_place", options.in_place},
                        {"warmup", options.warmup},
                        {"bind", to_string(options.binding)},
                        {"repeat", options.repeat}};
  if (options.predicted_from != 0) run["predicted_from"] = options.predicted_from;
  if (options.op == ReduceOp::premul_sum) run["factor"] = options.factor;
  if (options.collective->rooted()) run["root"] = options.root.value;
  if (options.cuda) {
    run["mode"] = to_string(options.mode);
    run["cold"] = options.cold;
    run["parts"] = options.parts;
  }
  return run;
}

namespace {

nlohmann::json to_json(const BenchReport& report, const std::string& launcher) {
  const double bus_factor = report.options.collective->bus_factor.of(report.options.ranks);
  nlohmann::json rows = nlohmann::json::array();
  for (const BenchRow& row : report.rows) rows.push_back(to_json(row, bus_factor));
  nlohmann::json out = {
      {"run", settings(report.options, launcher)}, {"results", rows}, {"complete", report.complete}};
  if (!report.notes.empty()) out["notes"] = report.notes;
  return out;
}

/// The peers that may have times.
std::vector<std::string> peer_columns(const BenchOptions& options) {
  std::vector<std::string> names;
  for (const NcclPeer& peer : options.nccl) {
    names.push_back(peer.name);
    if (options.collective->nccl_has_symmetric) names.push_back(peer.name_with_windows());
  }
  return names;
}

/// A column of the table; right-aligned, with a space before it.
struct TextColumn {
  std::string head;
  std::size_t width;
  std::function<std::string(const BenchRow&)> text;
};

/// "-" for a size that was not measured.
std::string microseconds(const BenchTime& time, double value) {
  return time.median_us > 0 ? two_decimals(value) : "-";
}

/// All columns with --wide, else those that fit a terminal.
std::vector<TextColumn> columns_of(const BenchOptions& options) {
  const bool wide = options.wide;
  // Their columns replace others.
  const bool peers = !options.nccl.empty() && !wide;
  const bool many_peers = options.nccl.size() > 1 && !wide;
  const bool eager = options.cuda && options.mode == BenchMode::eager;
  const bool measured = options.predicted_from == 0;
  std::vector<TextColumn> columns;
  const auto add = [&](bool shown, std::string head, std::size_t width, auto text) {
    if (shown) columns.push_back({std::move(head), width, std::move(text)});
  };
  add(true, "bytes", wide ? 12 : 11, [](const BenchRow& row) { return std::to_string(row.bytes); });
  add(!peers && !(eager && !wide), "count", wide ? 11 : 10,
      [](const BenchRow& row) { return std::to_string(row.count); });
  std::string type{to_string(options.type)};
  std::string op{op_name(options)};
  const std::size_t op_width = std::max<std::size_t>(5, op.size());
  add(wide, "type", 5, [type = std::move(type)](const BenchRow&) -> const std::string& { return type; });
  add(wide, "op", op_width, [op = std::move(op)](const BenchRow&) -> const std::string& { return op; });
  add(measured && !many_peers, "algo", 9,
      [](const BenchRow& row) { return std::string(to_string(row.algorithm)); });
  add(true, "time(us)", peers ? 10 : 11,
      [](const BenchRow& row) { return microseconds(row.time, row.time.median_us); });
  add(wide && measured, "min", 11,
      [](const BenchRow& row) { return microseconds(row.time, row.time.min_us); });
  add(!peers && measured, "p95", wide ? 11 : 10,
      [](const BenchRow& row) { return microseconds(row.time, row.time.p95_us); });
  const bool repeated = options.repeat > 1;
  add(repeated, "spread", 8,
      [](const BenchRow& row) { return row.rounds.empty() ? "-" : two_decimals(spread(row)); });
  add(!peers && !(eager && !wide) && (wide || !repeated), "algbw", 8,
      [](const BenchRow& row) { return two_decimals(row.algbw); });
  add(!(peers && eager) && !many_peers, "busbw", 8,
      [](const BenchRow& row) { return two_decimals(row.busbw); });
  add(measured && !(many_peers && eager), "check", 6,
      [](const BenchRow& row) { return std::string(row.checked ? "ok" : "-"); });
  add(eager, "host(ns)", wide ? 9 : 8,
      [](const BenchRow& row) { return fmt::format("{:.0f}", row.host_ns); });
  for (const std::string& name : peer_columns(options)) {
    const std::size_t width = many_peers ? 8 : wide ? 11 : 10;
    add(true, name, std::max(width, name.size()), [name](const BenchRow& row) {
      const auto peer = std::find_if(row.peers.begin(), row.peers.end(),
                                     [&](const PeerTime& each) { return each.name == name; });
      return peer != row.peers.end() ? microseconds(peer->time, peer->time.median_us) : "-";
    });
  }
  add(!options.nccl.empty(), "ours/best", 9, [](const BenchRow& row) {
    const auto ratio = ratio_to_peers(row);
    return ratio ? two_decimals(*ratio) : "-";
  });
  return columns;
}

/// What the columns mean whose heads do not say it.
std::string legend(const std::vector<TextColumn>& columns, bool predicted) {
  const auto shown = [&](std::string_view head) {
    return std::ranges::any_of(columns, [&](const TextColumn& each) { return each.head == head; });
  };
  std::string text =
      predicted ? "time: us per call, predicted" : "time: median of the slowest rank, us per call";
  if (shown("p95")) text += shown("min") ? "; min, p95: of the same samples" : "; p95: of the same samples";
  if (shown("spread")) text += "; spread: slowest round / fastest";
  if (shown("busbw"))
    text += shown("algbw") ? "; algbw, busbw: GB/s as in nccl-tests" : "; busbw: GB/s as in nccl-tests";
  return text;
}

std::string what_is_timed(const BenchOptions& options) {
  switch (options.mode) {
    case BenchMode::chain:
      return "graphs of calls back to back";
    case BenchMode::dependent:
      return "graphs of calls, each of the last one's output";
    case BenchMode::isolated:
      return "one call per graph, from the last rank's arrival, two steps between kernels included";
    case BenchMode::eager:
      return "calls queued one by one";
  }
  return {};
}

}  // namespace

std::string two_decimals(double value) {
  return fmt::format("{:.2f}", value);
}

std::optional<double> ratio_to_peers(const BenchRow& row) {
  double best = 0;
  for (const PeerTime& peer : row.peers) {
    const double time = peer.time.median_us;
    if (time > 0 && (best == 0 || time < best)) best = time;
  }
  if (best == 0) return std::nullopt;
  return row.time.median_us / best;
}

std::string describe(const BenchOptions& options) {
  std::string text = fmt::format("{} {} ranks ({})", options.ranks, options.cuda ? "GPU" : "host",
                                 options.threads ? "threads" : "processes");
  if (options.predicted_from != 0) text += fmt::format(", predicted from {}", options.predicted_from);
  if (options.collective->moves_data) {
    text += fmt::format(", {}, {} buffers, {}, algorithm {}, tuning {}", type_and_op(options),
                        to_string(options.buffers), options.in_place ? "in place" : "out of place",
                        options.algorithm ? to_string(*options.algorithm) : "auto", tuning_of(options));
  }
  if (options.binding != Binding::none) text += fmt::format(", bound to {}", to_string(options.binding));
  if (options.repeat > 1) text += fmt::format(", {} rounds", options.repeat);
  if (options.collective->rooted()) text += fmt::format(", root {}", options.root.value);
  if (options.cuda) text += fmt::format(", {}{}", to_string(options.mode), options.cold ? ", cold" : "");
  if (options.parts != 1) text += fmt::format(", {} parts in a group of calls", options.parts);
  return text;
}

std::string describe_machine(const BenchDocument& document) {
  const std::optional<GpuMachine>& gpus = document.gpus;
  std::string text;
  if (gpus && !gpus->names.empty()) {
    text = fmt::format("{} x {}", gpus->names.size(), gpus->names.front());
    if (gpus->nvlinks) text += fmt::format(" (NV{})", *gpus->nvlinks);
    if (!gpus->driver.empty()) text += ", driver " + gpus->driver;
    text += ", CUDA " + gpus->cuda;
    if (!gpus->nccl.empty()) text += ", NCCL " + gpus->nccl;
    text += "; ";
  }
  const MachineInfo& machine = document.machine;
  return text + fmt::format("{}, {} cores, {}", machine.cpu, machine.cpus, machine.kernel);
}

BenchDocument begin_document(const std::vector<BenchOptions>& plan, std::string launcher) {
  BenchDocument document;
  document.build = build_info();
  document.origin = origin();
  document.machine = machine_info();
  document.launcher = std::move(launcher);
  for (const BenchOptions& options : plan) document.reports.emplace_back().options = options;
  return document;
}

void Table::begin(const BenchOptions& options, const BenchDocument& document) {
  if (out_ == nullptr) return;
  clear_progress();
  const auto line = [&](const std::string& text) {
    write(wrapped(text, "# ", options.wide ? std::string::npos : kTerminalColumns));
  };
  const std::string what = fmt::format("{}: {}", options.collective->name, describe(options));
  if (begun_) {
    write("\n");
    line(what);
  } else {
    line(fmt::format("{} {}", describe(document.build), what));
    line(describe_machine(document));
    line(describe(document.origin));
    line(legend(columns_of(options), options.predicted_from != 0));
  }
  begun_ = true;
  if (options.cuda) line(fmt::format("timed: {}", what_is_timed(options)));
  std::string head;
  for (const TextColumn& each : columns_of(options)) head += fmt::format(" {:>{}}", each.head, each.width);
  write(head.substr(1) + "\n");
}

void Table::progress(std::string_view what) {
  if (!terminal_ || out_ == nullptr) return;
  write(fmt::format("\r\x1b[K  {} ...", what));
  progress_shown_ = true;
}

void Table::clear_progress() {
  if (progress_shown_) write("\r\x1b[K");
  progress_shown_ = false;
}

void Table::row(const BenchRow& row, const BenchOptions& options) {
  if (out_ == nullptr) return;
  clear_progress();
  std::string line;
  for (const TextColumn& each : columns_of(options)) {
    const std::string cell = fmt::format(" {:>{}}", each.text(row), each.width);
    line += cell.ends_with(" ok") ? colored(cell, Color::green, terminal_ && use_colors()) : cell;
  }
  write(line.substr(1) + "\n");
}

void Table::note(std::string_view text) {
  if (out_ == nullptr) return;
  clear_progress();
  write(fmt::format("# note: {}\n", text));
}

void Table::finish() const {
  if (error_ != 0) fail_errno(error_, "cannot write the output");
}

void Table::write(const std::string& text) {
  if (error_ != 0) return;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), out_) == text.size() && std::fflush(out_) == 0;
  if (!written) error_ = errno;
}

std::string to_json(const BenchDocument& document) {
  const MachineInfo& machine = document.machine;
  nlohmann::json out;
  if (document.reports.size() == 1) {
    out = to_json(document.reports.front(), document.launcher);
  } else {
    out["reports"] = nlohmann::json::array();
    for (const BenchReport& report : document.reports)
      out["reports"].push_back(to_json(report, document.launcher));
    out["complete"] = std::all_of(document.reports.begin(), document.reports.end(),
                                  [](const BenchReport& report) { return report.complete; });
  }
  out["format"] = "onehop-bench";
  out["format_version"] = 1;
  out["onehop"] = {{"version", document.build.version}, {"commit", document.build.commit}};
  out["machine"] = {{"cpu", machine.cpu}, {"cores", machine.cpus}, {"kernel", machine.kernel}};
  if (document.gpus) out["machine"]["gpus"] = to_json(*document.gpus);
  return write_document(std::move(out), document.origin);
}

}  // namespace onehop::cli
