// SPDX-License-Identifier: Apache-2.0
#include "bench/tuner.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "bench/ranks.h"
#include "bench/run.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr std::uint64_t kVerifiedBytes = 1 << 20;

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
  if (leads_) fmt::print(stderr, "{}", wrapped(describe(origin()), "# "));
  Tuning table;
  for (const auto& [like, measured] : parts_of(options_)) {
    if (!measured) {
      table.rows.push_back(like);
      continue;
    }
    const std::vector<DType>& members = options_.types.at(like.types);
    const Figures figures = measure(like, members);
    const std::vector<Winner> winners = pick_winners(figures);
    show(like, members, figures, winners);
    for (const TuningRow& row : merge(figures, winners, like)) table.rows.push_back(row);
  }
  table.device = device_;
  return table;
}

Figures Tuner::measure(const TuningRow& like, const std::vector<DType>& members) {
  Figures figures(block_sizes(options_, like.collective),
                  candidate_choices(like.backend, like.collective, like.ranks, like.types, like.buffers));
  for (std::size_t choice = 0; choice < figures.choices.size(); ++choice) {
    doing_ = fmt::format("{}, {} of {}: {}", to_string(like.collective), choice + 1, figures.choices.size(),
                         describe(figures.choices[choice]));
    if (leads_) {
      TuningRow only = like;
      only.choice = figures.choices[choice];
      write_output(join_.tuning, Tuning{.device = {}, .rows = {only}}.to_json());
    }
    Group group = Group::from_env(join_);
    for (const DType type : members) (void)measure(group, like, type, kVerifiedBytes, /*check=*/true);
    for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
      if (const std::optional<std::size_t> same = equivalent(figures, choice, size)) {
        figures.us[choice][size] = figures.us[*same][size];
        continue;
      }
      const std::uint64_t bytes = bench_size(options_, like.collective, figures.sizes[size]);
      double sum = 0;
      for (const DType type : members) sum += measure(group, like, type, bytes, /*check=*/false);
      figures.us[choice][size] = sum / static_cast<double>(members.size());
      if (is_far_slower(figures, choice, size)) break;
    }
    if (!leads_) continue;
    clear_progress();
    show(like, figures, choice);
  }
  return figures;
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
  return us;
}

void Tuner::progress(std::string_view what) {
  if (watchdog_ != nullptr) watchdog_->alive(what);
  if (!terminal_) return;
  fmt::print(stderr, "\r\x1b[K  {}; {} ...", doing_, what);
  (void)std::fflush(stderr);
}

void Tuner::clear_progress() const {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

void Tuner::show(const TuningRow& like, const Figures& figures, std::size_t choice) const {
  std::string times;
  for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
    if (const std::optional<double> us = figures.us[choice][size])
      times += fmt::format("{}{} {:.2f}", times.empty() ? "" : ", ", format_size(figures.sizes[size]), *us);
  }
  fmt::print(stderr, "{}",
             wrapped(fmt::format("{}{}, {}: {} us", to_string(like.collective), buffers_text(like.buffers),
                                 describe(figures.choices[choice]), times),
                     "# "));
}

void Tuner::show(const TuningRow& like, const std::vector<DType>& members, const Figures& figures,
                 const std::vector<Winner>& winners) const {
  if (!leads_) return;
  std::string names;
  for (const DType type : members) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(type));
  fmt::print(stderr, "{}",
             wrapped(fmt::format("{} of {} {} ranks, {}{}: fastest of {} choices for types of class '{}', us "
                                 "per call",
                                 to_string(like.collective), like.ranks,
                                 like.backend == Backend::cuda ? "GPU" : "host", names,
                                 buffers_text(like.buffers), figures.choices.size(), to_string(like.types)),
                     "# "));
  fmt::print(stderr, "{:>12} {:>11} {:>11}  {}\n", "bytes", "us", "default us", "winner");
  for (const Winner& winner : winners) {
    fmt::print(stderr, "{:>12} {:>11.2f} {:>11.2f}  {}\n", winner.bytes, winner.us, winner.default_us,
               describe(figures.choices[winner.choice]));
  }
}

}  // namespace onehop::cli
