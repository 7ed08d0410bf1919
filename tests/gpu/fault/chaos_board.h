// SPDX-License-Identifier: Apache-2.0
// Memory that the parent of the chaos program shares with its members, and that outlives each of them: the
// tasks that the parent assigns, and their reports.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "onehop/onehop.h"

#include "fault/world.h"

namespace onehop::fault {

/// A task for the members of one group.
struct ChaosTask {
  enum Kind : std::uint32_t {
    traffic,  ///< random calls until one of them fails
    regroup,  ///< a few verified all-reduces
    end       ///< the process ends
  };
  /// The timeout for Group::synchronize, relative to the group's.
  enum Patience : std::uint32_t { shorter, equal, longer, mixed };

  Kind kind = end;
  int round = 0;
  int rank = 0;
  int size = 0;
  std::uint64_t seed = 0;
  Duration timeout{0};  ///< of the group
  Patience patience = equal;
  bool leaves_at_once = false;  ///< after a failed call; otherwise once all survivors have heard of it
};

struct ChaosReport {
  std::atomic<std::uint32_t> steps{0};  ///< successful steps of random calls
  Attempt join;
  Attempt work;
  char step[24] = "";          ///< the one that runs, or that failed
  Duration call_timeout{0};    ///< of the call that runs, or that failed
  std::uint64_t calls = 0;     ///< collectives that succeeded
  std::uint64_t elements = 0;  ///< compared elements of their results
  bool context_usable = false;
};

/// The slot of one process. Tasks are counted: the parent increments `given`, the member `done`.
struct ChaosSlot {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> given{0};
  std::atomic<std::uint32_t> done{0};
  ChaosTask task;
  ChaosReport report;
};

struct ChaosBoard {
  static constexpr int kSlots = 48;

  std::atomic<std::uint32_t> heard{0};  ///< the last round whose failure all survivors have heard of
  std::array<ChaosSlot, kSlots> slots;
};

}  // namespace onehop::fault
