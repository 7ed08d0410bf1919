// SPDX-License-Identifier: Apache-2.0
// onehop tune: measures the fastest algorithm of every size and writes a tuning table; shows the table that groups
// use, and explains its choice for a call.
#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>

#include "onehop/topology.h"
#include "onehop/tuning.h"

#include "base/check.h"
#include "base/element.h"
#include "base/env.h"
#include "base/nearest.h"
#include "base/units.h"
#include "bench/device.h"
#include "bench/ranks.h"
#include "bench/tune_plan.h"
#include "bench/tuner.h"
#include "commands.h"
#include "options.h"
#include "os/text_file.h"
#include "output.h"
#include "tuning_report.h"

namespace onehop::cli {
namespace {

constexpr const char* kTuneFooter = R"(Examples:
  onehop tune --out tuning.json                     all GPUs (else 4 host ranks), every collective, bf16
  onehop tune --collectives all-reduce --ranks 2 --sizes 4K:64M:4 --out two.json
  onehop tune --types bf16,i32 --out tuning.json    rows for floats, and for what is left
  onehop tune --buffers both --out tuning.json      rows for calls that declare symmetric outputs, too
  ONEHOP_TUNING=tuning.json onehop bench all-reduce

  onehop tune --show                                the table that groups of all GPUs use here
  onehop tune --show --ranks 8 --device cuda        of 8 GPUs, which need not be here
  onehop tune --show --json table.json              the same as a table that can be edited
  onehop tune --explain all-reduce 4M bf16          which row such a call uses, and why

Every choice of a collective (an algorithm, and on GPUs blocks and threads, on the host the chunk) is verified, then
measured at every size as 'onehop bench' does. The fastest of each size becomes the table; within 2% the library's
own choice is kept. Groups follow a table that JoinOptions::tuning or ONEHOP_TUNING names. The figures behind it are
shown on stderr. Under onehop launch, torchrun, mpirun or srun it joins that job.

Sizes are those of tables: bytes of one block, that is, of the message, or of the part of one rank in all-gather,
reduce-scatter, all-to-all, gather and scatter.

Exit code: 0 the table is written or shown; 1 wrong result or failure; 2 bad usage.)";

constexpr const char* kTunedGroup = "tune";
constexpr int kGpuIterations = 5;
/// More than any machine has; larger sizes could overflow when they are multiplied by the ranks.
constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 50;

constexpr Named<Links> kLinks[] = {{"nvlink", Links::nvlink}, {"pcie", Links::pcie}};

/// A call to explain.
struct ExplainedCall {
  onehop::Collective collective{};
  std::uint64_t bytes = 0;
  DType type = DType::bf16;
};

struct TuneArguments {
  TuneOptions tune;
  std::optional<int> ranks;
  DeviceChoice device = DeviceChoice::automatic;
  std::string out = "-";
  bool show = false;
  std::optional<ExplainedCall> explained;
  bool symmetric = false;
  std::optional<Links> links;
  std::string file;  ///< --tuning
};

std::string names_of(const std::vector<onehop::Collective>& collectives) {
  std::string names;
  for (const onehop::Collective each : collectives)
    names.append(names.empty() ? "" : ", ").append(to_string(each));
  return names;
}

/// GPUs have a choice wherever host ranks have one.
onehop::Collective parse_tunable(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '_', '-');
  const std::vector<onehop::Collective> known = measurable_collectives(Backend::cuda);
  std::vector<std::string_view> words;
  for (const onehop::Collective each : known) {
    if (to_string(each) == name) return each;
    words.push_back(to_string(each));
  }
  const auto meant = nearest(text, words);
  fail(ErrorCode::invalid_argument, "unknown value '{}'; known: {}{}", text, names_of(known),
       meant ? fmt::format("; did you mean '{}'?", *meant) : "");
}

std::vector<std::string> names_of_tunable() {
  std::vector<std::string> names;
  for (const onehop::Collective each : measurable_collectives(Backend::cuda))
    names.emplace_back(to_string(each));
  return names;
}

