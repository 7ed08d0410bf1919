// SPDX-License-Identifier: Apache-2.0
#include "bench/ranks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/env.h"
#include "base/units.h"
#include "bench/shape.h"
#include "commands.h"
#include "options.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr Duration kTimeout = std::chrono::seconds{60};
constexpr Duration kGpuTimeout = std::chrono::seconds{30};
// The driver of a GPU has no deadlines. A step may take kGpuPatience plus the time of its bytes, which a slow
// processor fills and checks; the end of a failed run may take kGpuGrace.
constexpr Duration kGpuPatience = std::chrono::seconds{90};
constexpr std::uint64_t kBytesPerMs = 20'000;
constexpr Duration kGpuGrace = std::chrono::seconds{15};

constexpr Named<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::automatic}, {"host", DeviceChoice::host}, {"cuda", DeviceChoice::cuda}};

}  // namespace

void add_ranks(CLI::App& command, std::optional<int>& ranks, int lowest) {
  command
      .add_option("-n,--ranks", ranks,
                  fmt::format("Ranks to start, {} to {} (default: all GPUs, at most {}; without GPUs 4)",
                              lowest, kMaxHostRanks, kMaxDevices))
      ->type_name("N")
      ->check(number_of_ranks(lowest, kMaxHostRanks));
}

void add_device(CLI::App& command, DeviceChoice& device) {
  add_named(command, "--device", device, kDevices, "auto (GPUs if there are enough), host or cuda")
      ->type_name("NAME");
}

std::vector<std::uint64_t> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes = parse_size_list(text);
  require(std::find(sizes.begin(), sizes.end(), 0) == sizes.end(),
          "'{}' names a size of no bytes; there is nothing to measure", text);
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

bool ranks_may_share_gpus() {
  return env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
}

std::unique_ptr<Watchdog> watch(const BenchOptions& options) {
  if (!options.cuda) return nullptr;
  const Duration patience =
      kGpuPatience + Duration{static_cast<Duration::rep>(largest_size(options) / kBytesPerMs)};
  return std::make_unique<Watchdog>(patience, [](const Error& error) {
    if (!report_failure(error)) print_error(fmt::format("onehop: {}\n", error.message()));
    ::_exit(kExitFailed);  // not exit(): its handlers may be what is stuck
  });
}

void expect_end(Watchdog* watchdog, const Error& error) {
  if (watchdog != nullptr) watchdog->expect_end(error, kGpuGrace);
}

JoinOptions join_options(const BenchOptions& bench, const char* group) {
  JoinOptions options;
  options.name = group;
  options.timeout = bench.cuda ? kGpuTimeout : kTimeout;
  return options;
}

JoinOptions join_options_in_job(BenchOptions& options, const JobInfo& job, std::optional<int> ranks,
                                DeviceChoice device, const char* group) {
  if (ranks && *ranks != job.size) {
    throw UsageError(
        fmt::format("--ranks {} but {} started {} ranks; leave --ranks out", *ranks, job.launcher, job.size));
  }
  options.ranks = job.size;
  const GpuCount gpus = device == DeviceChoice::host ? GpuCount{} : count_gpus();
  // Launchers may show each rank only its own GPU. Two ranks on one GPU are refused when they join.
  options.cuda = use_gpus(device, gpus, job.size, ranks_may_share_gpus() || gpus.count == 1);
  JoinOptions join = join_options(options, group);
  if (options.cuda) {
    const int local = job.local_rank.none() ? job.rank.value : job.local_rank.value;
    join.device = device_of(local, gpus.count, ranks_may_share_gpus());
  }
  return join;
}

GpuCount choose_ranks(BenchOptions& options, std::optional<int> ranks, DeviceChoice device) {
  GpuCount gpus = device == DeviceChoice::host ? GpuCount{} : count_gpus_in_child();
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
  end_as(outcome);
  if (outcome.stopped_by != 0) return 128 + outcome.stopped_by;
  if (outcome.exit_code == 128 + SIGPIPE) return outcome.exit_code;  // 'bench | head': not an error
  if (const RankFailure* cause = root_cause(outcome.failures)) fail_with(*cause);
  if (outcome.exit_code != 0) fail(ErrorCode::peer_lost, "rank {} {}", outcome.failed_rank, outcome.how);
  return kExitOk;
}

}  // namespace onehop::cli
