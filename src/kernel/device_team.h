// SPDX-License-Identifier: Apache-2.0
// The GPU ranks of one group as the layers above see them. They launch the group's kernels on this rank's
// device and report failed waits of those kernels. In a build without CUDA, create() throws.
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

/// Checks that the device exists and can run onehop's kernels (compute capability 8.0 or newer). Returns its
/// UUID, which identifies it across processes.
[[nodiscard]] std::string identify_device(DeviceId device);

/// The device's model name, for example "NVIDIA H200".
[[nodiscard]] std::string device_name(DeviceId device);

/// The number of multiprocessors (SMs), which is how many blocks of a collective can be resident on the
/// device.
[[nodiscard]] int multiprocessors(DeviceId device);

/// How the bytes of a collective travel. The plan knows what each protocol can carry and when it is fastest.
/// Tuning tables name the first ones.
enum class DeviceProtocol : std::uint8_t {
  packets,        ///< one-shot, flags in the data words (as NCCL's LL): any type
  chunks,         ///< pipelined two-shot, flags beside the data: any type
  mail_one_shot,  ///< one-shot through Lamport buffers (mailboxes): floating-point types
  mail_two_shot,
  copies,            ///< two-shot by copy engines: any type
  streams,           ///< point to point, one-shot, in packets or chunks: any type
  streams_two_shot,  ///< the same in two shots, for reduce and broadcast: every rank forwards a piece
  direct,            ///< by copy engines, directly into symmetric outputs
};
inline constexpr int kTunableProtocolCount = 5;
inline constexpr int kDeviceProtocolCount = 8;
/// These names are part of the kernels' names (cuda/reductions.cuh).
[[nodiscard]] constexpr std::string_view to_string(DeviceProtocol protocol) {
  constexpr std::string_view kNames[kDeviceProtocolCount] = {"packets",          "chunks", "mail_one_shot",
                                                             "mail_two_shot",    "copies", "streams",
                                                             "streams_two_shot", "direct"};
  return kNames[static_cast<std::size_t>(protocol)];
}

/// The planned launch configuration of a kernel.
struct LaunchShape {
  unsigned grid = 1;   ///< blocks
  unsigned block = 1;  ///< threads per block
  bool early = false;  ///< small enough that the next kernel may start while it runs (cuda/call.cuh)
};

/// How a call is carried out. Identical on all ranks.
struct DevicePlan {
  Algorithm algorithm = Algorithm::one_shot;  ///< as callers name it
  DeviceProtocol protocol = DeviceProtocol::streams;
  std::size_t launch_bytes = 0;  ///< bytes of the message per launch, a multiple of 16
  std::size_t chunk = 0;         ///< for chunks, copies, direct: bytes of a rank's piece, a multiple of 16
  LaunchShape shape{};
};

/// The place in symmetric memory where all ranks declare their outputs to be. They must declare the same
/// place, which is checked on the device.
struct SymmetricOutput {
  std::uint64_t window = 0;                    ///< the buffer and the offset in it; 0: nothing is declared
  std::array<std::byte*, kMaxDevices> outs{};  ///< by rank, as mapped for this rank
};

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

/// Whether a protocol can carry a type.
[[nodiscard]] constexpr bool carries(DeviceProtocol protocol, DType type) {
  const bool mail = protocol == DeviceProtocol::mail_one_shot || protocol == DeviceProtocol::mail_two_shot;
  return !mail || type <= DType::e5m2;  // the floats come first
}

/// One thread at a time may launch; the other functions are thread-safe.
class DeviceTeam {
 public:
  struct Options {
    DeviceId device;
    int rank = 0;
    std::vector<std::byte*> segments;  ///< one per rank, segment_bytes() each, zeroed, mapped for `device`
    std::size_t staging_bytes = 0;
    std::size_t copy_bytes = 0;  ///< for DeviceProtocol::copies; 0: not available
    bool alone = true;           ///< no other rank of the group uses this device
    int blocks = 1;              ///< blocks of a kernel that can be resident at once on every rank's device
  };

  /// Loads every kernel now, because loading a kernel while another one spins would deadlock.
  [[nodiscard]] static std::unique_ptr<DeviceTeam> create(Options options, const Deadline& deadline);
  /// Size of the device memory segment that each rank of a group of `size` needs.
  [[nodiscard]] static std::size_t segment_bytes(int size, std::size_t staging_bytes, std::size_t copy_bytes);

  DeviceTeam() = default;
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;
  virtual ~DeviceTeam() = default;

  /// Called before the launches of a call; sets the timeout of each of its waits on the device.
  virtual void begin_call(Duration timeout) = 0;
  /// Queues a collective that has bytes to move. With `outputs`, the ranks first check on the device that all
  /// declare the same place.
  virtual void run(const CollectiveCall& call, const DevicePlan& plan, const SymmetricOutput& outputs) = 0;
  /// Queues all-reduces that share one launch over packets. At most cuda::kMaxListed of them are not empty,
  /// and together they fit one slot of packets.
  virtual void run_fused(std::span<const CollectiveCall> calls, const LaunchShape& shape) = 0;
  /// Queues transfers between pairs of ranks. The transfers of a pair are passed in the order of calls. Pairs
  /// without bytes to move take no part.
  virtual void transfer(const Transfers& transfers, DeviceFault::Phase phase, Stream stream) = 0;
  virtual void barrier(const DeviceView& view, int channel, Stream stream) = 0;
  virtual void put_signal(const DeviceView& view, Rank dst, int channel, Stream stream) = 0;
  virtual void wait_signal(const DeviceView& view, Rank src, int channel, Stream stream) = 0;

  /// The guard for waits on the device with this timeout.
  [[nodiscard]] virtual DeviceGuard guard(Duration timeout) const = 0;
  /// The first failed wait of this rank's kernels, if any.
  [[nodiscard]] virtual std::optional<DeviceFailure> failure() const = 0;
  /// Ends all current and future waits of this rank's kernels.
  virtual void abort() noexcept = 0;
  /// Records that rank r has left the group, which ends waits for its outstanding work.
  virtual void mark_left(Rank r) noexcept = 0;

  /// Whether all work queued on `stream` has completed. Error{system} when the device has failed.
  [[nodiscard]] virtual bool idle(Stream stream) const = 0;
  /// Waits until all work queued on the device has completed, or cannot complete because the device has
  /// failed. Returns false if it has not within `timeout`. The group's kernels end by their own deadlines;
  /// other kernels may never end.
  [[nodiscard]] virtual bool quiesce(Duration timeout) noexcept = 0;
};

}  // namespace onehop
