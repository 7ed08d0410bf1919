// onehop bench: how fast, and is it right?
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "onehop/group.h"
#include "onehop/job.h"
#include "onehop/store.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/report.h"
#include "bench/run.h"
#include "commands.h"
#include "launcher.h"

namespace onehop::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  onehop bench all-reduce                                   4 ranks, 1 KB to 64 MB, every result verified
  onehop bench all-reduce --ranks 2 --sizes 4K,1M --type bf16
  onehop bench all-reduce --algorithm two-shot --buffers symmetric --in-place
  onehop bench all-reduce --html report.html --json report.json
  mpirun -n 4 onehop bench all-reduce                       joins the ranks mpirun started

Started by itself, it starts the ranks; under onehop launch, torchrun, mpirun or srun it joins that job.
Before a size is timed its result is compared, element by element on every rank, with a reference in double
precision, and the ranks' bits with each other; a difference ends the run with exit code 1.
time is the median of the slowest rank; algbw = bytes / time; busbw = algbw x 2(n-1)/n, as in nccl-tests.

Exit code: 0 measured and, unless --no-check, verified; 1 wrong result or failure; 2 bad usage.)";

constexpr Duration kTimeout = std::chrono::seconds{60};

struct Arguments {
  std::string collective;
  std::optional<std::string> ranks;
  std::string sizes = "1K:64M:2";
  std::string type = "f32";
  std::string op = "sum";
  std::string algorithm = "auto";
  std::string warmup = "5";
  std::optional<std::string> iterations;
  std::string buffers = "ordinary";
  std::string device = "auto";
  bool in_place = false;
  bool check = true;
  bool threads = false;
  std::string json_path;
  std::string html_path;
};

int parse_count(const char* option, const std::string& text, int lowest, int highest) {
  int value = 0;
  if (!CLI::detail::lexical_cast(text, value) || value < lowest || value > highest) {
    throw UsageError(
        fmt::format("{} '{}' is not a whole number from {} to {}", option, text, lowest, highest));
  }
  return value;
}

BenchOptions parse(const Arguments& arguments) {
  BenchOptions options;
  if (arguments.collective != "all-reduce") {
    throw UsageError(fmt::format("there is no benchmark '{}'; there is: all-reduce", arguments.collective));
  }
  options.collective = arguments.collective;
  if (arguments.ranks) options.ranks = parse_count("--ranks", *arguments.ranks, 2, kMaxHostRanks);
  options.warmup = parse_count("--warmup", arguments.warmup, 0, 1000000);
  if (arguments.iterations) options.iterations = parse_count("--iters", *arguments.iterations, 1, 100000);
  try {
    options.sizes = parse_size_list(arguments.sizes);
    options.type = parse_dtype(arguments.type);
    options.op = parse_reduce_op(arguments.op);
  } catch (const Error& error) {
    throw UsageError(error.message());
  }
  if (arguments.algorithm == "one-shot") {
    options.algorithm = Algorithm::one_shot;
  } else if (arguments.algorithm == "two-shot") {
    options.algorithm = Algorithm::two_shot;
  } else if (arguments.algorithm != "auto") {
    throw UsageError(
        fmt::format("unknown algorithm '{}'; known: auto one-shot two-shot", arguments.algorithm));
  }
  if (arguments.buffers != "ordinary" && arguments.buffers != "symmetric") {
    throw UsageError(
        fmt::format("unknown kind of buffers '{}'; known: ordinary symmetric", arguments.buffers));
  }
  if (arguments.device != "auto" && arguments.device != "host" && arguments.device != "cuda") {
    throw UsageError(fmt::format("unknown device '{}'; known: auto host cuda", arguments.device));
  }
  options.symmetric = arguments.buffers == "symmetric";
  options.in_place = arguments.in_place;
  options.check = arguments.check;
  options.threads = arguments.threads;
  options.json_path = arguments.json_path;
  options.html_path = arguments.html_path;
  return options;
}

/// Before anything is measured: a result that cannot be kept should not cost minutes first.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fail_errno(errno, fmt::format("cannot write '{}'", path));
  (void)::close(fd);
}

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fail(ErrorCode::system, "cannot write '{}': is the disk full?", path);
}

/// A member's part; rank 0 shows and keeps what was found.
void run_member(Group& group, const BenchOptions& options, const std::string& launcher) {
  if (group.rank() != Rank{0}) {
    const auto nothing = [](const auto&) {};
    run_all_reduce_bench(group, options, {nothing, nothing});
    return;
  }
  BenchReport report{options, launcher, {}};
  // mpirun and srun may give a rank a terminal of their own and pass on what it shows, to a pipe as well.
  const bool ours = launcher == "onehop" || launcher == "threads";
  Table table(stdout, ours && ::isatty(STDOUT_FILENO) != 0);
  table.begin(options);
  BenchListener listener;
  listener.progress = [&](std::string_view what) { table.progress(what); };
  listener.row = [&](const BenchRow& row) {
    table.row(row, options);
    report.rows.push_back(row);
  };
  run_all_reduce_bench(group, options, listener);
  write_file(options.json_path, to_json(report));
  write_file(options.html_path, to_html(report));
}

