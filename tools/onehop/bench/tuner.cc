// SPDX-License-Identifier: Apache-2.0
#include "bench/tuner.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "bench/ranks.h"
#include "bench/run.h"
#include "bench/statistics.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr std::uint64_t kVerifiedBytes = 1 << 20;
constexpr int kFinalRounds = 3;

/// ", symmetric buffers", or nothing.
std::string buffers_text(onehop::Buffers buffers) {
  return buffers == onehop::Buffers::any ? "" : fmt::format(", {} buffers", to_string(buffers));
}

}  // namespace

Tuner::Tuner(const TuneOptions& options, JoinOptions join, const JobInfo& job, Watchdog* watchdog)
    : options_(options),
      join_(std::move(join)),
      leads_(job.rank == Rank{0}),
      terminal_(leads_ && job.launcher == "onehop" && ::isatty(STDERR_FILENO) != 0),
      watchdog_(watchdog) {
  if (!leads_) return;
  scratch_ = os::PrivateDir::create("launch");
  join_.tuning = scratch_->path() + "/candidate.json";
}

Tuning Tuner::run() {
  if (leads_) print_error(wrapped(describe(origin()), "# "));
  Tuning table;
  for (const auto& [like, measured] : parts_of(options_)) {
    if (!measured) {
      table.rows.push_back(like);
      continue;
    }
    const std::vector<DType>& members = options_.types.at(like.types);
    const Figures figures = measure_again(like, members, measure(like, members));
    const std::vector<Winner> winners = pick_winners(figures);
    show(like, members, figures, winners);
    for (const TuningRow& row : merge(figures, winners, like)) table.rows.push_back(row);
  }
  table.device = device_;
  const bool of_host = !options_.bench.cuda;
  const std::string busy = of_host ? describe_others(others_.processors(used_by_all_)) : "";
  if (leads_ && !busy.empty()) print_error(wrapped(busy, "# "));
  return table;
}

Figures Tuner::measure(const TuningRow& like, const std::vector<DType>& members) {
  Figures figures(block_sizes(options_, like.collective),
                  candidate_choices(like.backend, like.collective, like.ranks, like.types, like.buffers));
  for (std::size_t choice = 0; choice < figures.choices.size(); ++choice) {
    doing_ = fmt::format("{}, {} of {}: {}", to_string(like.collective), choice + 1, figures.choices.size(),
                         describe(figures.choices[choice]));
    Group group = join_with(like, figures.choices[choice]);
    for (const DType type : members) (void)measure(group, like, type, kVerifiedBytes, /*check=*/true);
    for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
      if (const std::optional<std::size_t> same = equivalent(figures, choice, size)) {
        figures.us[choice][size] = figures.us[*same][size];
        continue;
      }
      figures.us[choice][size] = measure(group, like, members, figures.sizes[size]);
      if (is_far_slower(figures, choice, size)) break;
    }
    if (!leads_) continue;
    clear_progress();
    show(like, figures, choice);
  }
  return figures;
}

Figures Tuner::measure_again(const TuningRow& like, const std::vector<DType>& members, const Figures& first) {
  Figures figures(first.sizes, first.choices);
  std::vector<std::vector<std::size_t>> sizes_of(first.choices.size());  // by choice: where it is a finalist
  for (std::size_t size = 0; size < first.sizes.size(); ++size) {
    const std::vector<std::size_t> open = finalists(first, size);
    if (open.size() == 1) figures.us[open.front()][size] = first.us[open.front()][size];
    if (open.size() < 2) continue;
    for (const std::size_t choice : open) sizes_of[choice].push_back(size);
  }
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> rounds;  // by choice and size
  for (int round = 1; round <= kFinalRounds; ++round) {
    for (std::size_t choice = 0; choice < first.choices.size(); ++choice) {
      if (sizes_of[choice].empty()) continue;
      doing_ = fmt::format("{}, again, {} of {}: {}", to_string(like.collective), round, kFinalRounds,
                           describe(first.choices[choice]));
      Group group = join_with(like, first.choices[choice]);
      for (const std::size_t size : sizes_of[choice])
        rounds[{choice, size}].push_back(measure(group, like, members, first.sizes[size]));
    }
  }
  for (const auto& [at, times] : rounds) figures.us[at.first][at.second] = summarize(times).median;
  if (leads_) clear_progress();
  return figures;
}

