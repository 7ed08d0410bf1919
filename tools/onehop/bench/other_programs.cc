// SPDX-License-Identifier: Apache-2.0
#include "bench/other_programs.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

#include "bench/statistics.h"
#include "origin.h"

namespace onehop::cli {
namespace {

/// Ticks in which any processor was busy since boot. The first line of /proc/stat (proc(5)): "cpu", then user nice
/// system idle iowait irq softirq steal. The fields after these are contained in user and nice.
double busy_ticks() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  double busy = 0;
  double value = 0;
  for (int field = 0; field < 8 && file >> value; ++field) {
    if (field != 3 && field != 4) busy += value;
  }
  return busy;
}

}  // namespace

OtherPrograms::OtherPrograms() : busy_(busy_ticks()), begin_(std::chrono::steady_clock::now()) {}

double OtherPrograms::processors(double own_seconds) const {
  constexpr double kShortest = 1;  // a tick of each of 50 processors is half a second
  if (machine_info().cpus < ::sysconf(_SC_NPROCESSORS_ONLN)) return 0;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (seconds < kShortest) return 0;
  const double busy_seconds = (busy_ticks() - busy_) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::max((busy_seconds - own_seconds) / seconds, 0.0);
}

std::string describe_others(double processors) {
  constexpr double kSeen = 0.5;
  if (processors < kSeen) return "";
  return fmt::format("other programs used {:.1f} of {} processors: times are longer and vary", processors,
                     std::thread::hardware_concurrency());
}

double thread_seconds() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double seconds_of_all(Group& group, double before) {
  double all = 0;
  for (const std::vector<double>& used : gather(group, std::vector<double>{thread_seconds() - before}))
    all += used.front();
  return all;
}

}  // namespace onehop::cli
