// SPDX-License-Identifier: Apache-2.0
// What a kernel needs to reach its peers, as plain data: pass it by value. Free of CUDA headers; the
// functions that use it are in signal.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/types.h"

namespace onehop {

/// How a wait on the device ends when what it waits for does not come. Made by the library; kernels only hand
/// it on.
struct DeviceGuard {
  std::uint32_t* failed = nullptr;  ///< device memory: not 0 once a wait of this rank has failed
  /// Mapped host memory: kAbortNotice, and bit r when rank r has left.
  const std::uint32_t* notice = nullptr;
  std::uint64_t* fault = nullptr;  ///< mapped host memory: the first failed wait (DeviceFault)
  std::uint64_t timeout_ns = 0;    ///< of every single wait

  static constexpr std::uint32_t kAbortNotice = 1u << 31;
};

/// What a wait that did not succeed leaves for the host: one word, so that it arrives whole.
/// reason << 56 | awaited rank << 48 | phase; and for an argument out of range (no_channel, no_rank)
/// reason << 56 | phase << 48 | limit << 32 | argument.
struct DeviceFault {
  /// misplaced: no wait, but what the awaited rank said of its symmetric memory. no_channel, no_rank: the
  /// kernel passed a channel or a rank that the buffer does not have. Append only.
  enum Reason : std::uint32_t { none = 0, timeout = 1, left = 2, misplaced = 3, no_channel = 4, no_rank = 5 };
  /// What the wait belonged to. Append only.
  enum Phase : std::uint32_t {
    user = 0,
    barrier = 1,
    signal = 2,
    all_reduce = 3,
    all_gather = 4,
    reduce_scatter = 5,
    broadcast = 6,
    reduce = 7,
    all_to_all = 8,
    all_to_all_v = 9,
    gather = 10,
    scatter = 11,
    send_recv = 12
  };
};

/// SymmetricBuffer::device_view(): valid while the buffer lives. `peers[r]` is rank r's part as this rank's
/// device sees it, `peers[rank]` the local part.
struct DeviceView {
  int rank = 0;
  int size = 0;
  int channels = 0;       ///< of signals: 0 to channels - 1 (BufferOptions::channels)
  std::size_t bytes = 0;  ///< of each rank's part
  std::byte* peers[kMaxDevices] = {};
  std::uint32_t* signal_pads[kMaxDevices] = {};  ///< `channels` SignalChannels each
  DeviceGuard guard;
};

/// One channel of a rank's signal pad in device memory. The first two rows are raised by peers; the rest is
/// where the rank keeps count, in device memory so that graph replays count on. All counters only rise; they
/// wrap after 2^32 signals, and are compared by difference. Rows lie in memory sectors of their own.
struct alignas(32) SignalChannel {
  std::uint32_t barrier[kMaxDevices];  ///< by who arrived
  std::uint32_t signal[kMaxDevices];   ///< by who signalled
  std::uint32_t sent[kMaxDevices];     ///< own: signals given, by destination
  std::uint32_t awaited[kMaxDevices];  ///< own: signals taken, by source
  std::uint32_t barriers;              ///< own: barriers passed
};

}  // namespace onehop