Group Tuner::join_with(const TuningRow& like, const Choice& choice) {
  if (leads_) {
    TuningRow only = like;
    only.choice = choice;
    write_output(join_.tuning, Tuning{.device = {}, .rows = {only}}.to_json());
  }
  return Group::from_env(join_);
}

double Tuner::measure(Group& group, const TuningRow& like, const std::vector<DType>& members,
                      std::uint64_t bytes) {
  const std::uint64_t counted = bench_size(options_, like.collective, bytes);
  double sum = 0;
  for (const DType type : members) sum += measure(group, like, type, counted, /*check=*/false);
  return sum / static_cast<double>(members.size());
}

double Tuner::measure(Group& group, const TuningRow& like, DType type, std::uint64_t bytes, bool check) {
  BenchOptions bench = options_.bench;
  bench.collective = find_collective(to_string(like.collective));
  bench.buffers = like.buffers == onehop::Buffers::symmetric ? Buffers::symmetric : Buffers::ordinary;
  bench.type = type;
  bench.sizes = {bytes};
  bench.check = check;
  if (check) bench.iterations = 1;
  double us = 0;
  BenchListener listener;
  listener.progress = [&](std::string_view what) { progress(what); };
  listener.row = [&](const BenchRow& row, std::size_t, bool) { us = row.time.median_us; };
  listener.gpus = [&](const GpuMachine& gpus) { device_ = gpus.names.front(); };
  listener.note = [](const std::string&) {};
  listener.failing = [&](const Error& error) { expect_end(watchdog_, error); };
  run_collective_bench(group, bench, listener);
  if (!bench.cuda) used_by_all_ = seconds_of_all(group, used_before_);
  return us;
}

void Tuner::progress(std::string_view what) {
  if (watchdog_ != nullptr) watchdog_->alive(what);
  if (!terminal_) return;
  print_error(fmt::format("\r\x1b[K  {}; {} ...", doing_, what));
}

void Tuner::clear_progress() const {
  if (terminal_) print_error("\r\x1b[K");
}

void Tuner::show(const TuningRow& like, const Figures& figures, std::size_t choice) const {
  std::string times;
  for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
    if (const std::optional<double> us = figures.us[choice][size])
      times += fmt::format("{}{} {:.2f}", times.empty() ? "" : ", ", format_size(figures.sizes[size]), *us);
  }
  print_error(wrapped(fmt::format("{}{}, {}: {} us", to_string(like.collective), buffers_text(like.buffers),
                                  describe(figures.choices[choice]), times),
                      "# "));
}

void Tuner::show(const TuningRow& like, const std::vector<DType>& members, const Figures& figures,
                 const std::vector<Winner>& winners) const {
  if (!leads_) return;
  std::string names;
  for (const DType type : members) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(type));
  print_error(wrapped(
      fmt::format("{} of {} {} ranks, {}{}: fastest of {} choices for types of class '{}', the "
                  "closest measured again; us per call",
                  to_string(like.collective), like.ranks, like.backend == Backend::cuda ? "GPU" : "host",
                  names, buffers_text(like.buffers), figures.choices.size(), to_string(like.types)),
      "# "));
  print_error(fmt::format("{:>12} {:>11} {:>11}  {}\n", "bytes", "us", "default us", "winner"));
  for (const Winner& winner : winners) {
    print_error(fmt::format("{:>12} {:>11.2f} {:>11.2f}  {}\n", winner.bytes, winner.us, winner.default_us,
                            describe(figures.choices[winner.choice])));
  }
}

}  // namespace onehop::cli
