// SPDX-License-Identifier: Apache-2.0
// What joining a group costs: the first group of a process, which also loads what the process keeps, and
// later ones. Every figure is the largest of all ranks.
//
//   onehop launch -n 2 -- join_bench --device cuda
//
// The calls are all-reduces of 1 KB, each synchronized; later ones are f32. The first call of a type includes
// loading that type's kernels, unless joining has loaded them, and the first bf16 call is the first of all.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "onehop/onehop.h"

#include "base/check.h"
#include "base/env.h"
#include "base/json_field.h"
#include "gpu_memory.h"

namespace onehop::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 1024;
constexpr int kLaterCalls = 100;

struct Column {
  const char* title;
  const char* key;
};
// The last three are for GPUs only.
constexpr std::array<Column, 7> kColumns{{{"join ms", "join_ms"},
                                          {"first call ms (bf16)", "first_call_bf16_ms"},
                                          {"first call ms (f32)", "first_call_f32_ms"},
                                          {"later call us", "later_call_us"},
                                          {"MiB in use before", "before_mib"},
                                          {"MiB of join", "join_mib"},
                                          {"MiB of calls", "calls_mib"}}};
constexpr std::size_t kHostColumns = 4;
using Figures = std::array<double, kColumns.size()>;

struct Options {
  std::string device = "host";
  int rounds = 5;
  std::string json;

  [[nodiscard]] bool gpu() const { return device == "cuda"; }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// Milliseconds that `work` takes.
template <class Work>
double time_ms(const Work& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Joins and leaves one group. Collective.
Figures measure(const Options& options, StoreExchange& exchange, const std::shared_ptr<Store>& store,
                const JoinOptions& join, void* data) {
  const auto mib_in_use = [&] {
    return options.gpu() ? static_cast<double>(gpu_bytes_in_use()) / (1 << 20) : 0;
  };
  exchange.barrier(kDefaultTimeout);  // all ranks have left the previous group
  const double before = mib_in_use();
  // A common start, because ranks that poll a store leave a barrier of it up to 20 ms apart.
  const auto now = (Clock::now() + std::chrono::milliseconds{50}).time_since_epoch().count();
  const auto start = exchange.broadcast(now, Rank{0}, kDefaultTimeout);
  std::this_thread::sleep_until(Clock::time_point(Clock::duration(start)));

  std::optional<Group> group;
  const double join_ms = time_ms([&] { group = Group::join(store, join); });
  group->barrier();
  const double joined = mib_in_use();

  const auto call_ms = [&](DType type) {
    group->barrier();
    return time_ms([&] {
      (void)all_reduce(*group, data, data, kBytes / size_of(type), type, ReduceOp::sum);
      group->synchronize({});
    });
  };
  const double first_bf16_ms = call_ms(DType::bf16);
  const double first_f32_ms = call_ms(DType::f32);
  std::vector<double> later_us;
  for (int i = 0; i < kLaterCalls; ++i) later_us.push_back(call_ms(DType::f32) * 1e3);
  const double called = mib_in_use();
  return {join_ms, first_bf16_ms, first_f32_ms, median(later_us), before, joined - before, called - joined};
}

void report(const Options& options, int ranks, const std::vector<Figures>& groups) {
  const std::span columns = std::span(kColumns).first(options.gpu() ? kColumns.size() : kHostColumns);
  Figures later{};
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::vector<double> values;
    for (std::size_t g = 1; g < groups.size(); ++g) values.push_back(groups[g][i]);
    later[i] = median(values);
  }

  fmt::print("{} ranks, {}, {} groups\n{:<22}", ranks, options.device, groups.size(), "");
  for (const Column& column : columns) fmt::print("  {}", column.title);
  const auto print_row = [&](const char* name, const Figures& figures) {
    fmt::print("\n{:<22}", name);
    for (std::size_t i = 0; i < columns.size(); ++i)
      fmt::print("  {:>{}.2f}", figures[i], std::string_view(columns[i].title).size());
  };
  print_row("first group", groups.front());
  print_row("later groups (median)", later);
  fmt::print("\n");

  if (options.json.empty()) return;
  const auto to_json = [&](const Figures& figures) {
    Json row = Json::object();
    for (std::size_t i = 0; i < columns.size(); ++i) row[columns[i].key] = figures[i];
    return row;
  };
  Json document{{"bench", "join"}, {"version", version()}, {"device", options.device}, {"ranks", ranks}};
  for (const Figures& figures : groups) document["groups"].push_back(to_json(figures));
  document["later_median"] = to_json(later);
  std::ofstream file(options.json);
  file << write_json(document) << std::flush;
  if (!file) fail(ErrorCode::system, "cannot write '{}'", options.json);
}

void run(const Options& options) {
  const std::optional<JobInfo> job = job_from_env();
  require(job.has_value(), "no launcher started this program; try onehop launch -n 2 -- join_bench");
  const int gpus = options.gpu() ? gpu_count() : 0;
  const bool may_share = gpus > 0 && env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
  if (options.gpu() && gpus < job->size && !may_share) {
    if (job->rank == Rank{0}) fmt::print("skipped: needs {} GPUs, there are {}\n", job->size, gpus);
    return;
  }
  JoinOptions join;
  join.rank = job->rank;
  join.size = job->size;
  if (options.gpu()) join.device = DeviceId{job->rank.value % gpus};
  // Also makes the CUDA context, which is no cost of the group.
  const std::shared_ptr<void> data = options.gpu()
                                         ? allocate_on_gpu(join.device, kBytes)
                                         : std::make_shared<std::array<float, kBytes / sizeof(float)>>();
  const std::shared_ptr<Store> store = store_from_env();
  StoreExchange exchange(store, "join_bench", job->rank, job->size);
  std::vector<Figures> groups;
  for (int round = 0; round < options.rounds; ++round) {
    join.name = fmt::format("join_bench-{}", round);
    const Figures mine = measure(options, exchange, store, join, data.get());
    Figures& most = groups.emplace_back(mine);
    for (const Figures& each : exchange.all_gather(mine, kDefaultTimeout)) {
      for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], each[i]);
    }
  }
  if (job->rank == Rank{0}) report(options, job->size, groups);
}

}  // namespace
}  // namespace onehop::bench

int main(int argc, char** argv) {
  onehop::bench::Options options;
  CLI::App app("Measures what joining a group costs. Start it with onehop launch -n N -- join_bench");
  app.add_option("--device", options.device, "cuda (rank r uses GPU r) or host")
      ->check(CLI::IsMember({"cuda", "host"}))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "Groups to join one after another")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json, "File to write the figures to");
  CLI11_PARSE(app, argc, argv);
  try {
    onehop::bench::run(options);
    return 0;
  } catch (const onehop::Error& error) {
    fmt::print(stderr, "join_bench: {}\n", error.what());
    return 1;
  }
}
