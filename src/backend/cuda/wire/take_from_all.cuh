// SPDX-License-Identifier: Apache-2.0
// Waits for the packets of all ranks together.
#pragma once

#include "onehop/device/signal.cuh"

namespace onehop::cuda {

/// Waits for the packets of all ranks for which awaits(r). from(r): where that of rank r arrives. wires[r]: the packet; for
/// ranks that are not awaited, one that has arrived already, such as the own one. Returns false if a packet will not come.
///
/// ChannelUse::take_all (onehop/device/channel.cuh) has a loop of its own. It also polls slots that it does not await, and
/// so has no branches, but needs an address for every rank. With this one instead, 12 of the 20 kernels of example 17
/// take up to 12 registers more, and 4 others spill (nvcc 13.0, sm_90).
template <int kRanks, class Slot, class Wire, class Awaits, class From>
[[nodiscard]] __device__ __forceinline__ bool take_from_all(const DeviceGuard& guard,
                                                            DeviceFault::Phase phase, const Slot& slot,
                                                            Wire (&wires)[kRanks], const Awaits& awaits,
                                                            const From& from) {
  return device::wait_until_all(
      guard, phase,
      [&] {
#pragma unroll
        for (int r = 0; r < kRanks; ++r) {
          if (awaits(r)) wires[r] = Slot::peek(from(r));
        }
        bool all = true;
#pragma unroll
        for (int r = 0; r < kRanks; ++r) all = all && slot.arrived(wires[r]);
        return all;
      },
      [&] {
        unsigned missing = 0;
#pragma unroll
        for (int r = 0; r < kRanks; ++r) missing |= slot.arrived(wires[r]) ? 0 : 1u << r;
        return missing;
      });
}

}  // namespace onehop::cuda
