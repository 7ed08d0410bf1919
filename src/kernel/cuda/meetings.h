// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels that synchronize ranks: the host side of meeting.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/cuda/call_params.h"

namespace onehop {

[[nodiscard]] inline cuda::SegmentHead& segment_head(const std::vector<std::byte*>& segments, int r) {
  return *reinterpret_cast<cuda::SegmentHead*>(segments[static_cast<std::size_t>(r)]);
}

/// The words of one rank's segment head that serve one kind of meeting.
struct Gate {
  cuda::Control* control = nullptr;
  std::uint64_t* flags = nullptr;  ///< by source
};

/// `gate_of(head)` returns the Gate in a segment head; `segments` has those of all ranks.
template <class GateOf>
[[nodiscard]] cuda::Meeting describe_meeting(const std::vector<std::byte*>& segments, int rank,
                                             DeviceFault::Phase phase, const DeviceGuard& guard,
                                             GateOf&& gate_of) {
  const int size = static_cast<int>(segments.size());
  const Gate own = gate_of(segment_head(segments, rank));
  cuda::Meeting meeting{.rank = rank,
                        .size = size,
                        .phase = phase,
                        .control = own.control,
                        .own_flags = own.flags,
                        .guard = guard};
  for (int r = 0; r < size; ++r) meeting.peer_flags[r] = gate_of(segment_head(segments, r)).flags + rank;
  return meeting;
}

/// Parameters for the kernels of copies.cuh, which are adds (phase 0) or collects (phase 1).
[[nodiscard]] inline cuda::Meeting round_meeting(const std::vector<std::byte*>& segments, int rank,
                                                 std::size_t kind, DeviceFault::Phase phase,
                                                 const DeviceGuard& guard) {
  return describe_meeting(segments, rank, phase, guard, [kind](cuda::SegmentHead& head) {
    return Gate{.control = &head.rounds[kind], .flags = head.round_flags[kind]};
  });
}

}  // namespace onehop