JoinOptions join_options() {
  JoinOptions options;
  options.name = "bench";
  options.timeout = kTimeout;
  return options;
}

int run_in_job(BenchOptions options, const JobInfo& job, bool ranks_given) {
  if (ranks_given && options.ranks != job.size) {
    throw UsageError(fmt::format("--ranks {} but {} started {} ranks; leave --ranks out", options.ranks,
                                 job.launcher, job.size));
  }
  options.ranks = job.size;
  if (options.threads)
    throw UsageError(fmt::format("--threads makes no sense in a job {} started", job.launcher));
  if (job.rank == Rank{0}) {
    check_writable(options.json_path);
    check_writable(options.html_path);
  }
  Group group = Group::from_env(join_options());
  run_member(group, options, job.launcher);
  return kExitOk;
}

[[noreturn]] void fail_with(const RankFailure& cause) {
  throw Error(cause.code, cause.message, Rank{cause.rank});
}

int run_threads(const BenchOptions& options) {
  const std::shared_ptr<Store> store = memory_store();
  std::mutex mutex;
  std::vector<RankFailure> failures;
  const auto failed = [&](int rank, ErrorCode code, const std::string& message) {
    const std::lock_guard lock(mutex);
    failures.push_back({rank, code, message});
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        JoinOptions join = join_options();
        join.rank = Rank{rank};
        join.size = options.ranks;
        Group group = Group::join(store, join);
        run_member(group, options, "threads");
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

/// Starts this program again, once per rank; the copies find themselves in a job and join it.
int run_processes(const BenchOptions& options, const std::vector<std::string>& command_line) {
  LaunchOptions launch_options;
  launch_options.ranks = options.ranks;
  launch_options.command = command_line;
  launch_options.command.front() = "/proc/self/exe";
  launch_options.collect_failures = true;
  const LaunchOutcome outcome = launch(launch_options);
  if (outcome.stopped_by != 0) return 128 + outcome.stopped_by;
  if (outcome.exit_code == 128 + SIGPIPE)
    return outcome.exit_code;  // 'bench | head': nobody wants to hear of it
  if (const RankFailure* cause = root_cause(outcome.failures)) fail_with(*cause);
  if (outcome.exit_code != 0) fail(ErrorCode::peer_lost, "rank {} {}", outcome.failed_rank, outcome.how);
  return kExitOk;
}

int run_bench(const Arguments& arguments, const BenchOptions& options,
              const std::vector<std::string>& command_line) {
  if (arguments.device == "cuda") {
    fail(ErrorCode::unsupported, "bench does not measure GPUs yet; leave --device out or use --device host");
  }
  if (const std::optional<JobInfo> job = job_from_env()) {
    return run_in_job(options, *job, arguments.ranks.has_value());
  }
  check_writable(options.json_path);
  check_writable(options.html_path);
  return options.threads ? run_threads(options) : run_processes(options, command_line);
}

}  // namespace

void add_bench(CLI::App& app, const std::vector<std::string>& command_line, std::function<int()>& run) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const sub = app.add_subcommand("bench", "Measure and verify a collective");
  sub->footer(kFooter);
  sub->add_option("collective", arguments->collective, "all-reduce")->required()->type_name("");
  sub->add_option("-n,--ranks", arguments->ranks,
                  fmt::format("Ranks to start, 2 to {} (default 4)", kMaxHostRanks))
      ->type_name("N");
  sub->add_option("--sizes", arguments->sizes, "Bytes: a list 1K,4K,1M or a range first:last:factor")
      ->capture_default_str()
      ->type_name("LIST");
  sub->add_option("--type", arguments->type, "f16 bf16 f32 f64 e4m3 e5m2 i8 u8 i32 u32 i64 u64")
      ->capture_default_str()
      ->type_name("TYPE");
  sub->add_option("--op", arguments->op, "sum prod min max avg")->capture_default_str()->type_name("OP");
  sub->add_option("--algorithm", arguments->algorithm, "auto, one-shot or two-shot")
      ->capture_default_str()
      ->type_name("NAME");
  sub->add_option("--buffers", arguments->buffers, "ordinary or symmetric (shared, no staging)")
      ->capture_default_str()
      ->type_name("KIND");
  sub->add_flag("--in-place", arguments->in_place, "The output is the input's memory");
  sub->add_flag("--check,!--no-check", arguments->check,
                "Verify every element before timing (on by default)");
  sub->add_option("--warmup", arguments->warmup, "Calls before timing")
      ->capture_default_str()
      ->type_name("N");
  sub->add_option("--iters", arguments->iterations, "Samples per size (default: what fits in 0.2 s)")
      ->type_name("N");
  sub->add_flag("--threads", arguments->threads, "Ranks are threads of one process");
  sub->add_option("--device", arguments->device, "auto, host or cuda")
      ->capture_default_str()
      ->type_name("NAME");
  sub->add_option("--json", arguments->json_path, "Write the results to this file")->type_name("FILE");
  sub->add_option("--html", arguments->html_path, "Write a page with plots to this file")->type_name("FILE");
  sub->callback([arguments, command_line, &run] {
    const BenchOptions options = parse(*arguments);
    run = [arguments, options, command_line] { return run_bench(*arguments, options, command_line); };
  });
}

}  // namespace onehop::cli
