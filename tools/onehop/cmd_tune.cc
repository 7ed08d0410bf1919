// SPDX-License-Identifier: Apache-2.0
// onehop tune: which way is the quickest here, as a table?
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
#include "origin.h"
#include "output.h"
#include "scratch_dir.h"
#include "text_table.h"

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

struct Arguments {
  std::optional<std::string> ranks;
  std::optional<std::string> sizes;
  std::string types = "bf16";
  std::string device = "auto";
  std::optional<std::string> iterations;
  std::string out = "-";
};

struct TuneOptions {
  BenchOptions bench;  ///< of every measurement; its sizes are all sizes
  std::map<TypeClass, std::vector<DType>> types;
  std::string out;
};

std::vector<DType> parse_types(const std::string& text) {
  std::vector<DType> types;
  for (const std::string& name : CLI::detail::split(text, ',')) types.push_back(parse_dtype(name));
  return types;
}

TuneOptions parse(const Arguments& arguments) {
  TuneOptions options;
  BenchOptions& bench = options.bench;
  if (arguments.ranks) bench.ranks = parse_count("--ranks", *arguments.ranks, 2, kMaxHostRanks);
  if (arguments.iterations) bench.iterations = parse_count("--iters", *arguments.iterations, 1, 100000);
  try {
    if (arguments.sizes) bench.sizes = parse_sizes(*arguments.sizes);
    for (const DType type : parse_types(arguments.types)) {
      std::vector<DType>& same_class = options.types[type_class(type)];
      if (std::find(same_class.begin(), same_class.end(), type) == same_class.end()) {
        same_class.push_back(type);
      }
    }
  } catch (const Error& error) {
    throw UsageError(error.message());
  }
  bench.warmup = 2;
  options.out = arguments.out;
  return options;
}

/// Once it is known whether ranks are GPUs.
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

/// One rank of the run. All ranks see the same figures, so they decide alike.
class Tuner {
 public:
  Tuner(const TuneOptions& options, JoinOptions join, const JobInfo& job, Watchdog* watchdog)
      : options_(options),
        join_(std::move(join)),
        leads_(job.rank == Rank{0}),
        terminal_(leads_ && job.launcher == "onehop" && ::isatty(STDERR_FILENO) != 0),
        watchdog_(watchdog) {
    if (!leads_) return;
    scratch_.emplace();
    join_.tuning = scratch_->path() / "candidate.json";
  }

  Tuning run() {
    if (leads_) fmt::print(stderr, "{}", wrapped(describe(origin()), "# "));
    Tuning table;
    // A table with rows for every type would also take floats that nobody measured.
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
  /// What was measured of a way, as soon as it was: a run that is interrupted has shown it.
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
        if (const std::optional<std::size_t> same = twin(figures, way, size)) {
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
  std::optional<ScratchDir> scratch_;  ///< rank 0's, for the table of the way that is measured
  std::string device_;
  std::string doing_;
};

int run_in_job(TuneOptions options, const JobInfo& job, bool ranks_given, DeviceChoice device) {
  const JoinOptions join = place_in_job(options.bench, job, ranks_given, device, kGroup);
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

int run_tune(const Arguments& arguments, TuneOptions options, const std::vector<std::string>& command_line) {
  const DeviceChoice device = parse_device(arguments.device);
  if (const std::optional<JobInfo> job = job_from_env()) {
    return run_in_job(options, *job, arguments.ranks.has_value(), device);
  }
  const auto ranks = arguments.ranks ? std::optional<int>(options.bench.ranks) : std::nullopt;
  (void)choose_ranks(options.bench, ranks, device);
  complete(options);  // refuses what would be refused on every rank
  check_writable(options.out);
  return run_processes(options.bench.ranks, command_line);
}

}  // namespace

void add_tune(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const sub = app.add_subcommand("tune", "Measure which algorithm is quickest here, as a table");
  sub->footer(kFooter);
  sub->add_option("-n,--ranks", arguments->ranks,
                  fmt::format("Ranks to start, 2 to {} (default: all GPUs, at most {}; without GPUs 4)",
                              kMaxHostRanks, kMaxDevices))
      ->type_name("N");
  sub->add_option("--device", arguments->device, "auto (GPUs if there are enough), host or cuda")
      ->capture_default_str()
      ->type_name("NAME");
  sub->add_option("--sizes", arguments->sizes,
                  "Bytes: a list 1K,4K,1M or a range first:last:factor (default: 1K:1G:4; host 1K:16M:4)")
      ->type_name("LIST");
  sub->add_option("--types", arguments->types,
                  "Types to measure, say bf16,f32; floats stand for all floats, others for all others")
      ->capture_default_str()
      ->type_name("LIST");
  sub->add_option("--iters", arguments->iterations,
                  "Samples per size (default: GPUs 5, host what fits in 0.2 s)")
      ->type_name("N");
  sub->add_option("--out,--json", arguments->out, "Where the table goes, which is JSON; '-': standard output")
      ->capture_default_str()
      ->type_name(kOutputType)
      ->check(complaint_about_output);
  sub->callback([arguments, command_line, &run] {
    const TuneOptions options = parse(*arguments);
    (void)parse_device(arguments->device);
    run = [arguments, options, command_line] { return run_tune(*arguments, options, command_line); };
  });
}

}  // namespace onehop::cli
