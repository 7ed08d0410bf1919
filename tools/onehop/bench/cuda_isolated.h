// SPDX-License-Identifier: Apache-2.0
// Calls that begin alone: every rank arrives at a random time, and what counts is how long the call takes
// from the last arrival on.
#pragma once

#include <vector>

#include "bench/cuda_clock.h"
#include "bench/cuda_rig.h"
#include "bench/plan.h"

namespace onehop::cli {

/// One kind of call, in a graph of: compare clocks and meet, hold back, stamp, the call, stamp.
class IsolatedCalls {
 public:
  /// Room for `capacity` replays.
  IsolatedCalls(Rig& rig, int capacity);

  template <class Call>
  [[nodiscard]] GpuGraph capture(const Call& call) const {
    auto* const stream = rig_.stream.get();
    return GpuGraph(stream, [&] {
      check(launch_arrive(rig_.view, log_, stream), "launching a stamp");
      call();
      check(launch_finish(log_, stream), "launching a stamp");
    });
  }
  /// Collective: the replays so far, without the first `skip` of them. The stream must be idle.
  [[nodiscard]] std::vector<IsolatedTime> times(int skip) const;

 private:
  Rig& rig_;
  const int capacity_;
  GpuMemory records_;
  GpuMemory delays_;
  GpuMemory next_;
  ClockLog log_;
};

}  // namespace onehop::cli
