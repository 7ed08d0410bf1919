// SPDX-License-Identifier: Apache-2.0
// onehop tune: measures the fastest algorithm of every size and writes a tuning table.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "onehop/group.h"
#include "onehop/job.h"
#include "onehop/tuning.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/ranks.h"
#include "bench/run.h"
#include "bench/winners.h"
#include "commands.h"
#include "options.h"
#include "origin.h"
#include "os/private_dir.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  onehop tune --out tuning.json                     all GPUs (else 4 host ranks), bf16
  onehop tune --ranks 2 --sizes 4K:64M:4 --out two.json
  onehop tune --types bf16,i32 --out tuning.json    rows for floats, and for what is left
  ONEHOP_TUNING=tuning.json onehop bench all-reduce

Every way of an all-reduce (on GPUs protocol, blocks and threads; on the host algorithm and chunk) is verified, then
measured at every size as 'onehop bench' does. The quickest of each size becomes the table; within 2% the library's
own choice is kept. Groups follow a table that JoinOptions::tuning or ONEHOP_TUNING names. The figures behind it are
shown on stderr. Under onehop launch, torchrun, mpirun or srun it joins that job.

Exit code: 0 the table is written; 1 wrong result or failure; 2 bad usage.)";

constexpr const char* kGroup = "tune";
constexpr int kGpuIterations = 5;
constexpr std::uint64_t kVerifiedBytes = 1 << 20;

/// Types to measure, by class.
using Types = std::map<TypeClass, std::vector<DType>>;

struct TuneOptions {
  BenchOptions bench;  ///< of every measurement; its sizes are all sizes
  Types types{{TypeClass::floats, {DType::bf16}}};
  std::optional<int> ranks;
  DeviceChoice device = DeviceChoice::automatic;
  std::string out = "-";
};

Types parse_types(const std::string& text) {
  Types types;
  for (const std::string_view name : split(text, ',')) {
    const DType type = parse_dtype(name);
    std::vector<DType>& same_class = types[type_class(type)];
    if (std::find(same_class.begin(), same_class.end(), type) == same_class.end()) same_class.push_back(type);
  }
  return types;
}

/// Called once the kind of the ranks is known.
void complete(TuneOptions& options) {
  BenchOptions& bench = options.bench;
  if (bench.sizes.empty()) bench.sizes = parse_size_list(bench.cuda ? "1K:1G:4" : "1K:16M:4");
  for (const auto& [types, members] : options.types) {
    for (const DType type : members) {
      bench.type = type;
      refuse_empty_blocks(bench);
    }
  }
  std::sort(bench.sizes.begin(), bench.sizes.end());
  bench.sizes.erase(std::unique(bench.sizes.begin(), bench.sizes.end()), bench.sizes.end());
  if (bench.cuda && !bench.iterations) bench.iterations = kGpuIterations;
}

/// One rank of the run. All ranks see the same figures, so they make the same decisions.
class Tuner {
 public:
  Tuner(const TuneOptions& options, JoinOptions join, const JobInfo& job, Watchdog* watchdog)
      : options_(options),
        join_(std::move(join)),
        leads_(job.rank == Rank{0}),
        terminal_(leads_ && job.launcher == "onehop" && ::isatty(STDERR_FILENO) != 0),
        watchdog_(watchdog) {
    if (!leads_) return;
    scratch_ = os::PrivateDir::create("launch");
    join_.tuning = scratch_->path() + "/candidate.json";
  }

  Tuning run() {
    if (leads_) fmt::print(stderr, "{}", wrapped(describe(origin()), "# "));
    Tuning table;
    // A table with rows for every type would also take floats that were not measured.
    if (options_.types.count(TypeClass::floats) == 0) table.rows.push_back(row_of(TypeClass::floats));
    for (const auto& [types, members] : options_.types) {
      const Figures figures = measure(types, members);
      const std::vector<Winner> winners = pick_winners(figures);
      show(types, members, figures, winners);
      for (const TuningRow& row : merge(figures, winners, row_of(types))) table.rows.push_back(row);
    }
    table.device = device_;
    return table;
  }

