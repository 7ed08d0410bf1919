// SPDX-License-Identifier: Apache-2.0
// The plain data that a kernel needs to reach its peers: pass it by value. Free of CUDA headers; the
// functions that use it are in signal.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/types.h"

namespace onehop {

/// Ends a wait on the device that cannot succeed. The library creates it; kernels only pass it on.
struct DeviceGuard {
  /// Device memory: nonzero once a wait of this rank, or the group, has failed.
  std::uint32_t* failed = nullptr;
  /// Mapped host memory: kAbortNotice, and bit r once rank r has left.
  const std::uint32_t* notice = nullptr;
  std::uint64_t* fault = nullptr;  ///< mapped host memory: the first failed wait (DeviceFault)
  std::uint64_t timeout_ns = 0;    ///< timeout of each wait

  static constexpr std::uint32_t kAbortNotice = 1u << 31;
};

/// The fault word that a failed wait writes for the host, a single word, so that it arrives whole:
///   reason << 56 | awaited rank << 48 | phase
/// and for an argument out of range (no_channel, no_rank):
///   reason << 56 | phase << 48 | limit << 32 | argument
struct DeviceFault {
  /// misplaced: no wait failed, but the awaited rank named a different window of symmetric memory. no_channel,
  /// no_rank: the kernel passed a channel or a rank that the buffer does not have. Append only.
  enum Reason : std::uint32_t { none = 0, timeout = 1, left = 2, misplaced = 3, no_channel = 4, no_rank = 5 };
  /// The operation that the wait belonged to: phase_of() for collectives. Append only.
  enum Phase : std::uint32_t { user = 0, barrier = 1, signal = 2, first_collective = 3 };

  /// The phase of waits in a collective other than the barrier. Sends and receives share their waits, and so
  /// the phase of Collective::send.
  static constexpr Phase phase_of(Collective collective) {
    return static_cast<Phase>(first_collective + static_cast<std::uint32_t>(collective));
  }
};

/// The result of SymmetricBuffer::device_view(), valid while the buffer lives. `peers[r]` is rank r's part as
/// mapped for this rank's device; `peers[rank]` is the local part.
struct DeviceView {
  int rank = 0;
  int size = 0;
  int channels = 0;       ///< signal channels, numbered 0 to channels - 1 (BufferOptions::channels)
  std::size_t bytes = 0;  ///< size of each rank's part
  std::byte* peers[kMaxDevices] = {};
  std::uint32_t* signal_pads[kMaxDevices] = {};  ///< `channels` SignalChannels each
  DeviceGuard guard;
};

/// One channel of a rank's signal pad in device memory. Peers write the first two rows. The others hold the
/// rank's own counts, in device memory so that graph replays continue them. All counters only increase. They
/// wrap after 2^32 signals and are compared by difference. Each row occupies memory sectors of its own.
struct alignas(32) SignalChannel {
  std::uint32_t barrier[kMaxDevices];  ///< by arriving rank
  std::uint32_t signal[kMaxDevices];   ///< by signalling rank
  std::uint32_t sent[kMaxDevices];     ///< own: signals sent, by destination
  std::uint32_t awaited[kMaxDevices];  ///< own: signals consumed, by source
  std::uint32_t barriers;              ///< own: barriers passed
};

}  // namespace onehop
