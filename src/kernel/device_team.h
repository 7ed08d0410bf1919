// SPDX-License-Identifier: Apache-2.0
// The GPU ranks of one group as the layers above see them: launches of the group's kernels on this rank's
// device, and what those kernels have to say when a wait fails. In a build without CUDA, create() says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/buffer.h"
#include "onehop/device/view.h"
#include "onehop/types.h"

#include "base/deadline.h"
#include "kernel/call.h"

namespace onehop {

/// Checks that the device exists and can carry onehop's kernels (compute capability 8.0 or newer), and
/// returns what identifies it across processes: its UUID.
[[nodiscard]] std::string identify_device(DeviceId device);

/// "NVIDIA H200": of what kind the device is.
[[nodiscard]] std::string device_name(DeviceId device);

/// How many blocks of a collective can be resident on the device: its multiprocessors.
[[nodiscard]] int multiprocessors(DeviceId device);

/// How the bytes of a collective travel. What each can carry, and when each is best, the plan knows. Tuning
/// tables name the first ones.
enum class DeviceProtocol : std::uint8_t {
  packets,        ///< one-shot, flags in the data: any type
  chunks,         ///< two-shot as a pipeline, flags beside the data: any type
  mail_one_shot,  ///< through mailboxes: floating-point types
  mail_two_shot,
  copies,            ///< two-shot by copy engines: any type
  streams,           ///< one-shot from rank to rank, in packets or chunks: any type
  streams_two_shot,  ///< the same for reduce and broadcast, in pieces that every rank passes on
  direct,            ///< by copy engines straight to symmetric outputs
};
inline constexpr int kTunableProtocolCount = 5;
inline constexpr int kDeviceProtocolCount = 8;
/// Kernels are named by these (cuda/reductions.cuh).
[[nodiscard]] constexpr std::string_view to_string(DeviceProtocol protocol) {
  constexpr std::string_view kNames[kDeviceProtocolCount] = {"packets",          "chunks", "mail_one_shot",
                                                             "mail_two_shot",    "copies", "streams",
                                                             "streams_two_shot", "direct"};
  return kNames[static_cast<std::size_t>(protocol)];
}

/// Of a kernel, as planned.
struct LaunchShape {
  unsigned grid = 1;   ///< blocks
  unsigned block = 1;  ///< threads per block
  bool early = false;  ///< small enough that the next kernel may start beside it (cuda/call.cuh)
};

/// How a call is carried out, the same on all ranks.
struct DevicePlan {
  Algorithm algorithm = Algorithm::one_shot;  ///< as callers know it
  DeviceProtocol protocol = DeviceProtocol::streams;
  std::size_t launch_bytes = 0;  ///< of the message in each launch, a multiple of 16
  std::size_t chunk = 0;         ///< chunks, copies, direct: of a rank's piece, a multiple of 16
  LaunchShape shape{};
};

/// Where all ranks say that their outputs lie in symmetric memory. They must say the same, which is checked on
/// the device.
struct SymmetricOutput {
  std::uint64_t window = 0;                    ///< the buffer and the offset in it; 0: nothing is said
  std::array<std::byte*, kMaxDevices> outs{};  ///< by rank, as this rank reaches them
};

/// A wait that failed on the device, or an argument that a kernel passed.
struct DeviceFailure {
  DeviceFault::Reason reason{};
  Rank awaited{};  ///< none for arguments
  DeviceFault::Phase phase{};
  std::int32_t argument = 0;  ///< the channel or rank that is out of range
  std::int32_t limit = 0;     ///< how many there are
};

/// What a kernel's word says (DeviceFault); nullopt: no kernel has failed.
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

/// Whether a protocol can carry a type.
[[nodiscard]] constexpr bool carries(DeviceProtocol protocol, DType type) {
  const bool mail = protocol == DeviceProtocol::mail_one_shot || protocol == DeviceProtocol::mail_two_shot;
  return !mail || type <= DType::e5m2;  // the floats come first
}

/// Launches are made by one thread at a time; the rest is thread-safe.
class DeviceTeam {
 public:
  struct Options {
    DeviceId device;
    int rank = 0;
    std::vector<std::byte*> segments;  ///< of every rank, segment_bytes() each, zeroed, mapped for `device`
    std::size_t staging_bytes = 0;
    std::size_t copy_bytes = 0;  ///< for DeviceProtocol::copies; 0: without
    bool alone = true;           ///< no other rank of the group uses this device
    int blocks = 1;              ///< of a kernel that all ranks' devices can hold at once
  };

  /// Loads every kernel: none may be loaded while one spins.
  [[nodiscard]] static std::unique_ptr<DeviceTeam> create(Options options, const Deadline& deadline);
  /// Device memory that a rank of a group of `size` needs for itself.
  [[nodiscard]] static std::size_t segment_bytes(int size, std::size_t staging_bytes, std::size_t copy_bytes);

  DeviceTeam() = default;
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;
  virtual ~DeviceTeam() = default;

  /// Before the launches of a call: how long each of its waits on the device may take.
  virtual void begin_call(Duration timeout) = 0;
  /// Queues a collective that has bytes to move. With `outputs`, ranks first find out on the device that
  /// all say the same of them.
  virtual void run(const CollectiveCall& call, const DevicePlan& plan, const SymmetricOutput& outputs) = 0;
  /// Queues all-reduces that go in one launch over packets: cuda::kMaxListed that are not empty, which
  /// together fit one slot of packets.
  virtual void run_fused(std::span<const CollectiveCall> calls, const LaunchShape& shape) = 0;
  /// Queues transfers between pairs of ranks. Those of a pair are passed in the order of calls; pairs without
  /// bytes to move take no part.
  virtual void transfer(const Transfers& transfers, DeviceFault::Phase phase, Stream stream) = 0;
  virtual void barrier(const DeviceView& view, int channel, Stream stream) = 0;
  virtual void put_signal(const DeviceView& view, Rank dst, int channel, Stream stream) = 0;
  virtual void wait_signal(const DeviceView& view, Rank src, int channel, Stream stream) = 0;

  /// For waits on the device that may take `timeout`.
  [[nodiscard]] virtual DeviceGuard guard(Duration timeout) const = 0;
  /// The first failed wait of this rank's kernels, once there is one.
  [[nodiscard]] virtual std::optional<DeviceFailure> failure() const = 0;
  /// Ends all waits of this rank's kernels, now and later.
  virtual void abort() noexcept = 0;
  /// Rank r has left the group: waits for what it has not done end.
  virtual void mark_left(Rank r) noexcept = 0;

  /// Whether everything queued on `stream` has ended. Error{system} when the device has failed.
  [[nodiscard]] virtual bool idle(Stream stream) const = 0;
  /// Waits until everything queued on the device has ended, or cannot (the device has failed). False: it has
  /// not within `timeout`. Kernels of the group end by their own deadlines, others may never.
  [[nodiscard]] virtual bool quiesce(Duration timeout) noexcept = 0;
};

}  // namespace onehop
