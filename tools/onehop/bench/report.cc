#include "bench/report.h"

#include <nlohmann/json.hpp>

#include "onehop/version.h"

#include "base/check.h"
#include "machine_info.h"

namespace onehop::cli {

std::string describe(const BenchOptions& options) {
  return fmt::format("{} host ranks ({}), {} {}, {} buffers, {}, algorithm {}", options.ranks,
                     options.threads ? "threads" : "processes", to_string(options.type),
                     to_string(options.op), options.symmetric ? "symmetric" : "ordinary",
                     options.in_place ? "in place" : "out of place",
                     options.algorithm ? to_string(*options.algorithm) : "auto");
}

void Table::begin(const BenchOptions& options) {
  const MachineInfo machine = machine_info();
  const std::string commit = build_commit();
  fmt::print(out_, "# onehop {}{} {}: {}\n", version(), commit.empty() ? "" : " (" + commit + ")",
             options.collective, describe(options));
  fmt::print(out_, "# {}, {} cores, {}\n", machine.cpu, machine.cpus, machine.kernel);
  fmt::print(
      out_,
      "# time: median, min and p95 of the slowest rank, us per call; algbw, busbw: GB/s as in nccl-tests\n");
  fmt::print(out_, "{:>12} {:>11} {:>5} {:>5} {:>9} {:>11} {:>11} {:>11} {:>8} {:>8} {:>6}\n", "bytes",
             "count", "type", "op", "algo", "time(us)", "min", "p95", "algbw", "busbw", "check");
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
  fmt::print(out_, "{:>12} {:>11} {:>5} {:>5} {:>9} {:>11.2f} {:>11.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>6}\n",
             row.bytes, row.count, to_string(options.type), to_string(options.op), to_string(row.algorithm),
             row.median_us, row.min_us, row.p95_us, row.algbw, row.busbw, row.checked ? "ok" : "-");
  (void)std::fflush(out_);
}

std::string to_json(const BenchReport& report) {
  using nlohmann::json;
  const BenchOptions& options = report.options;
  const MachineInfo machine = machine_info();
  json rows = json::array();
  for (const BenchRow& row : report.rows) {
    rows.push_back({{"bytes", row.bytes},
                    {"count", row.count},
                    {"algorithm", to_string(row.algorithm)},
                    {"time_us", {{"median", row.median_us}, {"min", row.min_us}, {"p95", row.p95_us}}},
                    {"algbw_gbps", row.algbw},
                    {"busbw_gbps", row.busbw},
                    {"samples", row.samples},
                    {"calls_per_sample", row.batch},
                    {"checked", row.checked}});
  }
  const json document = {
      {"format", "onehop-bench"},
      {"format_version", 1},
      {"onehop", {{"version", version()}, {"commit", build_commit()}}},
      {"machine", {{"cpu", machine.cpu}, {"cores", machine.cpus}, {"kernel", machine.kernel}}},
      {"run",
       {{"collective", options.collective},
        {"ranks", options.ranks},
        {"ranks_are", options.threads ? "threads" : "processes"},
        {"launcher", report.launcher},
        {"device", "host"},
        {"type", to_string(options.type)},
        {"op", to_string(options.op)},
        {"algorithm", options.algorithm ? to_string(*options.algorithm) : "auto"},
        {"buffers", options.symmetric ? "symmetric" : "ordinary"},
        {"in_place", options.in_place},
        {"warmup", options.warmup}}},
      {"results", rows}};
  return document.dump(2) + "\n";
}

}  // namespace onehop::cli
