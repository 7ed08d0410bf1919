// SPDX-License-Identifier: Apache-2.0
// onehop bench: measures and verifies a collective.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "onehop/group.h"
#include "onehop/job.h"
#include "onehop/store.h"

#include "base/check.h"
#include "base/element.h"
#include "base/nearest.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/nccl.h"
#include "bench/plan.h"
#include "bench/predict.h"
#include "bench/ranks.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/saved.h"
#include "bench/shape.h"
#include "binding.h"
#include "commands.h"
#include "launcher.h"
#include "options.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kBenchFooter =
    R"(Collectives: all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all, gather, scatter, all-to-all-v
(blocks of one size), send-recv (to the next rank, from the one before), barrier (host ranks); all: one after
another, each with the options that suit it

Examples:
  onehop bench all-reduce                                   all GPUs (else 4 host ranks), every result verified
  onehop bench all --ranks 2 --sizes 4K,1M --html report.html     every collective; one page, one report
  onehop bench all-gather --ranks 2 --sizes 4K,1M --type bf16
  onehop bench broadcast --root 2 --html report.html --json report.json
  onehop bench --from report.json --html report.html        the page of a saved report; measures nothing
  onehop bench --from two.json --predict 8                  what 8 GPUs would take, by bytes and hops
  onehop bench all-reduce --algorithm two-shot --buffers symmetric --in-place
  onehop bench all-reduce --ranks 2 --sizes 1K --bind cores --repeat 5
  onehop bench reduce-scatter --type bf16 --sizes 1K:1G:4 --peer nccl
  onehop bench all-reduce --device cuda --mode dependent --op avg
  onehop bench all-reduce --type bf16 --op premul_sum --factor 0.125
  mpirun -n 4 onehop bench all-to-all                       joins the ranks mpirun started

Started by itself, it starts the ranks; under onehop launch, torchrun, mpirun or srun it joins that job.

Host ranks measure all sizes seven times in turns (--repeat), and rows are written in the last round; --json is written
as figures come: a run that is interrupted leaves valid JSON ("complete": false).

Before a size is timed its result is compared, element by element on every rank, with a reference (in double
precision where it is reduced), and the bits of ranks that get the same with each other; a difference ends the run
with exit code 1.

A size is what nccl-tests counts: all-gather and gather the output of all ranks together, reduce-scatter, scatter and
all-to-all the whole input of one rank, else the message; it is rounded down to whole blocks. time is the median of
the slowest rank; algbw = bytes / time; busbw = algbw x 2(n-1)/n of all-reduce, x 1 of broadcast, reduce
and send-recv, x (n-1)/n of the others.

On GPUs a sample is a CUDA graph of many calls; --mode says how they follow one another: chain (same input and
output), dependent (each takes the output of the last one; all-reduce and all-to-all), isolated (one call, ranks
arrive at random times, from the last arrival on), eager (no graph; shows what queuing a call costs the host).
--peer nccl measures NCCL in turns with us, where NCCL has it also with registered symmetric memory, never with
multicast; ONEHOP_NCCL_LIBRARY says where. Several in one run: --peer nccl --peer new=DIRECTORY.

Options of nccl-tests are answered with ours. One means something else here: -n is ranks; iterations are --iters.

Exit code: 0 measured and, unless --no-check, verified; 1 wrong result or failure; 2 bad usage.)";

constexpr const char* kGroup = "bench";
constexpr std::string_view kOwnLauncher = "onehop";  // JobInfo::launcher

constexpr Named<std::optional<Algorithm>> kAlgorithms[] = {
    {"auto", std::nullopt}, {"one-shot", Algorithm::one_shot}, {"two-shot", Algorithm::two_shot}};
/// Empty: a core for each rank where there are enough.
constexpr Named<std::optional<Binding>> kBenchBindings[] = {
    {"auto", std::nullopt}, {"none", Binding::none}, {"cores", Binding::cores}, {"numa", Binding::numa}};
/// Host ranks: two runs differ more than the samples of one moment; seven rounds show by how much.
constexpr int kRounds = 7;
constexpr const char* kNccl = "nccl";

