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

/// Plain data through which a rank or a kernel reaches its peers. Valid while the buffer that it came from
/// lives.
/// `peers[r] + offset` is the address of rank r's part on this rank's device; `peers[rank] + offset` is the
/// local part.
struct PeerView {
  int rank = 0;
  int size = 0;
  int channels = 0;                             ///< number of signal channels
  std::size_t bytes = 0;                        ///< size of each rank's part
  std::size_t offset = 0;                       ///< byte offset of a sub-buffer, otherwise 0
  std::byte* const* peers = nullptr;            ///< `size` data pointers
  std::uint32_t* const* signal_pads = nullptr;  ///< `size` pointers to signal pads (see docs/memory-model.md)
};

/// Symmetric memory: the same number of bytes on every rank, mapped by every rank, plus a signal pad per
/// rank. `Group::allocate` allocates it; `Group::register_buffer` makes existing memory symmetric and leaves
/// its ownership with the caller. The buffer owns its mappings. Its destructor never touches memory that a
/// peer still uses, never throws, and is not collective. Copies and sub-buffers share the mapping.
///
/// Signals count upwards and are never reset: for each (src, dst, channel), the n-th `wait_signal` consumes
/// the n-th `put_signal`. A signal is a release of everything that the caller wrote before it; the matching
/// wait is an acquire. Threads may use different channels concurrently. Two threads must not use the same
/// channel at the same time.
///
/// In a group of GPUs the memory is device memory. The calls without a stream synchronize only the hosts:
/// wait for your streams first. Destroying the last copy waits for the device.
class ONEHOP_API SymmetricBuffer {
 public:
  /// Default and maximum number of signal channels of a buffer. The maximum gives one channel to each thread
  /// block that a GPU can hold at a time.
  static constexpr int kDefaultChannels = 16;
  static constexpr int kMaxChannels = 4096;

  SymmetricBuffer();  ///< an empty buffer: bytes() == 0
  ~SymmetricBuffer();
  SymmetricBuffer(const SymmetricBuffer&);
  SymmetricBuffer& operator=(const SymmetricBuffer&);
  SymmetricBuffer(SymmetricBuffer&&) noexcept;
  SymmetricBuffer& operator=(SymmetricBuffer&&) noexcept;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  /// Usable bytes of each rank's part: exactly the size that was requested.
  [[nodiscard]] std::size_t bytes() const;
  /// Number of signal channels. `barrier`, `put_signal` and `wait_signal` take 0 to channels() - 1.
  [[nodiscard]] int channels() const;
  [[nodiscard]] std::byte* local() const;
  /// Rank r's part, in this rank's address space. Error{invalid_argument} when r is out of range.
  [[nodiscard]] std::byte* peer(Rank r) const;
  /// All pointers at once, valid in this process while the buffer lives.
  [[nodiscard]] PeerView view() const;
  /// Returns the view that a kernel takes by value: pointers valid on this rank's device, signal pads in
  /// device memory, and `timeout` for each wait of the kernel (see onehop/device/signal.cuh). Throws
  /// Error{unsupported} for buffers of host ranks.
  [[nodiscard]] DeviceView device_view(Duration timeout = kDefaultTimeout) const;

  /// Returns the sub-buffer of `bytes` bytes at `offset` of every rank's part. It shares the signal pad. Not
  /// collective.
  [[nodiscard]] SymmetricBuffer sub(std::size_t offset, std::size_t bytes) const;
  template <class T>
  [[nodiscard]] std::span<T> as() const {
    return {reinterpret_cast<T*>(local()), bytes() / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<T> peer_as(Rank r) const {
    return {reinterpret_cast<T*>(peer(r)), bytes() / sizeof(T)};
  }

  // An invalid argument of barrier or put_signal throws Error{invalid_argument} on all ranks, and the group
  // fails: otherwise a peer could mistake the next signal for the rejected one. A wait_signal that fails
  // consumes nothing and may be called again.

  /// Waits until all ranks have called it. Everything that any rank wrote to symmetric memory before the
  /// barrier is visible to all ranks after it.
  void barrier(int channel = 0, Duration timeout = kDefaultTimeout) const;
  /// Signals `dst` that everything this rank wrote before the call is ready. Does not wait.
  void put_signal(Rank dst, int channel = 0) const;
  /// Waits for the next signal from `src`. Error{timeout} and Error{peer_lost} name `src`.
  void wait_signal(Rank src, int channel = 0, Duration timeout = kDefaultTimeout) const;

  /// The stream-ordered forms: each call enqueues the operation on a stream of this rank's GPU and returns at
  /// once. They use signal pads in device memory, whose counts are independent of those above. `timeout`
  /// bounds the wait from when the stream reaches it. If a wait fails, the group fails: Group::check and
  /// Group::synchronize report why. Capturable in CUDA graphs. Throws Error{unsupported} for buffers of host
  /// ranks.
  void barrier(Stream stream, int channel = 0, Duration timeout = kDefaultTimeout) const;
  void put_signal(Stream stream, Rank dst, int channel = 0) const;
  void wait_signal(Stream stream, Rank src, int channel = 0, Duration timeout = kDefaultTimeout) const;

  class State;
  /// Internal: called by Group.
  explicit SymmetricBuffer(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
};

/// Options of symmetric memory. Must be the same on all ranks.
struct BufferOptions {
  /// Signal channels, 1 to SymmetricBuffer::kMaxChannels. Per channel, each rank contributes 128 bytes of
  /// host memory for every rank of the group and, on GPUs, 160 bytes of device memory.
  int channels = SymmetricBuffer::kDefaultChannels;
};

}  // namespace onehop
