// SPDX-License-Identifier: Apache-2.0
// Isolated calls: every rank arrives at a random time, and the time of the call counts from the last arrival.
#pragma once

#include <vector>

#include "bench/cuda_clock.h"
#include "bench/cuda_context.h"
#include "bench/plan.h"

namespace onehop::cli {

/// Captures a call in a graph of: clock comparison, barrier, delay, stamp, the call, stamp, further calls. Two nodes wait for
/// a graph's last call, the next one and onehop's event, and the next one starts 0.2 us later then (H200).
class IsolatedCalls {
 public:
  /// With room for `capacity` replays.
  IsolatedCalls(GpuContext& context, int capacity);

  template <class Call, class Further>
  [[nodiscard]] GpuGraph capture(const Call& call, const Further& further) const {
    auto* const stream = context_.stream.get();
    return GpuGraph(stream, [&] {
      check(launch_arrive(context_.view, log_, stream), "launching a stamp");
      call();
      check(launch_finish(log_, stream), "launching a stamp");
      further();
    });
  }
  /// The times of the replays so far, without the first `skip`. Collective. The stream must be idle.
  [[nodiscard]] std::vector<IsolatedTime> times(int skip) const;

 private:
  GpuContext& context_;
  const int capacity_;
  GpuMemory records_;
  GpuMemory delays_;
  GpuMemory next_;
  ClockLog log_;
};

}  // namespace onehop::cli
