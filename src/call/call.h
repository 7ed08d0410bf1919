// SPDX-License-Identifier: Apache-2.0
// A call as all layers below the public functions pass it on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "onehop/call.h"
#include "onehop/types.h"

#include "call/scale.h"

namespace onehop {

/// A call as one rank of a group makes it. The derived values of the member functions are valid only for arguments
/// without an error (find_argument_error).
struct CollectiveCall : Call {
  int rank = 0;
  int ranks = 1;
  /// CallOptions::own_factor, right-aligned, if it was read when the call was made.
  std::optional<std::uint64_t> own_factor{};
  /// Why the caller itself refuses the call (ArgumentError::refused_by_caller), else null.
  const Error* refusal = nullptr;

  [[nodiscard]] const CollectiveTraits& traits() const { return traits_of(collective); }
  [[nodiscard]] std::size_t element_bytes() const { return size_of(type); }
  [[nodiscard]] std::size_t block_bytes() const { return count * size_of(type); }
  /// Whether there may be data to move. The same on all ranks.
  [[nodiscard]] bool has_data() const { return count != 0 || traits().in == Amount::counted_by_rank; }
  /// Whether this rank passes input; and whether it receives output.
  [[nodiscard]] bool passes_in() const {
    return traits().in != Amount::nothing && (!traits().only_root_passes_in || rank == root.value);
  }
  [[nodiscard]] bool gets_out() const {
    return traits().out != Amount::nothing && (!traits().only_root_gets_out || rank == root.value);
  }
  /// What lies so many bytes behind the beginning of `in`, and of `out`.
  [[nodiscard]] const std::byte* in_at(std::size_t offset = 0) const {
    return static_cast<const std::byte*>(in) + offset;
  }
  [[nodiscard]] std::byte* out_at(std::size_t offset = 0) const {
    return static_cast<std::byte*>(out) + offset;
  }
  /// The memory that this rank reads, and writes. For all_to_all_v it extends from the first byte of any
  /// block to the last.
  [[nodiscard]] std::span<const std::byte> input() const;
  [[nodiscard]] std::span<std::byte> output() const;

  /// For collectives that move blocks: whether rank `from` sends a block to rank `to`.
  [[nodiscard]] bool moves(int from, int to) const {
    return (!traits().only_root_passes_in || from == root.value) &&
           (!traits().only_root_gets_out || to == root.value);
  }
  /// Offset of a sender's block for rank `to` in its input, and of a receiver's block from rank `from` in its
  /// output. Valid for any rank. Not for all_to_all_v.
  [[nodiscard]] std::size_t in_offset(int to) const {
    return traits().in == Amount::block_per_rank ? static_cast<std::size_t>(to) * block_bytes() : 0;
  }
  [[nodiscard]] std::size_t out_offset(int from) const {
    return traits().out == Amount::block_per_rank ? static_cast<std::size_t>(from) * block_bytes() : 0;
  }
  /// The block that this rank sends to rank r, and the one it receives from r. Empty if there is none.
  [[nodiscard]] std::span<const std::byte> block_to(int r) const;
  [[nodiscard]] std::span<std::byte> block_from(int r) const;

  /// For in-place calls: the offset of `in` relative to `out`, in blocks. nullopt: the collective has no
  /// in-place form.
  [[nodiscard]] std::optional<int> in_place_offset() const;
  [[nodiscard]] Scale scale() const {
    return op == kWeightedSum ? weights_at(options.own_factor) : scale_of(type, op, options.factor, ranks);
  }
  /// Splits an all_reduce: its first `bytes`, and the rest.
  [[nodiscard]] CollectiveCall first(std::size_t bytes) const;
  [[nodiscard]] CollectiveCall from(std::size_t bytes) const;
};

/// The data that this rank sends to and receives from one peer. The entry of the rank itself is a local copy,
/// unless in == out.
struct Transfer {
  const std::byte* in = nullptr;
  std::size_t sent = 0;  ///< bytes
  std::byte* out = nullptr;
  std::size_t received = 0;
  DType type = DType::u8;  ///< of the received data
};
using Transfers = std::array<Transfer, kMaxDevices>;  ///< by rank
/// The transfers of a call that moves blocks, in a group of at most kMaxDevices.
[[nodiscard]] Transfers transfers_of(const CollectiveCall& call);

}  // namespace onehop
