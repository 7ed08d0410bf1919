// SPDX-License-Identifier: Apache-2.0
// The observations of the chaos program, for its final report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onehop::fault {

enum class Strike { kill, crash, stop };
[[nodiscard]] const char* to_text(Strike strike);

struct ChaosRecord {
  int rounds = 0;
  std::map<Strike, int> strikes;
  int survivors = 0;
  int named = 0;
  int misnamed = 0;
  int late = 0;
  int hung = 0;
  int wrong = 0;  ///< wrong results, and failures without an Error
  int contexts_lost = 0;
  int regroups = 0;
  int failed_regroups = 0;
  int failed_joins = 0;
  int evicted = 0;
  int not_evicted = 0;
  std::uint64_t calls = 0;
  std::uint64_t elements = 0;
  std::vector<double> detection_ms;
  std::vector<double> overshoot_ms;
  std::map<std::string, int> misnamed_in;
  std::vector<std::string> incidents;  ///< the first of them

  /// Prints an incident at once.
  void report(const std::string& incident);
  [[nodiscard]] bool good() const;
  /// `head`: the settings of this run.
  void print(const std::string& head, double seconds) const;
};

}  // namespace onehop::fault