struct BenchArguments {
  std::vector<const Benchmark*> collectives;  ///< measured one after another
  BenchOptions bench;                         ///< of all of them; see options_for()
  std::optional<int> ranks;
  DeviceChoice device = DeviceChoice::automatic;
  std::optional<Binding> binding;
  std::optional<int> repeat;
  std::vector<std::string> peers;  ///< as parse_peer() takes them
  std::string from;                ///< a saved report to show; nothing is measured
  std::optional<int> predicted_ranks;
};

constexpr const char* kAllCollectives = "all";
constexpr int kMinPredictedRanks = 3;

std::vector<const Benchmark*> parse_collectives(const std::string& text) {
  if (const Benchmark* const found = find_collective(text)) return {found};
  if (text == kAllCollectives) {
    std::vector<const Benchmark*> all;
    for (const Benchmark& each : benchmarks()) all.push_back(&each);
    return all;
  }
  std::vector<std::string_view> names{kAllCollectives};
  for (const Benchmark& each : benchmarks()) names.push_back(each.name);
  const auto meant = nearest(text, names);
  fail(ErrorCode::invalid_argument, "unknown value '{}'; known: {}, {}{}", text,
       names_of_collectives([](const Benchmark&) { return true; }), kAllCollectives,
       meant ? fmt::format("; did you mean '{}'?", *meant) : "");
}

/// "nccl", or "NAME=LIBRARY".
NcclPeer parse_peer(const std::string& text) {
  constexpr std::size_t kMaxName = 16;
  const std::size_t end = text.find('=');
  NcclPeer peer{text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)};
  const bool plain = std::ranges::all_of(peer.name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
  });
  require(end != std::string::npos || text == kNccl,
          "unknown value '{}'; known: nccl, NAME=LIBRARY (an NCCL, by file or directory)", text);
  require(plain && !peer.name.empty() && peer.name.size() <= kMaxName &&
              !peer.name.ends_with(NcclPeer::kWithWindows) && peer.name != kOwnLauncher,
          "'{}' names an NCCL '{}'; use up to {} letters, digits, '.' and '-', no -sym at the end, and not "
          "onehop",
          text, peer.name, kMaxName);
  require(end == std::string::npos || !peer.path.empty(), "'{}' names no library after the '='", text);
  return peer;
}

std::vector<NcclPeer> parse_peers(const std::vector<std::string>& texts) {
  std::vector<NcclPeer> peers;
  for (const std::string& text : texts) {
    NcclPeer peer = parse_peer(text);
    if (std::ranges::find(peers, peer.name, &NcclPeer::name) != peers.end())
      throw UsageError(fmt::format("--peer names '{}' twice; give every NCCL its own name", peer.name));
    peers.push_back(std::move(peer));
  }
  return peers;
}

bool is_all_reduce(const Benchmark& collective) {
  return &collective == find_collective("all-reduce");
}

/// Refuses options that have no meaning for any of the collectives. `command` knows which options were given.
void refuse_for_collectives(const CLI::App& command, const BenchArguments& arguments) {
  const BenchOptions& options = arguments.bench;
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  const auto only_for = [&](const char* option, bool used, bool (*suits)(const Benchmark&)) {
    const auto& all = arguments.collectives;
    if (!used || std::any_of(all.begin(), all.end(), [&](const Benchmark* c) { return suits(*c); })) return;
    throw UsageError(fmt::format("{} makes no sense for {}; it is for {}", option, all.front()->name,
                                 names_of_collectives(suits)));
  };
  only_for("--sizes", given("--sizes"), [](const Benchmark& c) { return c.moves_data; });
  only_for("--op", given("--op"), [](const Benchmark& c) { return c.reduces; });
  only_for("--root", given("--root"), [](const Benchmark& c) { return c.rooted(); });
  only_for("--algorithm", options.algorithm.has_value(), [](const Benchmark& c) { return c.has_algorithms; });
  only_for("--in-place", options.in_place, [](const Benchmark& c) { return c.can_be_in_place(); });
  only_for("--mode dependent", options.mode == BenchMode::dependent,
           [](const Benchmark& c) { return c.can_be_dependent(); });
  only_for("--parts", given("--parts"), is_all_reduce);
  if (options.cold && feeds_back(options)) {
    throw UsageError("--cold needs calls that share no data; leave out --in-place and --mode dependent");
  }
  if (options.mode == BenchMode::dependent && options.op == ReduceOp::prod) {
    throw UsageError("--mode dependent --op prod leaves the range of every type; use sum, min, max or avg");
  }
  if (given("--factor") && options.op != ReduceOp::premul_sum) {
    throw UsageError(
        fmt::format("--factor makes no sense for --op {}; it is for premul_sum", to_string(options.op)));
  }
  refuse_same_destination("--json", options.json_path, "--html", options.html_path);
  if (!options.nccl.empty() && options.op == ReduceOp::premul_sum) {
    throw UsageError(
        "--peer nccl has no premul_sum like ours: NCCL scales and rounds every rank's input; leave out one");
  }
}

