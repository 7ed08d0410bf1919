// SPDX-License-Identifier: Apache-2.0
// What the parent of the chaos program and its members share, in memory that outlives each of them: the tasks
// that it gives them, and what became of these.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "onehop/onehop.h"

#include "fault/world.h"

namespace onehop::fault {

/// What the members of one group do.
struct ChaosTask {
  enum Kind : std::uint32_t {
    traffic,  ///< random calls until one of them fails
    regroup,  ///< a few verified all-reduces
    end       ///< the process ends
  };
  /// What Group::synchronize is given, by the group's timeout.
  enum Patience : std::uint32_t { shorter, equal, longer, mixed };

  Kind kind = end;
  int round = 0;
  int rank = 0;
  int size = 0;
  std::uint64_t seed = 0;
  Duration timeout{0};  ///< of the group
  Patience patience = equal;
  bool leaves_at_once = false;  ///< when a call has failed; else when all survivors have heard
};

struct ChaosReport {
  std::atomic<std::uint32_t> steps{0};  ///< of the traffic, that succeeded
  Attempt join;
  Attempt work;
  char step[24] = "";          ///< the one under way, or that failed
  Duration call_timeout{0};    ///< of the call under way, or that failed
  std::uint64_t calls = 0;     ///< collectives that succeeded
  std::uint64_t elements = 0;  ///< of their results, compared
  bool context_usable = false;
};

/// Of one process. Tasks are counted: the parent raises `given`, the member `done`.
struct ChaosSlot {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> given{0};
  std::atomic<std::uint32_t> done{0};
  ChaosTask task;
  ChaosReport report;
};

struct ChaosBoard {
  static constexpr int kSlots = 48;

  std::atomic<std::uint32_t> heard{0};  ///< the last round of which all survivors have heard
  std::array<ChaosSlot, kSlots> slots;
};

}  // namespace onehop::fault
