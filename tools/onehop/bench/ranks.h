// SPDX-License-Identifier: Apache-2.0
// What commands that measure share: where their ranks come from, what ends those that are stuck, and the
// files that results go to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/group.h"
#include "onehop/job.h"

#include "bench/bench.h"
#include "bench/device.h"
#include "bench/gpu.h"
#include "bench/watchdog.h"
#include "launcher.h"

namespace onehop::cli {

/// UsageError unless `text` is a whole number within [lowest, highest].
[[nodiscard]] int parse_count(const char* option, const std::string& text, int lowest, int highest);
/// UsageError for what is no list of sizes, or names one of no bytes.
[[nodiscard]] std::vector<std::uint64_t> parse_sizes(const std::string& text);
/// UsageError when a size is too small for a block for each rank, once it is known how many there are.
void refuse_empty_blocks(const BenchOptions& options);
/// UsageError for what is no device.
[[nodiscard]] DeviceChoice parse_device(const std::string& name);
[[nodiscard]] bool ranks_may_share_gpus();

/// For ranks that are GPUs: what is stuck in the driver, or in another library, is ended.
[[nodiscard]] std::unique_ptr<Watchdog> watch(const BenchOptions& options);
/// For the watchdog of a run that fails.
void expect_end(Watchdog* watchdog, const Error& error);

/// How this process, a rank of a job, joins its group. Sets `options.ranks` and `options.cuda`.
[[nodiscard]] JoinOptions place_in_job(BenchOptions& options, const JobInfo& job, bool ranks_given,
                                       DeviceChoice device, const char* group);
/// How ranks that this process starts join theirs, but for rank, size and device.
[[nodiscard]] JoinOptions join_options(const BenchOptions& bench, const char* group);

/// For a process that is no rank yet: sets `options.cuda` and `options.ranks`.
GpuCount choose_ranks(BenchOptions& options, std::optional<int> ranks, DeviceChoice device);
/// Starts this program again, once per rank; the copies find themselves in a job and join it. Returns the
/// exit code.
[[nodiscard]] int run_processes(int ranks, const std::vector<std::string>& command_line);
[[noreturn]] void fail_with(const RankFailure& cause);

}  // namespace onehop::cli