/// Refuses options that only host ranks support.
void refuse_for_gpus(const BenchOptions& options, const BenchArguments& given) {
  const char* option = !options.collective->moves_data                          ? "barrier"
                       : given.binding.value_or(Binding::none) != Binding::none ? "--bind"
                       : given.repeat.value_or(1) != 1                          ? "--repeat"
                                                                                : nullptr;
  if (option != nullptr)
    throw UsageError(fmt::format("{} is for host ranks, but these are GPUs; --device host takes it", option));
}

/// Called once the number of ranks and their kind are known. Refuses options that only GPUs support.
void refuse_for_ranks(const BenchOptions& options, const BenchArguments& given) {
  if (options.root.value >= options.ranks) {
    throw UsageError(fmt::format("--root {} but there are {} ranks; use 0 to {}", options.root.value,
                                 options.ranks, options.ranks - 1));
  }
  if (options.ranks == 1 && options.mode == BenchMode::isolated)
    throw UsageError("--mode isolated compares the ranks' clocks: it needs at least 2 ranks");
  if (finite_calls(options) == 0) {
    throw UsageError(
        fmt::format("--factor {} makes sums of {} ranks leave the range of {}; use a smaller one",
                    options.factor, options.ranks, to_string(options.type)));
  }
  refuse_empty_blocks(options);
  if (options.cuda) {
    refuse_for_gpus(options, given);
    return;
  }
  const char* option = options.mode != BenchMode::chain         ? "--mode"
                       : options.calls                          ? "--calls"
                       : options.parts != 1                     ? "--parts"
                       : options.cold                           ? "--cold"
                       : !options.nccl.empty()                  ? "--peer"
                       : options.buffers == Buffers::registered ? "--buffers registered"
                                                                : nullptr;
  if (option != nullptr) {
    throw UsageError(fmt::format("{} is for GPUs, but these are host ranks; --device cuda says why", option));
  }
}

/// The options that depend on the kind of the ranks. `launcher` started them; if it is another program's, it has
/// chosen their processors.
void complete_options(BenchOptions& options, const BenchArguments& given, std::string_view launcher) {
  options.repeat = given.repeat.value_or(options.cuda ? 1 : kRounds);
  if (given.binding) {
    options.binding = *given.binding;
  } else if (!options.cuda && launcher == kOwnLauncher && options.ranks <= usable_cores()) {
    options.binding = Binding::cores;
  }
}

/// `options` for one of several collectives: without those that do not suit it.
BenchOptions options_for(BenchOptions options, const Benchmark& collective) {
  options.collective = &collective;
  if (!collective.moves_data) options.sizes = {0};
  if (!collective.has_algorithms) options.algorithm.reset();
  if (!collective.can_be_in_place()) options.in_place = false;
  if (!collective.can_be_dependent() && options.mode == BenchMode::dependent) options.mode = BenchMode::chain;
  if (!collective.reduces) {
    options.op = ReduceOp::sum;
    options.factor = 1;
  }
  if (!is_all_reduce(collective)) options.parts = 1;
  return options;
}

/// The options of each collective. Those in `options` must be complete.
std::vector<BenchOptions> plan_of(const BenchOptions& options, const BenchArguments& given) {
  std::vector<BenchOptions> plan;
  for (const Benchmark* const collective : given.collectives) {
    // Of all collectives, GPUs measure those that they have; the barrier alone is refused.
    if (options.cuda && !collective->moves_data && given.collectives.size() > 1) continue;
    plan.push_back(options_for(options, *collective));
    refuse_for_ranks(plan.back(), given);
  }
  return plan;
}