 private:
  /// Shows the figures of a way as soon as it is measured, so that an interrupted run has shown them.
  void show(const Figures& figures, std::size_t way) const {
    std::string times;
    for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
      if (const std::optional<double> us = figures.us[way][size])
        times += fmt::format("{}{} {:.2f}", times.empty() ? "" : ", ", format_size(figures.sizes[size]), *us);
    }
    fmt::print(stderr, "{}", wrapped(fmt::format("{}: {} us", to_string(figures.ways[way]), times), "# "));
  }

  [[nodiscard]] TuningRow row_of(TypeClass types, const Way& way = DefaultWay{}) const {
    return {.backend = options_.bench.cuda ? Backend::cuda : Backend::host,
            .ranks = options_.bench.ranks,
            .types = types,
            .way = way};
  }

  Figures measure(TypeClass types, const std::vector<DType>& members) {
    const BenchOptions& bench = options_.bench;
    const Backend backend = bench.cuda ? Backend::cuda : Backend::host;
    Figures figures(bench.sizes, candidate_ways(backend, bench.ranks, types));
    for (std::size_t way = 0; way < figures.ways.size(); ++way) {
      doing_ = fmt::format("{} of {}: {}", way + 1, figures.ways.size(), to_string(figures.ways[way]));
      if (leads_) {
        write_output(join_.tuning,
                     Tuning{.device = {}, .rows = {row_of(types, figures.ways[way])}}.to_json());
      }
      Group group = Group::from_env(join_);
      for (const DType type : members) (void)measure(group, type, kVerifiedBytes, /*check=*/true);
      for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
        if (const std::optional<std::size_t> same = equivalent(figures, way, size)) {
          figures.us[way][size] = figures.us[*same][size];
          continue;
        }
        double sum = 0;
        for (const DType type : members) sum += measure(group, type, figures.sizes[size], /*check=*/false);
        figures.us[way][size] = sum / static_cast<double>(members.size());
        if (is_hopeless(figures, way, size)) break;
      }
      if (!leads_) continue;
      clear_progress();
      show(figures, way);
    }
    return figures;
  }

  /// us per call.
  double measure(Group& group, DType type, std::uint64_t bytes, bool check) {
    BenchOptions bench = options_.bench;
    bench.type = type;
    bench.sizes = {bytes};
    bench.check = check;
    if (check) bench.iterations = 1;
    double us = 0;
    BenchListener listener;
    listener.progress = [&](std::string_view what) { progress(what); };
    listener.row = [&](const BenchRow& row) { us = row.time.median_us; };
    listener.gpus = [&](const GpuMachine& gpus) { device_ = gpus.names.front(); };
    listener.note = [](const std::string&) {};
    listener.failing = [&](const Error& error) { expect_end(watchdog_, error); };
    run_collective_bench(group, bench, listener);
    return us;
  }

  void progress(std::string_view what) {
    if (watchdog_ != nullptr) watchdog_->alive(what);
    if (!terminal_) return;
    fmt::print(stderr, "\r\x1b[K  {}; {} ...", doing_, what);
    (void)std::fflush(stderr);
  }
  void clear_progress() const {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }

  void show(TypeClass types, const std::vector<DType>& members, const Figures& figures,
            const std::vector<Winner>& winners) const {
    if (!leads_) return;
    std::string names;
    for (const DType type : members) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(type));
    fmt::print(
        stderr, "{}",
        wrapped(fmt::format("{} {} ranks, {}: quickest of {} ways for types of class '{}', us per call",
                            options_.bench.ranks, options_.bench.cuda ? "GPU" : "host", names,
                            figures.ways.size(), to_string(types)),
                "# "));
    fmt::print(stderr, "{:>12} {:>11} {:>11}  {}\n", "bytes", "us", "default us", "winner");
    for (const Winner& winner : winners) {
      fmt::print(stderr, "{:>12} {:>11.2f} {:>11.2f}  {}\n", winner.bytes, winner.us, winner.default_us,
                 to_string(figures.ways[winner.way]));
    }
  }

  const TuneOptions& options_;
  JoinOptions join_;
  const bool leads_;
  const bool terminal_;
  Watchdog* const watchdog_;
  std::optional<os::PrivateDir> scratch_;  ///< on rank 0, for the table of the way that is measured
  std::string device_;
  std::string doing_;
};

int run_in_job(TuneOptions options, const JobInfo& job) {
  const JoinOptions join = join_options_in_job(options.bench, job, options.ranks, options.device, kGroup);
  if (job.size == 1)
    throw UsageError(fmt::format("{} started 1 rank, which has nothing to choose from", job.launcher));
  complete(options);
  const bool leads = job.rank == Rank{0};
  if (leads) check_writable(options.out);
  const std::unique_ptr<Watchdog> watchdog = watch(options.bench);  // outlives the groups
  const Tuning table = Tuner(options, join, job, watchdog.get()).run();
  if (!leads) return kExitOk;
  write_output(options.out, table.to_json());
  return kExitOk;
}

int run_tune(TuneOptions options, const std::vector<std::string>& command_line) {
  if (const std::optional<JobInfo> job = job_from_env()) return run_in_job(options, *job);
  (void)choose_ranks(options.bench, options.ranks, options.device);
  complete(options);  // refuses what every rank would refuse
  check_writable(options.out);
  return run_processes(options.bench.ranks, command_line);
}

}  // namespace

void add_tune(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run) {
  auto options = std::make_shared<TuneOptions>();
  options->bench.warmup = 2;
  CLI::App* const sub = app.add_subcommand("tune", "Measure which algorithm is quickest here, as a table");
  sub->footer(kFooter);
  add_ranks(*sub, options->ranks, 2);
  add_device(*sub, options->device);
  add_parsed(*sub, "--sizes", options->bench.sizes, parse_sizes,
             "Bytes: a list 1K,4K,1M or a range first:last:factor (default: 1K:1G:4; host 1K:16M:4)")
      ->type_name("LIST");
  add_parsed(*sub, "--types", options->types, parse_types,
             "Types to measure, say bf16,f32; floats stand for all floats, others for all others")
      ->default_str("bf16")
      ->type_name("LIST");
  sub->add_option("--iters", options->bench.iterations,
                  "Samples per size (default: GPUs 5, host what fits in 0.2 s)")
      ->type_name("N")
      ->check(in_range(1, 100000));
  sub->add_option("--out,--json", options->out, "Where the table goes, which is JSON; '-': standard output")
      ->capture_default_str()
      ->type_name(kOutputType)
      ->check(output_path());
  sub->callback([options, command_line, &run] {
    run = [options, command_line] { return run_tune(*options, command_line); };
  });
}

}  // namespace onehop::cli