std::vector<onehop::Collective> parse_all_tunable(const std::string& text) {
  std::vector<onehop::Collective> collectives;
  for (const std::string_view name : split(text, ',')) {
    const onehop::Collective each = parse_tunable(name);
    if (std::ranges::count(collectives, each) == 0) collectives.push_back(each);
  }
  return collectives;
}

std::map<TypeClass, std::vector<DType>> parse_types(const std::string& text) {
  std::map<TypeClass, std::vector<DType>> types;
  for (const std::string_view name : split(text, ',')) {
    const DType type = parse_dtype(name);
    std::vector<DType>& same_class = types[type_class(type)];
    if (std::find(same_class.begin(), same_class.end(), type) == same_class.end()) same_class.push_back(type);
  }
  return types;
}

ExplainedCall parse_explained(const std::vector<std::string>& words) {
  return {.collective = parse_tunable(words.at(0)),
          .bytes = parse_size(words.at(1)),
          .type = parse_dtype(words.at(2))};
}

void refuse_without_choice(const std::vector<onehop::Collective>& collectives, Backend backend) {
  const std::vector<onehop::Collective> known = measurable_collectives(backend);
  for (const onehop::Collective each : collectives) {
    if (std::ranges::count(known, each) != 0) continue;
    throw UsageError(fmt::format("--collectives: {} has no choice of algorithms between {}; known: {}",
                                 to_string(each), backend == Backend::cuda ? "GPUs" : "host ranks",
                                 names_of(known)));
  }
}

/// Called once the kind of the ranks is known.
void complete(TuneOptions& options) {
  BenchOptions& bench = options.bench;
  const Backend backend = bench.cuda ? Backend::cuda : Backend::host;
  refuse_without_choice(options.collectives, backend);
  if (options.collectives.empty()) options.collectives = measurable_collectives(backend);
  if (!bench.cuda && options.buffers != TunedBuffers::any) {
    throw UsageError(fmt::format("--buffers {} is for GPUs, but these are host ranks",
                                 name_of(kTunedBuffers, options.buffers)));
  }
  for (const std::uint64_t bytes : options.sizes) {
    if (bytes > kTooMuch) throw UsageError(fmt::format("--sizes: no machine has {} bytes", bytes));
  }
  // A size is that of a block, as it is in a benchmark of all-reduce.
  bench.sizes = options.sizes;
  for (const auto& [types, members] : options.types) {
    for (const DType type : members) {
      bench.type = type;
      refuse_empty_blocks(bench);
    }
  }
  if (bench.cuda && !bench.iterations) bench.iterations = kGpuIterations;
}

/// The options of the measurement that moves most bytes, for the watchdog.
BenchOptions largest_measurement(const TuneOptions& options) {
  BenchOptions bench = options.bench;
  bench.sizes.clear();
  for (const onehop::Collective each : options.collectives) {
    bench.sizes.push_back(bench_size(options, each, block_sizes(options, each).back()));
  }
  return bench;
}

int run_in_job(TuneArguments arguments, const JobInfo& job) {
  TuneOptions& options = arguments.tune;
  const JoinOptions join =
      join_options_in_job(options.bench, job, arguments.ranks, arguments.device, kTunedGroup);
  if (job.size == 1)
    throw UsageError(fmt::format("{} started 1 rank, which has nothing to choose from", job.launcher));
  complete(options);
  const bool leads = job.rank == Rank{0};
  if (leads) check_writable(arguments.out);
  const std::unique_ptr<Watchdog> watchdog = watch(largest_measurement(options));  // outlives the groups
  const Tuning table = Tuner(options, join, job, watchdog.get()).run();
  if (!leads) return kExitOk;
  write_output(arguments.out, table.to_json());
  return kExitOk;
}