/// The document of rank 0. Created before the rank joins, so that a run that ends early leaves one.
struct KeptDocument {
  KeptDocument(const std::vector<BenchOptions>& plan, const std::string& launcher)
      : document(begin_document(plan, launcher)), json(plan.front().json_path) {
    json.update(to_json(document));
  }

  BenchDocument document;
  LiveDocument json;
};

/// One rank's part. Only rank 0 has `kept`: it prints and saves the results.
void run_rank(Group& group, std::vector<BenchOptions> plan, KeptDocument* kept, Watchdog* watchdog) {
  const auto alive = [watchdog](std::string_view what) {
    if (watchdog != nullptr) watchdog->alive(what);
  };
  const auto failing = [watchdog](const Error& error) { expect_end(watchdog, error); };
  for (BenchOptions& options : plan) options.tuning = printable(group.tuning_file());
  if (kept == nullptr) {
    const auto nothing = [](const auto&...) {};
    for (const BenchOptions& options : plan)
      run_collective_bench(group, options, {alive, nothing, nothing, nothing, failing});
    return;
  }
  BenchDocument& document = kept->document;
  // mpirun and srun may give a rank a terminal of their own although its output goes to a pipe.
  const bool ours = document.launcher == kOwnLauncher || document.launcher == "threads";
  const bool shown = !is_stdout(plan.front().json_path) && !is_stdout(plan.front().html_path);
  Table table(shown ? stdout : nullptr, ours && ::isatty(STDOUT_FILENO) != 0);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const BenchOptions& options = plan[i];
    BenchReport& report = document.reports[i];
    report.options = options;
    if (!options.cuda) table.begin(options, document);
    BenchListener listener;
    listener.progress = [&](std::string_view what) {
      alive(what);
      table.progress(what);
    };
    listener.row = [&](const BenchRow& row, std::size_t index, bool last) {
      if (last) table.row(row, options);
      if (index == report.rows.size()) report.rows.emplace_back();
      report.rows[index] = row;
      kept->json.update(to_json(document));
    };
    listener.failing = failing;
    listener.gpus = [&](const GpuMachine& gpus) {
      document.gpus = gpus;
      table.begin(options, document);
    };
    listener.note = [&](const std::string& note) {
      table.note(note);
      report.notes.push_back(note);
    };
    run_collective_bench(group, options, listener);
    report.complete = true;
  }
  kept->json.finish(to_json(document));
  write_output(plan.front().html_path, to_html(document));
  table.finish();
}

int run_in_job(const BenchArguments& arguments, const JobInfo& job) {
  BenchOptions options = arguments.bench;
  const JoinOptions join = join_options_in_job(options, job, arguments.ranks, arguments.device, kGroup);
  if (options.threads)
    throw UsageError(fmt::format("--threads makes no sense in a job {} started", job.launcher));
  complete_options(options, arguments, job.launcher);
  const std::vector<BenchOptions> plan = plan_of(options, arguments);
  if (job.rank == Rank{0}) {
    check_writable(options.json_path);
    check_writable(options.html_path);
  }
  if (!options.nccl.empty()) forbid_nccl_multicast();
  const std::unique_ptr<Watchdog> watchdog = watch(options);  // outlives the group, which waits for its GPU
  std::optional<KeptDocument> kept;
  if (job.rank == Rank{0}) kept.emplace(plan, job.launcher);  // reads the machine before it is bound
  bind_this_thread(plan_binding(options.binding, job.size), job.rank.value);
  Group group = Group::from_env(join);
  run_rank(group, plan, kept ? &*kept : nullptr, watchdog.get());
  return kExitOk;
}

