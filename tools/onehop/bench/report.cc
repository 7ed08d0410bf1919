#include "bench/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "onehop/version.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/statistics.h"
#include "machine_info.h"

namespace onehop::cli {

namespace {

nlohmann::json to_json(const BenchTime& time) {
  return {{"median", time.median_us}, {"min", time.min_us}, {"p95", time.p95_us}};
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

struct PeerColumn {
  const char* name;
  const char* head;
};

/// Of those that may have times.
std::vector<PeerColumn> peer_columns(const BenchOptions& options) {
  if (!options.nccl) return {};
  std::vector<PeerColumn> columns{{"nccl", "nccl(us)"}};
  if (options.collective->nccl_has_symmetric) columns.push_back({"nccl-sym", "nccl-sym"});
  return columns;
}

std::string tuning_of(const BenchOptions& options) {
  return options.tuning.empty() ? "shipped" : options.tuning;
}

/// How wide the column with the reduction is.
int op_column(const BenchOptions& options) {
  return std::max(5, static_cast<int>(op_name(options).size()));
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
  std::string text = fmt::format(
      "{} {} ranks ({}), {}, {} buffers, {}, algorithm {}, tuning {}", options.ranks,
      options.cuda ? "GPU" : "host", options.threads ? "threads" : "processes", type_and_op(options),
      to_string(options.buffers), options.in_place ? "in place" : "out of place",
      options.algorithm ? to_string(*options.algorithm) : "auto", tuning_of(options));
  if (options.collective->rooted()) text += fmt::format(", root {}", options.root.value);
  if (options.cuda) text += fmt::format(", {}{}", to_string(options.mode), options.cold ? ", cold" : "");
  if (options.parts != 1) text += fmt::format(", {} parts in a group of calls", options.parts);
  if (options.copy_scratch != 0) text += fmt::format(", copy scratch {}", format_size(options.copy_scratch));
  return text;
}

std::string describe_machine(const std::optional<GpuMachine>& gpus) {
  const MachineInfo machine = machine_info();
  std::string text;
  if (gpus && !gpus->names.empty()) {
    text = fmt::format("{} x {}", gpus->names.size(), gpus->names.front());
    if (gpus->nvlinks) text += fmt::format(" (NV{})", *gpus->nvlinks);
    if (!gpus->driver.empty()) text += ", driver " + gpus->driver;
    text += ", CUDA " + gpus->cuda;
    if (!gpus->nccl.empty()) text += ", NCCL " + gpus->nccl;
    text += "; ";
  }
  return text + fmt::format("{}, {} cores, {}", machine.cpu, machine.cpus, machine.kernel);
}

void Table::begin(const BenchOptions& options, const std::optional<GpuMachine>& gpus) {
  const std::string commit = build_commit();
  fmt::print(out_, "# onehop {}{} {}: {}\n", version(), commit.empty() ? "" : " (" + commit + ")",
             options.collective->name, describe(options));
  fmt::print(out_, "# {}\n", describe_machine(gpus));
  fmt::print(
      out_,
      "# time: median, min and p95 of the slowest rank, us per call; algbw, busbw: GB/s as in nccl-tests\n");
  if (options.cuda) fmt::print(out_, "# timed: {}\n", what_is_timed(options));
  fmt::print(out_, "{:>12} {:>11} {:>5} {:>{}} {:>9} {:>11} {:>11} {:>11} {:>8} {:>8} {:>6}", "bytes",
             "count", "type", "op", op_column(options), "algo", "time(us)", "min", "p95", "algbw", "busbw",
             "check");
  if (options.cuda && options.mode == BenchMode::eager) fmt::print(out_, " {:>9}", "host(ns)");
  for (const PeerColumn& column : peer_columns(options)) fmt::print(out_, " {:>11}", column.head);
  if (options.nccl) fmt::print(out_, " {:>9}", "ours/best");
  fmt::print(out_, "\n");
  (void)std::fflush(out_);
}

void Table::progress(std::string_view what) {
  if (!terminal_) return;
  fmt::print(out_, "\r\x1b[K  {} ...", what);
  (void)std::fflush(out_);
  progress_shown_ = true;
}

void Table::clear_progress() {
  if (progress_shown_) fmt::print(out_, "\r\x1b[K");
  progress_shown_ = false;
}

void Table::row(const BenchRow& row, const BenchOptions& options) {
  clear_progress();
  fmt::print(out_, "{:>12} {:>11} {:>5} {:>{}} {:>9} {:>11.2f} {:>11.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>6}",
             row.bytes, row.count, to_string(options.type), op_name(options), op_column(options),
             to_string(row.algorithm), row.time.median_us, row.time.min_us, row.time.p95_us, row.algbw,
             row.busbw, row.checked ? "ok" : "-");
  if (options.cuda && options.mode == BenchMode::eager) fmt::print(out_, " {:>9.0f}", row.host_ns);
  for (const PeerColumn& column : peer_columns(options)) {
    const auto peer = std::find_if(row.peers.begin(), row.peers.end(),
                                   [&](const PeerTime& each) { return each.name == column.name; });
    const bool known = peer != row.peers.end() && peer->time.median_us > 0;
    fmt::print(out_, " {:>11}", known ? fmt::format("{:.2f}", peer->time.median_us) : "-");
  }
  if (options.nccl) {
    const auto ratio = ratio_to_peers(row);
    fmt::print(out_, " {:>9}", ratio ? fmt::format("{:.2f}", *ratio) : "-");
  }
  fmt::print(out_, "\n");
  (void)std::fflush(out_);
}

void Table::note(std::string_view text) {
  clear_progress();
  fmt::print(out_, "# note: {}\n", text);
  (void)std::fflush(out_);
}

std::string to_json(const BenchReport& report) {
  using nlohmann::json;
  const BenchOptions& options = report.options;
  const MachineInfo machine = machine_info();
  const double bus_factor = options.collective->bus_factor.of(options.ranks);
  json rows = json::array();
  for (const BenchRow& row : report.rows) rows.push_back(to_json(row, bus_factor));
  json document = {{"format", "onehop-bench"},
                   {"format_version", 1},
                   {"onehop", {{"version", version()}, {"commit", build_commit()}}},
                   {"machine", {{"cpu", machine.cpu}, {"cores", machine.cpus}, {"kernel", machine.kernel}}},
                   {"run",
                    {{"collective", options.collective->name},
                     {"ranks", options.ranks},
                     {"ranks_are", options.threads ? "threads" : "processes"},
                     {"launcher", report.launcher},
                     {"device", options.cuda ? "cuda" : "host"},
                     {"type", to_string(options.type)},
                     {"op", op_name(options)},
                     {"algorithm", options.algorithm ? to_string(*options.algorithm) : "auto"},
                     {"tuning", tuning_of(options)},
                     {"buffers", to_string(options.buffers)},
                     {"in_place", options.in_place},
                     {"warmup", options.warmup}}},
                   {"results", rows}};
  if (options.op == ReduceOp::premul_sum) document["run"]["factor"] = options.factor;
  if (options.collective->rooted()) document["run"]["root"] = options.root.value;
  if (options.cuda) {
    document["run"]["mode"] = to_string(options.mode);
    document["run"]["cold"] = options.cold;
    document["run"]["parts"] = options.parts;
    document["run"]["copy_scratch_bytes"] = options.copy_scratch;
  }
  if (report.gpus) document["machine"]["gpus"] = to_json(*report.gpus);
  if (!report.notes.empty()) document["notes"] = report.notes;
  return document.dump(2) + "\n";
}

}  // namespace onehop::cli
