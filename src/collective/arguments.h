// SPDX-License-Identifier: Apache-2.0
// A collective call as its caller passed it, in terms that all collectives share, and what can be wrong with
// it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "onehop/collectives.h"

#include "collective/call.h"
#include "kernel/scale.h"

namespace onehop {

struct Arguments {
  CallKind kind{};
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  ///< elements of a block
  DType type = DType::f32;
  int in_blocks = 1;  ///< that this rank passes; 0: its `in` is not looked at
  int out_blocks = 1;
  /// In place means that `in` is so many blocks after `out`; nullopt: there is no such thing.
  std::optional<int> in_place = 0;
  std::optional<ReduceOp> op{};
  std::optional<Rank> root{};
  /// Of a call whose blocks differ in size (all_to_all_v; no blocks above): what this rank reads and writes.
  std::span<const std::byte> read{};
  std::span<const std::byte> written{};
  std::size_t sent_bytes = 0;  ///< to log, of such a call
  Stream stream{};
  const CallOptions& options;

  [[nodiscard]] Duration timeout(Duration of_group) const { return options.timeout.value_or(of_group); }
  /// Only for types that are known and counts that are not too large.
  [[nodiscard]] std::size_t block_bytes() const { return count * size_of(type); }
  /// What this rank reads and writes, the same.
  [[nodiscard]] std::span<const std::byte> input() const {
    return in_blocks == 0 ? read : std::span(in, static_cast<std::size_t>(in_blocks) * block_bytes());
  }
  [[nodiscard]] std::span<const std::byte> output() const {
    const std::byte* const first = out;
    return out_blocks == 0 ? written : std::span(first, static_cast<std::size_t>(out_blocks) * block_bytes());
  }
  /// Only for reductions without a defect.
  [[nodiscard]] Scale scale(int ranks) const { return scale_of(type, *op, options.factor, ranks); }
};

[[nodiscard]] inline const std::byte* as_bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}
[[nodiscard]] inline std::byte* as_bytes(void* data) {
  return static_cast<std::byte*>(data);
}

/// Elements of a type: beyond so many, byte counts would no longer be safe to add up.
[[nodiscard]] inline std::size_t max_elements(DType type) {
  return (std::size_t{1} << 56) / size_of(type);
}

/// What is wrong with this rank's arguments in a group of `ranks`. The others have to hear of it, too, so it
/// is not thrown here.
[[nodiscard]] CallDefect find_defect(const Arguments& call, int ranks);

/// In a group of GPUs, of a call that has no other defect: whether this rank's pointers lead where kernels of
/// its GPU can go.
[[nodiscard]] CallDefect find_memory_defect(const Arguments& call, DeviceId device);

/// What is wrong, for the rank itself: to_text(), and of a pointer also which one it is and what it leads to.
[[nodiscard]] std::string explain(const Arguments& call, CallDefect defect, DeviceId device);

/// What a rank says of its call to the others.
[[nodiscard]] host::Call describe_call(const Arguments& call, CallDefect defect);

}  // namespace onehop