int run_tune(TuneArguments arguments, const std::vector<std::string>& command_line) {
  if (const std::optional<JobInfo> job = job_from_env()) return run_in_job(arguments, *job);
  (void)choose_ranks(arguments.tune.bench, arguments.ranks, arguments.device);
  complete(arguments.tune);  // refuses what every rank would refuse
  check_writable(arguments.out);
  return run_processes(arguments.tune.bench.ranks, command_line);
}

/// NVLink unless the topology says otherwise about the first GPUs.
Links links_here(int ranks) {
  const Topology topology = Topology::probe();
  if (topology.device_count() < ranks) return Links::nvlink;
  std::vector<DeviceId> devices;
  for (int device = 0; device < ranks; ++device) devices.emplace_back(device);
  return topology.connectivity(devices) == Connectivity::fully_connected ? Links::nvlink : Links::pcie;
}

/// The groups whose table is shown. GPUs need not be here when their number is given.
GroupKind shown_group(const TuneArguments& arguments) {
  const GpuCount gpus = arguments.device == DeviceChoice::host ? GpuCount{} : count_gpus_in_child();
  const bool cuda = arguments.device == DeviceChoice::cuda ||
                    use_gpus(arguments.device, gpus, arguments.ranks, /*may_share=*/false);
  if (!cuda && arguments.links)
    throw UsageError("--links is for GPUs, but these are host ranks; add --device cuda");
  if (cuda && !arguments.ranks && gpus.count == 0)
    throw UsageError(fmt::format("--device cuda: {}; --ranks says how many GPUs a group has", gpus.why));
  const int ranks = arguments.ranks.value_or(default_ranks(cuda, gpus));
  if (!cuda) return {.backend = Backend::host, .ranks = ranks};
  if (ranks > kMaxDevices)
    throw UsageError(fmt::format("--ranks {}: a group has at most {} GPUs", ranks, kMaxDevices));
  const Links links = arguments.links       ? *arguments.links
                      : gpus.count >= ranks ? links_here(ranks)
                                            : Links::nvlink;
  return {.backend = Backend::cuda, .ranks = ranks, .links = links};
}

GroupTable shown_table(const TuneArguments& arguments, const GroupKind& kind,
                       const std::vector<onehop::Collective>& collectives) {
  const std::string file = arguments.file.empty() ? env::get("ONEHOP_TUNING").value_or("") : arguments.file;
  Tuning of_file;
  if (!file.empty()) {
    const std::string what = fmt::format("tuning file '{}'", file);
    of_file = Tuning::from_json(os::read_text_file(file, what, kMaxTuningBytes), what);
  }
  return group_table(kind, printable(file), of_file, default_tuning(kind.backend, kind.ranks, kind.links),
                     collectives);
}

/// `json`: whether the table goes to a file or to standard output as JSON instead of text.
int run_show(const TuneArguments& arguments, bool json) {
  const GroupKind kind = shown_group(arguments);
  refuse_without_choice(arguments.tune.collectives, kind.backend);
  if (json) check_writable(arguments.out);
  const GroupTable table = shown_table(arguments, kind, arguments.tune.collectives);
  if (json) write_output(arguments.out, to_tuning(table).to_json());
  if (!json || !is_stdout(arguments.out)) print(to_text(table));
  return kExitOk;
}

int run_explain(const TuneArguments& arguments) {
  const GroupKind kind = shown_group(arguments);
  const ExplainedCall& call = *arguments.explained;
  print(explain(shown_table(arguments, kind, {call.collective}),
                {.collective = call.collective,
                 .backend = kind.backend,
                 .ranks = kind.ranks,
                 .type = call.type,
                 .buffers = arguments.symmetric ? onehop::Buffers::symmetric : onehop::Buffers::any,
                 .bytes = call.bytes}));
  return kExitOk;
}

