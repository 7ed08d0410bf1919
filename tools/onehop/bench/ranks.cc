// SPDX-License-Identifier: Apache-2.0
#include "bench/ranks.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "base/env.h"
#include "base/units.h"
#include "bench/shape.h"
#include "commands.h"

namespace onehop::cli {
namespace {

constexpr Duration kTimeout = std::chrono::seconds{60};
constexpr Duration kGpuTimeout = std::chrono::seconds{30};
// A GPU's driver has no deadlines of its own: how long a step may take besides what its bytes need (filling
// and checking them on a slow processor), and how long an end.
constexpr Duration kGpuPatience = std::chrono::seconds{90};
constexpr std::uint64_t kBytesPerMs = 20'000;
constexpr Duration kGpuGrace = std::chrono::seconds{15};

}  // namespace

int parse_count(const char* option, const std::string& text, int lowest, int highest) {
  int value = 0;
  if (!CLI::detail::lexical_cast(text, value) || value < lowest || value > highest) {
    throw UsageError(
        fmt::format("{} '{}' is not a whole number from {} to {}", option, text, lowest, highest));
  }
  return value;
}

std::vector<std::uint64_t> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  try {
    sizes = parse_size_list(text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--sizes: {}", error.message()));
  }
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end())
    throw UsageError(fmt::format("--sizes '{}' names a size of no bytes; there is nothing to measure", text));
  return sizes;
}

void refuse_empty_blocks(const BenchOptions& options) {
  for (const std::uint64_t bytes : options.sizes) {
    if (shape_of(options, Rank{0}, bytes).bytes != 0 || !options.collective->moves_data) continue;
    throw UsageError(fmt::format(
        "--sizes: {} bytes hold no element of {} for each of {} blocks; use {} or more", bytes,
        to_string(options.type), options.collective->blocks(options.ranks),
        size_of(options.type) * static_cast<std::size_t>(options.collective->blocks(options.ranks))));
  }
}

DeviceChoice parse_device(const std::string& name) {
  if (name == "auto") return DeviceChoice::automatic;
  if (name == "host") return DeviceChoice::host;
  if (name == "cuda") return DeviceChoice::cuda;
  throw UsageError(fmt::format("unknown device '{}'; known: auto host cuda", name));
}

bool ranks_may_share_gpus() {
  return env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
}

std::unique_ptr<Watchdog> watch(const BenchOptions& options) {
  if (!options.cuda) return nullptr;
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const Duration patience = kGpuPatience + Duration{static_cast<Duration::rep>(largest / kBytesPerMs)};
  return std::make_unique<Watchdog>(patience, [](const Error& error) {
    if (!report_failure(error)) fmt::print(stderr, "onehop: {}\n", error.message());
    ::_exit(kExitFailed);  // not exit(): what runs then may be what is stuck
  });
}

void expect_end(Watchdog* watchdog, const Error& error) {
  if (watchdog != nullptr) watchdog->expect_end(error, kGpuGrace);
}

JoinOptions join_options(const BenchOptions& bench, const char* group) {
  JoinOptions options;
  options.name = group;
  options.timeout = bench.cuda ? kGpuTimeout : kTimeout;
  options.copy_scratch_bytes = bench.copy_scratch;
  options.policy = bench.policy;
  return options;
}

JoinOptions place_in_job(BenchOptions& options, const JobInfo& job, bool ranks_given, DeviceChoice device,
                         const char* group) {
  if (ranks_given && options.ranks != job.size) {
    throw UsageError(fmt::format("--ranks {} but {} started {} ranks; leave --ranks out", options.ranks,
                                 job.launcher, job.size));
  }
  options.ranks = job.size;
  const GpuCount gpus = device == DeviceChoice::host ? GpuCount{} : count_gpus();
  // Launchers may show each rank its own GPU alone; two on one are refused when they join.
  options.cuda = use_gpus(device, gpus, job.size, ranks_may_share_gpus() || gpus.count == 1);
  JoinOptions join = join_options(options, group);
  if (options.cuda) {
    const int local = job.local_rank.none() ? job.rank.value : job.local_rank.value;
    join.device = device_of(local, gpus.count, ranks_may_share_gpus());
  }
  return join;
}

GpuCount choose_ranks(BenchOptions& options, std::optional<int> ranks, DeviceChoice device) {
  GpuCount gpus = device == DeviceChoice::host ? GpuCount{} : count_gpus_apart();
  options.cuda = use_gpus(device, gpus, ranks, ranks_may_share_gpus());
  options.ranks = ranks.value_or(default_ranks(options.cuda, gpus));
  return gpus;
}

void fail_with(const RankFailure& cause) {
  throw Error(cause.code, cause.message, Rank{cause.rank});
}

int run_processes(int ranks, const std::vector<std::string>& command_line) {
  LaunchOptions launch_options;
  launch_options.ranks = ranks;
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

}  // namespace onehop::cli
