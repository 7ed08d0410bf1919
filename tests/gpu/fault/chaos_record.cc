// SPDX-License-Identifier: Apache-2.0
#include "gpu/fault/chaos_record.h"

#include <fmt/core.h>

#include <cstdio>

#include "fault/world.h"

namespace onehop::fault {
namespace {

constexpr std::size_t kMostIncidents = 25;

}  // namespace

const char* to_text(Strike strike) {
  constexpr const char* kTexts[] = {"killed", "crashed", "stopped"};
  return kTexts[static_cast<int>(strike)];
}

void ChaosRecord::report(const std::string& incident) {
  fmt::print("{}\n", incident);
  (void)std::fflush(stdout);
  if (incidents.size() < kMostIncidents) incidents.push_back(incident);
}

bool ChaosRecord::good() const {
  return misnamed + late + hung + wrong + contexts_lost + failed_regroups + failed_joins + not_evicted == 0;
}

void ChaosRecord::print(const std::string& head, double seconds) const {
  const auto count = [&](Strike strike) {
    const auto found = strikes.find(strike);
    return found == strikes.end() ? 0 : found->second;
  };
  fmt::print(
      "cuda_chaos: {} rounds of {}: {} kills, {} crashes, {} stops; {} survivors, {} named the right rank, "
      "{} "
      "another; {} late, {} hung, {} wrong results, {} contexts lost; {} regroups, {} failed; {} failed "
      "joins; "
      "{} evicted, {} not; {} calls succeeded, {} elements compared; {:.0f} s\n",
      rounds, head, count(Strike::kill), count(Strike::crash), count(Strike::stop), survivors, named,
      misnamed, late, hung, wrong, contexts_lost, regroups, failed_regroups, failed_joins, evicted,
      not_evicted, calls, elements, seconds);
  print_spread("killed or crashed: strike to Error", Spread(detection_ms));
  print_spread("stopped: overshoot of the deadline", Spread(overshoot_ms));
  for (const auto& [step, times] : misnamed_in) fmt::print("named another rank in {}: {}\n", step, times);
  (void)std::fflush(stdout);
}

}  // namespace onehop::fault