/// Refuses options that have no meaning for what the command does. `command` knows which options were given.
void refuse_for_mode(const CLI::App& command, const TuneArguments& arguments) {
  const auto refuse = [&](std::initializer_list<const char*> options, const char* reason) {
    for (const char* const option : options) {
      if (command.count(option) != 0) throw UsageError(fmt::format("{} {}", option, reason));
    }
  };
  if (arguments.explained) {
    refuse({"--show", "--collectives", "--out", "--sizes", "--types", "--buffers", "--iters"},
           "makes no sense with --explain");
  } else if (arguments.show) {
    refuse({"--sizes", "--types", "--buffers", "--iters"}, "is for measurements; leave out --show");
    refuse({"--symmetric"}, "is for --explain");
  } else {
    refuse({"--links", "--tuning"}, "is for --show and --explain");
    refuse({"--symmetric"}, "is for --explain");
  }
}

}  // namespace

void add_tune(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run) {
  auto arguments = std::make_shared<TuneArguments>();
  TuneOptions& tune = arguments->tune;
  tune.bench.warmup = 2;
  CLI::App* const sub = app.add_subcommand(
      "tune", "Measure which algorithm is fastest here, as a table; show the table in use");
  sub->footer(kTuneFooter);
  add_ranks(*sub, arguments->ranks, 2);
  add_device(*sub, arguments->device);
  with_choices_of_list(
      add_parsed(*sub, "--collectives", tune.collectives, parse_all_tunable,
                 "Collectives to measure or show, say all-reduce,broadcast (default: all with a choice)"),
      names_of_tunable())
      ->type_name("LIST");
  add_parsed(*sub, "--sizes", tune.sizes, parse_sizes,
             "Bytes: a list 1K,4K,1M or a range first:last:factor (default: 1K:1G:4; host 1K:16M:4)")
      ->type_name("LIST");
  with_choices_of_list(
      add_parsed(*sub, "--types", tune.types, parse_types,
                 "Types to measure, say bf16,f32; floats stand for all floats, others for all others"),
      words_of(dtype_names()))
      ->default_str("bf16")
      ->type_name("LIST");
  add_named(*sub, "--buffers", tune.buffers, kTunedBuffers,
            "GPUs: measure outputs in any memory, in symmetric memory, or both, with rows for each")
      ->type_name("KIND");
  add_number(*sub, "--iters", tune.bench.iterations, 1, 100000,
             "Samples per size (default: GPUs 5, host what fits in 0.2 s)");
  sub->add_option("--out,--json", arguments->out, "Where the table goes, which is JSON; '-': standard output")
      ->capture_default_str()
      ->type_name(kOutputType)
      ->check(output_path());
  sub->add_flag("--show", arguments->show, "Print the table that groups use, and measure nothing");
  CLI::Option* const explained = sub->add_option(
      "--explain",
      [arguments](const CLI::results_t& words) {
        try {
          arguments->explained = parse_explained(words);
        } catch (const Error& error) {
          throw CLI::ValidationError("--explain", error.message());
        }
        return true;
      },
      "Print which row such a call uses, and why");
  with_choices(explained, Choices{.of_values = {names_of_tunable(), {}, words_of(dtype_names())}})
      ->type_size(3)
      ->type_name("COLLECTIVE SIZE TYPE");
  sub->add_flag("--symmetric", arguments->symmetric, "Of --explain: the call declares a symmetric output");
  with_choices(
      add_parsed(
          *sub, "--links", arguments->links, [](const std::string& text) { return parse_name(kLinks, text); },
          "Of --show and --explain: nvlink or pcie (default: as the GPUs here, else nvlink)"),
      choices_in(kLinks))
      ->type_name("NAME");
  sub->add_option("--tuning", arguments->file,
                  "Of --show and --explain: tuning file (default: ONEHOP_TUNING's)")
      ->type_name("FILE");
  sub->callback([arguments, sub, command_line, &run] {
    refuse_for_mode(*sub, *arguments);
    if (arguments->explained) {
      run = [arguments] { return run_explain(*arguments); };
    } else if (arguments->show) {
      run = [arguments, json = sub->count("--out") != 0] { return run_show(*arguments, json); };
    } else {
      run = [arguments, command_line] { return run_tune(*arguments, command_line); };
    }
  });
}

}  // namespace onehop::cli