int run_threads(const BenchOptions& options, const std::vector<BenchOptions>& plan, const GpuCount& gpus) {
  if (!options.nccl.empty()) forbid_nccl_multicast();
  const std::unique_ptr<Watchdog> watchdog = watch(options);
  const std::shared_ptr<Store> store = memory_store();
  const std::vector<cpu_set_t> binding = plan_binding(options.binding, options.ranks);
  std::mutex mutex;
  std::vector<RankFailure> failures;
  const auto failed = [&](int rank, ErrorCode code, const std::string& message) {
    const std::lock_guard lock(mutex);
    failures.push_back({rank, code, message});
  };
  KeptDocument kept(plan, "threads");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        JoinOptions join = join_options(options, kGroup);
        if (options.cuda) join.device = device_of(rank, gpus.count, ranks_may_share_gpus());
        join.rank = Rank{rank};
        join.size = options.ranks;
        bind_this_thread(binding, rank);
        Group group = Group::join(store, join);
        run_rank(group, plan, rank == 0 ? &kept : nullptr, watchdog.get());
      } catch (const Error& error) {
        failed(rank, error.code(), error.message());
      } catch (const std::bad_alloc&) {
        failed(rank, ErrorCode::out_of_resources, "out of memory; use smaller sizes or fewer ranks");
      } catch (const std::exception& error) {
        failed(rank, ErrorCode::system, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (const RankFailure* cause = root_cause(failures)) fail_with(*cause);
  return kExitOk;
}

int run_bench(const BenchArguments& arguments, const std::vector<std::string>& command_line) {
  if (const std::optional<JobInfo> job = job_from_env()) {
    return run_in_job(arguments, *job);
  }
  BenchOptions options = arguments.bench;
  const GpuCount gpus = choose_ranks(options, arguments.ranks, arguments.device);
  complete_options(options, arguments, kOwnLauncher);
  const std::vector<BenchOptions> plan = plan_of(options, arguments);
  check_writable(options.json_path);
  check_writable(options.html_path);
  return options.threads ? run_threads(options, plan, gpus) : run_processes(options.ranks, command_line);
}

/// Refuses options of a measurement beside --from.
void refuse_beside_from(const CLI::App& command, const BenchArguments& arguments) {
  const bool predicts = arguments.predicted_ranks.has_value();
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    const bool suits = name == "--from" || name == "--html" ||
                       (predicts && (name == "--predict" || name == "--json" || name == "--wide"));
    if (option->count() > 0 && !suits)
      throw UsageError(fmt::format("--from shows a report that was measured before; leave out {}", name));
  }
  const std::string& html = arguments.bench.html_path;
  if (html.empty() && !predicts)
    throw UsageError("--from makes a page of a report; name the page with --html, or add --predict");
  for (const auto& [option, path] : {std::pair{"--html", html}, {"--json", arguments.bench.json_path}}) {
    if (!path.empty() && !is_stdout(path) && same_destination(path, arguments.from))
      throw UsageError(fmt::format("{} '{}' would replace the report that is shown", option, path));
  }
  refuse_same_destination("--json", arguments.bench.json_path, "--html", html);
}

void print_table(const BenchDocument& document, bool wide) {
  Table table(stdout, /*terminal=*/false);
  for (const BenchReport& report : document.reports) {
    BenchOptions options = report.options;
    options.wide = wide;
    table.begin(options, document);
    for (const BenchRow& row : report.rows) table.row(row, options);
  }
  table.finish();
}

