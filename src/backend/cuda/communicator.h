// SPDX-License-Identifier: Apache-2.0
// One GPU rank of a group: it launches the group's kernels on the rank's device and reports failed waits of
// those kernels. In a build without CUDA, create() throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/device/view.h"
#include "onehop/types.h"

#include "backend/cuda/launcher.h"

namespace onehop {

/// Checks that the device exists and can run onehop's kernels (compute capability 8.0 or newer). Returns its
/// UUID, which identifies it across processes.
[[nodiscard]] std::string identify_device(DeviceId device);

/// The device's model name, for example "NVIDIA H200".
[[nodiscard]] std::string device_name(DeviceId device);

/// The number of multiprocessors (SMs).
[[nodiscard]] int multiprocessors(DeviceId device);

/// Whether one of these devices (identify_device) is visible to this process and has no NVLink to `device`.
[[nodiscard]] bool has_peer_without_nvlink(DeviceId device, const std::vector<std::string>& identities);

/// A wait that failed on the device, or an invalid argument that a kernel passed.
struct DeviceFailure {
  DeviceFault::Reason reason{};
  Rank awaited{};  ///< not set for arguments
  DeviceFault::Phase phase{};
  std::int32_t argument = 0;  ///< the channel or rank that is out of range
  std::int32_t limit = 0;     ///< number of valid values
};

/// Decodes the fault word of a kernel (DeviceFault). nullopt: no kernel has failed.
[[nodiscard]] constexpr std::optional<DeviceFailure> parse_fault(std::uint64_t word) {
  if (word == 0) return std::nullopt;
  DeviceFailure failure;
  failure.reason = static_cast<DeviceFault::Reason>(word >> 56);
  if (failure.reason == DeviceFault::no_channel || failure.reason == DeviceFault::no_rank) {
    failure.phase = static_cast<DeviceFault::Phase>(word >> 48 & 0xff);
    failure.limit = static_cast<std::int32_t>(word >> 32 & 0xffff);
    failure.argument = static_cast<std::int32_t>(word & 0xffffffff);
  } else {
    failure.awaited = Rank{static_cast<int>(word >> 48 & 0xff)};
    failure.phase = static_cast<DeviceFault::Phase>(word & 0xffffffff);
  }
  return failure;
}

/// One thread at a time may queue calls; the other functions are thread-safe.
class Communicator : public cuda::Launcher {
 public:
  struct Options {
    DeviceId device;
    int rank = 0;
    cuda::GroupShape shape;
    std::vector<std::byte*> segments;  ///< one per rank, segment_bytes() each, zeroed, mapped for `device`
    bool alone = true;                 ///< no other rank of the group uses this device
    bool poison = true;                ///< fill floating-point output of failed calls with NaN
  };

  /// Loads every kernel now, because loading a kernel while another one spins would deadlock.
  [[nodiscard]] static std::unique_ptr<Communicator> create(Options options);
  /// Size of the scratch memory that each rank of such a group needs.
  [[nodiscard]] static std::size_t segment_bytes(const cuda::GroupShape& shape) {
    return cuda::ScratchLayout(shape).bytes();
  }

  /// The time in which a call queues its work, in the order of the group's calls (cuda/call_order.h).
  class Call {
   public:
    /// `timeout`: of each wait of the call's kernels. `bytes`: what this rank reads or writes, whichever is more.
    Call(Communicator& communicator, Stream stream, Duration timeout, std::size_t bytes)
        : communicator_(communicator) {
      // Relaxed: read by whoever leaves the group, where it is no more than a limit.
      if (timeout > communicator_.longest_timeout())
        communicator_.longest_timeout_.store(timeout, std::memory_order_relaxed);
      try {
        communicator_.begin_call(stream, timeout, bytes);
      } catch (...) {
        leave();
        throw;
      }
    }
    /// Everything is queued.
    void end() { communicator_.end_call(); }
    ~Call() { leave(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    void leave() noexcept {
      communicator_.leave_call();
      communicator_.calls_.fetch_add(1, std::memory_order_relaxed);
    }

    Communicator& communicator_;
  };

  /// How many calls have queued what they queue. Relaxed: the lock of the group's calls orders it.
  [[nodiscard]] std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  /// The longest timeout of the calls so far.
  [[nodiscard]] Duration longest_timeout() const { return longest_timeout_.load(std::memory_order_relaxed); }

  virtual void barrier(const DeviceView& view, int channel, Stream stream) = 0;
  virtual void put_signal(const DeviceView& view, Rank dst, int channel, Stream stream) = 0;
  virtual void wait_signal(const DeviceView& view, Rank src, int channel, Stream stream) = 0;

  /// The guard for waits on the device with this timeout.
  [[nodiscard]] virtual DeviceGuard guard(Duration timeout) const = 0;
  /// The first failed wait of this rank's kernels, if any.
  [[nodiscard]] virtual std::optional<DeviceFailure> failure() const = 0;
  /// Whether there is one. Costs a load of host memory.
  [[nodiscard]] virtual bool failed() const { return failure().has_value(); }
  /// Ends all current and future waits of this rank's kernels. Later calls and replays fail even if they need not
  /// wait, because what they wait for has come.
  virtual void abort() noexcept = 0;
  /// Ends the use of the segments by abort(), which the caller is about to free. Returns false if it has not ended
  /// within `timeout`.
  [[nodiscard]] virtual bool release_segments(Duration timeout) noexcept = 0;
  /// Records that rank r has left the group, which ends waits for its outstanding work.
  virtual void mark_left(Rank r) noexcept = 0;

  /// Makes later work on `after` wait for the work that is on `before` now.
  virtual void order_streams(Stream before, Stream after) const = 0;
  /// Whether all work queued on `stream` has completed. Error{driver} when the device has failed.
  [[nodiscard]] virtual bool idle(Stream stream) const = 0;
  /// Waits until the group's own work on the device has completed: its calls, or if any was captured, or memory was handed
  /// to kernels of the user (`guard`), as quiesce() does. Returns false if it has not within `timeout`.
  [[nodiscard]] virtual bool finish(Duration timeout) noexcept = 0;
  /// Waits until all work queued on the device has completed, or cannot complete because the device has
  /// failed. Returns false if it has not within `timeout`. The group's kernels end by their own deadlines;
  /// other kernels may never end.
  [[nodiscard]] virtual bool quiesce(Duration timeout) noexcept = 0;

 protected:
  using Launcher::Launcher;

 private:
  virtual void begin_call(Stream stream, Duration timeout, std::size_t bytes) = 0;
  virtual void end_call() = 0;
  virtual void leave_call() noexcept = 0;

  std::atomic<std::uint64_t> calls_{0};
  std::atomic<Duration> longest_timeout_{Duration{0}};
};

}  // namespace onehop
