// SPDX-License-Identifier: Apache-2.0
// Memory that every rank of a group can reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "onehop/device/view.h"
#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// What a rank (or a kernel) needs to reach its peers: plain data, valid while the buffer it came from lives.
/// `peers[r] + offset` is rank r's part as this rank's device sees it; `peers[rank] + offset` is the local
/// part.
struct PeerView {
  int rank = 0;
  int size = 0;
  int channels = 0;                             ///< of signals
  std::size_t bytes = 0;                        ///< of each rank's part
  std::size_t offset = 0;                       ///< not 0 for sub-buffers
  std::byte* const* peers = nullptr;            ///< `size` data pointers
  std::uint32_t* const* signal_pads = nullptr;  ///< `size` pointers to signal pads (see docs/memory-model.md)
};

/// Symmetric memory: the same number of bytes on every rank, mapped by every rank, plus a signal pad per
/// rank. Made by `Group::allocate`, or by `Group::register_buffer` of memory that is there already, which
/// stays its user's. Owns its mappings: destroying it never touches memory a peer still uses, never throws,
/// and is not collective. Copies share the mapping; sub-buffers too.
///
/// Signals count upwards and are never reset: `put_signal` and `wait_signal` of one (src, dst, channel) pair
/// up one to one. A signal is a release of everything the caller wrote before it; the matching wait is an
/// acquire. Different threads may use different channels at the same time, never the same one.
///
/// In a group of GPUs the memory is device memory, and the calls without a stream synchronise the hosts
/// alone: wait for your streams first. Destroying the last copy waits for the device.
class ONEHOP_API SymmetricBuffer {
 public:
  /// Channels of a buffer unless BufferOptions say otherwise, and the most that it may have: one for each
  /// block that a GPU holds at a time.
  static constexpr int kDefaultChannels = 16;
  static constexpr int kMaxChannels = 4096;

  SymmetricBuffer();  ///< empty: bytes() == 0
  ~SymmetricBuffer();
  SymmetricBuffer(const SymmetricBuffer&);
  SymmetricBuffer& operator=(const SymmetricBuffer&);
  SymmetricBuffer(SymmetricBuffer&&) noexcept;
  SymmetricBuffer& operator=(SymmetricBuffer&&) noexcept;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  /// Usable bytes of each rank's part: exactly what was asked for.
  [[nodiscard]] std::size_t bytes() const;
  /// Channels for `barrier`, `put_signal` and `wait_signal`: 0 to channels() - 1.
  [[nodiscard]] int channels() const;
  [[nodiscard]] std::byte* local() const;
  /// Rank r's part, in this rank's address space. Error{invalid_argument} when r is out of range.
  [[nodiscard]] std::byte* peer(Rank r) const;
  /// For code that wants all pointers at once.
  [[nodiscard]] PeerView view() const;
  /// The same for kernels, by value: pointers valid on this rank's device, signal pads in device memory, and
  /// how long a wait may take (see onehop/device/signal.cuh). Error{unsupported} for buffers of host ranks.
  [[nodiscard]] DeviceView device_view(Duration timeout = kDefaultTimeout) const;

  /// `bytes` bytes at `offset` of every rank's part. Shares the signal pad. Not collective.
  [[nodiscard]] SymmetricBuffer sub(std::size_t offset, std::size_t bytes) const;
  template <class T>
  [[nodiscard]] std::span<T> as() const {
    return {reinterpret_cast<T*>(local()), bytes() / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<T> peer_as(Rank r) const {
    return {reinterpret_cast<T*>(peer(r)), bytes() / sizeof(T)};
  }

  // Unusable arguments of barrier and put_signal are Error{invalid_argument} on all ranks, and the failure of
  // the group: a peer must not take the next one for the one that was refused. wait_signal consumes nothing
  // when it fails, and may be called again.

  /// All ranks arrive; everything any rank wrote to symmetric memory before is visible to all after.
  void barrier(int channel = 0, Duration timeout = kDefaultTimeout) const;
  /// Tells `dst` that what this rank wrote before is ready.
  void put_signal(Rank dst, int channel = 0) const;
  /// Waits for the next signal from `src`. Error{timeout} and Error{peer_lost} name it.
  void wait_signal(Rank src, int channel = 0, Duration timeout = kDefaultTimeout) const;

  /// The same on a stream of this rank's GPU: queued, not waited for. They use pads in device memory and
  /// count apart from those above. A wait that fails ends the group: Group::check and Group::synchronize say
  /// why. Capturable in graphs. Error{unsupported} for buffers of host ranks.
  void barrier(Stream stream, int channel = 0, Duration timeout = kDefaultTimeout) const;
  void put_signal(Stream stream, Rank dst, int channel = 0) const;
  void wait_signal(Stream stream, Rank src, int channel = 0, Duration timeout = kDefaultTimeout) const;

  class State;
  /// Internal: what Group hands out.
  explicit SymmetricBuffer(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
};

/// How symmetric memory is made; the same on all ranks.
struct BufferOptions {
  /// Channels of signals, 1 to SymmetricBuffer::kMaxChannels. A rank gives 160 bytes of device memory for
  /// each (GPUs) and 128 bytes of host memory for each and every rank.
  int channels = SymmetricBuffer::kDefaultChannels;
};

}  // namespace onehop
