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

#include "base/dtype_info.h"
#include "call/scale.h"
#include "call/traits.h"

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

  [[nodiscard]] const CollectiveTraits& traits() const { return inline_traits_of(collective); }
  [[nodiscard]] std::size_t element_bytes() const { return inline_size_of(type); }
  [[nodiscard]] std::size_t block_bytes() const { return count * element_bytes(); }
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
  [[nodiscard]] std::span<const std::byte> input() const {
    if (traits().in == Amount::counted_by_rank) [[unlikely]]
      return counted_input();
    if (!passes_in() || count == 0) return {};
    return {in_at(), blocks_in(traits().in) * block_bytes()};
  }
  [[nodiscard]] std::span<std::byte> output() const {
    if (traits().out == Amount::counted_by_rank) [[unlikely]]
      return counted_output();
    if (!gets_out() || count == 0) return {};
    return {out_at(), blocks_in(traits().out) * block_bytes()};
  }

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
  [[nodiscard]] std::span<const std::byte> block_to(int r) const {
    if (traits().in == Amount::counted_by_rank) [[unlikely]]
      return counted_block_to(r);
    if (!moves(rank, r) || count == 0) return {};
    return {in_at(in_offset(r)), block_bytes()};
  }
  [[nodiscard]] std::span<std::byte> block_from(int r) const {
    if (traits().out == Amount::counted_by_rank) [[unlikely]]
      return counted_block_from(r);
    if (!moves(r, rank) || count == 0) return {};
    return {out_at(out_offset(r)), block_bytes()};
  }

  /// For in-place calls: the offset of `in` relative to `out`, in blocks. nullopt: the collective has no
  /// in-place form.
  [[nodiscard]] std::optional<int> in_place_offset() const;
  [[nodiscard]] Scale scale() const {
    return op == kWeightedSum ? weights_at(options.own_factor) : scale_of(type, op, options.factor, ranks);
  }
  /// Splits an all_reduce: its first `bytes`, and the rest.
  [[nodiscard]] CollectiveCall first(std::size_t bytes) const;
  [[nodiscard]] CollectiveCall from(std::size_t bytes) const;

 private:
  [[nodiscard]] std::size_t blocks_in(Amount amount) const {
    if (amount == Amount::block_per_rank) return static_cast<std::size_t>(ranks);
    return amount == Amount::block ? 1 : 0;
  }
  // Of all_to_all_v.
  [[nodiscard]] std::span<const std::byte> counted_input() const;
  [[nodiscard]] std::span<std::byte> counted_output() const;
  [[nodiscard]] std::span<const std::byte> counted_block_to(int r) const;
  [[nodiscard]] std::span<std::byte> counted_block_from(int r) const;
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
