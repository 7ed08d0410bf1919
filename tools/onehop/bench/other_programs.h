// SPDX-License-Identifier: Apache-2.0
// Whether a measurement had the machine's processors for itself.
#pragma once

#include <chrono>
#include <string>

#include "onehop/group.h"

namespace onehop::cli {

/// How busy other programs have kept the machine's processors since construction, as the kernel counts it.
class OtherPrograms {
 public:
  OtherPrograms();
  /// How many processors they kept busy. `own_seconds`: what this program's threads used of them. 0 if that cannot be
  /// told: within the first second, or if this program may not use all processors of the machine.
  [[nodiscard]] double processors(double own_seconds) const;

 private:
  double busy_;  ///< ticks of all processors together
  std::chrono::steady_clock::time_point begin_;
};
/// "other programs used 1.2 of 2 processors", or nothing if those are too few to be seen in times.
[[nodiscard]] std::string describe_others(double processors);
/// Seconds that the calling thread has used a processor.
[[nodiscard]] double thread_seconds();
/// What the ranks together have used since the `before` of each. Collective.
[[nodiscard]] double seconds_of_all(Group& group, double before);

}  // namespace onehop::cli