int show_saved(const BenchArguments& arguments) {
  const BenchOptions& options = arguments.bench;
  check_writable(options.json_path);
  check_writable(options.html_path);
  BenchDocument document = parse_document(read_input(arguments.from), arguments.from);
  if (arguments.predicted_ranks) {
    document = predict(std::move(document), arguments.from, *arguments.predicted_ranks);
    write_output(options.json_path, to_json(document));
    if (!is_stdout(options.json_path) && !is_stdout(options.html_path)) print_table(document, options.wide);
  }
  write_output(options.html_path, to_html(document));
  return kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run) {
  auto arguments = std::make_shared<BenchArguments>();
  BenchOptions& bench = arguments->bench;
  bench.sizes = parse_size_list("1K:64M:2");
  CLI::App* const sub = app.add_subcommand("bench", "Measure and verify a collective");
  sub->footer(kBenchFooter);
  std::vector<std::string> names{kAllCollectives};
  for (const Benchmark& each : benchmarks()) names.emplace_back(each.name);
  with_choices(add_parsed(*sub, "collective", arguments->collectives, parse_collectives,
                          "What to measure: one of those listed below, or all"),
               std::move(names))
      ->type_name("");
  add_ranks(*sub, arguments->ranks, 1);
  add_parsed(*sub, "--sizes", bench.sizes, parse_sizes,
             "Bytes: a list 1K,4K,1M or a range first:last:factor (default 1K:64M:2)")
      ->type_name("LIST");
  with_choices(add_parsed(*sub, "--type", bench.type, parse_dtype, dtype_names()), words_of(dtype_names()))
      ->default_str("f32")
      ->type_name("TYPE");
  constexpr const char* kOps = "sum prod min max avg premul_sum";
  with_choices(add_parsed(*sub, "--op", bench.op, parse_reduce_op, fmt::format("{} (default sum)", kOps)),
               words_of(kOps))
      ->type_name("OP");
  sub->add_option("--factor", bench.factor, "Of premul_sum: what sums are multiplied by (default 1)")
      ->type_name("X")
      ->check(finite(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max(),
                     "a finite number"));
  sub->add_option("--root", bench.root.value, "Of broadcast, reduce, gather, scatter: the rank (default 0)")
      ->type_name("RANK")
      ->check(in_range(0, kMaxHostRanks - 1));
  add_named(*sub, "--algorithm", bench.algorithm, kAlgorithms,
            "auto, one-shot or two-shot (all-reduce, reduce)")
      ->type_name("NAME");
  add_named(*sub, "--buffers", bench.buffers, kBuffers,
            "ordinary, symmetric (allocated by the group), or registered (GPUs)")
      ->type_name("KIND");
  sub->add_flag("--in-place", bench.in_place,
                "Input and output share memory: the shorter one lies in the longer one");
  sub->add_flag("--check", bench.check, "Verify every element before timing: the default");
  sub->add_flag_function(
      "--no-check", [arguments](std::int64_t) { arguments->bench.check = false; }, "Do not verify anything");
  add_number(*sub, "--warmup", bench.warmup, 0, 1000000, "Calls before timing")->capture_default_str();
  add_number(*sub, "--iters", bench.iterations, 1, 100000,
             "Samples per size (default: what fits in 0.2 s; GPUs: 10 to 100)");
  sub->add_flag("--threads", bench.threads, "Ranks are threads of one process");
  add_named(*sub, "--mode", bench.mode, kBenchModes, "GPUs: chain, dependent, isolated or eager")
      ->type_name("NAME");
  add_number(*sub, "--calls", bench.calls, 1, 10000, "GPUs: calls per sample (default: by size, 4 to 100)");
  add_number(*sub, "--parts", bench.parts, 1, 256,
             "GPUs: make every all-reduce as so many smaller ones, in a GroupCall (default 1)");
  sub->add_flag("--cold", bench.cold, "GPUs: no call finds its data in a cache");
  with_choices(sub->add_option("--peer", arguments->peers,
                               "GPUs: measure this library too: nccl; again for others: NAME=LIBRARY"),
               {kNccl})
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->check(accepted_by(parse_peer));
  add_device(*sub, arguments->device);
  add_named(*sub, "--bind", arguments->binding, kBenchBindings,
            "Host ranks, as launch --bind: none, cores or numa; auto: cores, if there are enough")
      ->type_name("WHERE");
  add_number(*sub, "--repeat", arguments->repeat, 1, 1000,
             "Host ranks: rounds over all sizes (default 7); spread: slowest median over quickest");
  sub->add_flag("--wide", bench.wide, "All columns; else what fits 80");
  sub->add_option("--json", bench.json_path, "Write the results as JSON; '-': to standard output, no table")
      ->type_name(kOutputType)
      ->check(output_path());
  sub->add_option("--html", bench.html_path, "Write a page with plots; '-': to standard output, no table")
      ->type_name(kOutputType)
      ->check(output_path());
  sub->add_option("--from", arguments->from,
                  "Measure nothing: read a report (bench --json), for --html or --predict")
      ->type_name("FILE");
  add_number(*sub, "--predict", arguments->predicted_ranks, kMinPredictedRanks, kMaxDevices,
             "Of --from, a report of 2 GPUs: the times that N GPUs would take");
  sub->callback([arguments, sub, command_line, &run] {
    if (!arguments->from.empty()) {
      refuse_beside_from(*sub, *arguments);
      run = [arguments] { return show_saved(*arguments); };
      return;
    }
    if (arguments->predicted_ranks) throw UsageError("--predict needs --from, a report of 2 GPUs");
    if (arguments->collectives.empty()) throw CLI::RequiredError("collective");
    BenchOptions& options = arguments->bench;
    options.nccl = parse_peers(arguments->peers);
    refuse_for_collectives(*sub, *arguments);
    run = [arguments, command_line] { return run_bench(*arguments, command_line); };
  });
}

}  // namespace onehop::cli
