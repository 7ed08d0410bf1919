// SPDX-License-Identifier: Apache-2.0
// Shared by the commands that measure: options, the start and the joining of ranks, and the watchdog.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/group.h"
#include "onehop/job.h"

#include "bench/bench.h"
#include "bench/device.h"
#include "bench/watchdog.h"
#include "launcher.h"

namespace onehop::cli {

/// Adds -n,--ranks, with `lowest` ranks at least.
void add_ranks(CLI::App& command, std::optional<int>& ranks, int lowest);
/// Adds --device.
void add_device(CLI::App& command, DeviceChoice& device);
/// Error{invalid_argument} when `text` is no list of sizes, or contains a size of 0 bytes.
[[nodiscard]] std::vector<std::uint64_t> parse_sizes(const std::string& text);
/// UsageError when a size is too small for one element per block. `options.ranks` must be final.
void refuse_empty_blocks(const BenchOptions& options);
[[nodiscard]] bool ranks_may_share_gpus();

/// For GPU ranks: ends a process that is stuck in the driver or in another library. nullptr for host ranks.
[[nodiscard]] std::unique_ptr<Watchdog> watch(const BenchOptions& options);
/// Tells the watchdog, if any, that the run has failed.
void expect_end(Watchdog* watchdog, const Error& error);

/// The JoinOptions of this process, a rank of a job. Sets `options.ranks` and `options.cuda`. `ranks` are those
/// of the command line.
[[nodiscard]] JoinOptions join_options_in_job(BenchOptions& options, const JobInfo& job,
                                              std::optional<int> ranks, DeviceChoice device,
                                              const char* group);
/// The JoinOptions of ranks that this process starts, without rank, size and device.
[[nodiscard]] JoinOptions join_options(const BenchOptions& bench, const char* group);

/// For a process that is not a rank yet: sets `options.cuda` and `options.ranks`.
GpuCount choose_ranks(BenchOptions& options, std::optional<int> ranks, DeviceChoice device);
/// Starts this program again, once per rank; the copies find themselves in a job and join it. Returns the
/// exit code.
[[nodiscard]] int run_processes(int ranks, const std::vector<std::string>& command_line);
[[noreturn]] void fail_with(const RankFailure& cause);

}  // namespace onehop::cli
