// SPDX-License-Identifier: Apache-2.0
// Value types shared by every part of onehop: ranks, devices, element types, reductions, durations.
#pragma once

// All C++ headers of onehop include this one, so the check applies to each of them.
#if __cplusplus <= 201703L
#error "onehop's C++ headers need C++20: compile with -std=c++20 (onehop/c_api.h takes C and C++11)"
#endif

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "onehop/export.h"

namespace onehop {

/// Maximum number of GPU ranks in one group: CUDA allows a device to enable at most 8 peers.
inline constexpr int kMaxDevices = 8;
/// Maximum number of host ranks in one group. Host ranks share memory instead of NVLink, so they may
/// outnumber GPUs.
inline constexpr int kMaxHostRanks = 64;

/// Timeout of a blocking call. Negative values are rejected; an infinite timeout does not exist.
using Duration = std::chrono::milliseconds;
inline constexpr Duration kDefaultTimeout = std::chrono::seconds{30};

/// Index of a member of a group, 0 <= value < world size.
struct Rank {
  int value = -1;

  constexpr Rank() = default;
  constexpr explicit Rank(int v) : value(v) {}
  constexpr auto operator<=>(const Rank&) const = default;
  /// `int(rank)`; there is no implicit conversion.
  [[nodiscard]] constexpr explicit operator int() const { return value; }
  /// True for a default-constructed rank: "no particular rank".
  [[nodiscard]] constexpr bool none() const { return value < 0; }
};

/// A CUDA device ordinal in this process's numbering, or `DeviceId::host` for the host backend.
struct DeviceId {
  int value = -1;

  constexpr DeviceId() = default;
  constexpr explicit DeviceId(int v) : value(v) {}
  constexpr auto operator<=>(const DeviceId&) const = default;
  [[nodiscard]] constexpr bool is_host() const { return value == -1; }

  static const DeviceId host;
};
inline constexpr DeviceId DeviceId::host{};

/// Wraps a cudaStream_t without needing its header. The default is the device's default stream.
/// The host backend is synchronous and ignores it.
struct Stream {
  void* handle = nullptr;
};

/// Element types of collectives. The numbers are part of the C API and of the wire formats: append only.
enum class DType : std::uint8_t {
  f16 = 0,   ///< IEEE 754 binary16
  bf16 = 1,  ///< bfloat16
  f32 = 2,
  f64 = 3,
  e4m3 = 4,  ///< FP8 E4M3: no infinities, NaN is S.1111.111. Results beyond 448 become 448.
  e5m2 = 5,  ///< FP8 E5M2: infinities and NaNs as IEEE 754. Results beyond 57344 become infinite.
  i8 = 6,
  u8 = 7,
  i32 = 8,
  u32 = 9,
  i64 = 10,
  u64 = 11,
};
inline constexpr int kDTypeCount = 12;

/// Reductions. `avg` is the sum divided by the world size. `premul_sum` is the sum multiplied by CallOptions::factor, or the
/// sum of what each rank multiplies by its CallOptions::own_factor. Both scale in the accumulation type (f32 for 8- and 16-bit
/// floats); integer averages truncate towards zero. `min` and `max` propagate NaN and order -0 before +0. Integer overflow
/// wraps. Infinities and NaN pass through every reduction, and floats overflow to infinity, except in e4m3, which has none.
/// The numbers are part of the C API and of the wire formats: append only.
enum class ReduceOp : std::uint8_t { sum = 0, prod = 1, min = 2, max = 3, avg = 4, premul_sum = 5 };
inline constexpr int kReduceOpCount = 6;

/// Collectives and point-to-point calls. The numbers are part of the C API and of the wire formats: append
/// only.
enum class Collective : std::uint8_t {
  all_reduce = 0,
  all_gather = 1,
  reduce_scatter = 2,
  broadcast = 3,
  reduce = 4,
  all_to_all = 5,
  all_to_all_v = 6,
  gather = 7,
  scatter = 8,
  send = 9,
  recv = 10,
  barrier = 11,
};
inline constexpr int kCollectiveCount = 12;

/// Algorithms of collectives, as counted by Group::usage. The numbers are part of the C API: append only.
enum class Algorithm : std::uint8_t {
  none = 0,      ///< of a barrier and of calls queued in a GroupCall; IntraNodeComm: left to the caller
  one_shot = 1,  ///< each rank reads the parts it needs directly from all ranks' inputs
  two_shot = 2,  ///< reduce-scatter, then all-gather
};
inline constexpr int kAlgorithmCount = 3;

/// One block per rank of an array: block r has `counts[r]` elements and begins at element `offsets[r]`. Both
/// spans have group.size() entries. The offset of an empty block is ignored.
struct Blocks {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> offsets;
};

/// Handle types for sharing GPU memory with other processes. The numbers are part of the wire formats: append
/// only.
enum class ShareBy : std::uint8_t {
  automatic = 0,  ///< DeviceMemory: posix_fd, plus fabric where it works; groups: see JoinOptions
  posix_fd = 1,   ///< a file descriptor, passed through a Unix socket
  fabric = 2,     ///< 64 bytes that any channel can carry; requires a running fabric manager and IMEX
  ipc = 3,        ///< CUDA IPC, which does not require virtual memory management; groups only
};
inline constexpr int kShareByCount = 4;

/// Bytes per element.
[[nodiscard]] ONEHOP_API std::size_t size_of(DType type);

[[nodiscard]] ONEHOP_API std::string_view to_string(DType type);
[[nodiscard]] ONEHOP_API std::string_view to_string(ReduceOp op);
/// "auto", "fd", "fabric" or "ipc".
[[nodiscard]] ONEHOP_API std::string_view to_string(ShareBy share_by);
[[nodiscard]] ONEHOP_API std::string_view to_string(Algorithm algorithm);
/// "all-reduce", as commands and tuning tables name it.
[[nodiscard]] ONEHOP_API std::string_view to_string(Collective collective);

/// Parse the names that `to_string` returns (and the aliases float16/half, bfloat16, float, double, int8
/// ...). Throw Error{invalid_argument}, which lists the known names.
[[nodiscard]] ONEHOP_API DType parse_dtype(std::string_view name);
[[nodiscard]] ONEHOP_API ReduceOp parse_reduce_op(std::string_view name);
[[nodiscard]] ONEHOP_API ShareBy parse_share_by(std::string_view name);
[[nodiscard]] ONEHOP_API Algorithm parse_algorithm(std::string_view name);

}  // namespace onehop
