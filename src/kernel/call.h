// SPDX-License-Identifier: Apache-2.0
// A collective as its caller asked for it. Every layer below the public functions passes on this one form.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "onehop/types.h"

#include "kernel/collective.h"
#include "kernel/scale.h"

namespace onehop {

/// This rank's arguments. What the members derive from them holds only for arguments without an error
/// (find_argument_error).
struct CollectiveCall {
  Collective collective = Collective::barrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  ///< elements of a block
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< of collectives that reduce
  Rank root;                    ///< of collectives that have one; of send and recv: the peer
  Blocks in_blocks;             ///< of all_to_all_v
  Blocks out_blocks;
  Stream stream;
  // The caller's options, see CallOptions.
  std::optional<Algorithm> algorithm;
  std::optional<Duration> timeout;
  bool symmetric = false;
  double factor = 1;
  // The group.
  int rank = 0;
  int ranks = 1;

  [[nodiscard]] const CollectiveTraits& traits() const { return traits_of(collective); }
  [[nodiscard]] std::size_t element_bytes() const { return size_of(type); }
  [[nodiscard]] std::size_t block_bytes() const { return count * size_of(type); }
  /// Whether this rank passes input, and gets output.
  [[nodiscard]] bool passes_in() const {
    return traits().in != Amount::nothing && (!traits().only_root_passes_in || rank == root.value);
  }
  [[nodiscard]] bool gets_out() const {
    return traits().out != Amount::nothing && (!traits().only_root_gets_out || rank == root.value);
  }
  /// All that this rank reads and writes: for all_to_all_v from the first byte of any block to the last.
  [[nodiscard]] std::span<const std::byte> input() const;
  [[nodiscard]] std::span<std::byte> output() const;

  /// Of collectives that move blocks: whether rank `from` has one for rank `to`.
  [[nodiscard]] bool moves(int from, int to) const {
    return (!traits().only_root_passes_in || from == root.value) &&
           (!traits().only_root_gets_out || to == root.value);
  }
  /// Where a sender's block for rank `to` lies in its input, and a receiver's from rank `from` in its output,
  /// on whichever rank. Not of all_to_all_v.
  [[nodiscard]] std::size_t in_offset(int to) const {
    return traits().in == Amount::block_per_rank ? static_cast<std::size_t>(to) * block_bytes() : 0;
  }
  [[nodiscard]] std::size_t out_offset(int from) const {
    return traits().out == Amount::block_per_rank ? static_cast<std::size_t>(from) * block_bytes() : 0;
  }
  /// What this rank has for rank r and gets from it. Empty: nothing.
  [[nodiscard]] std::span<const std::byte> block_to(int r) const;
  [[nodiscard]] std::span<std::byte> block_from(int r) const;

  /// In place: the one position of `in` relative to `out`, in blocks; nullopt: the collective has none.
  [[nodiscard]] std::optional<int> in_place_offset() const;
  [[nodiscard]] Scale scale() const { return scale_of(type, op, factor, ranks); }
  /// Of an all_reduce: its first `bytes`, and what follows them.
  [[nodiscard]] CollectiveCall first(std::size_t bytes) const;
  [[nodiscard]] CollectiveCall from(std::size_t bytes) const;
};

/// Data that this rank moves to and from one peer (its own: keeps, unless in == out).
struct Transfer {
  const std::byte* in = nullptr;
  std::size_t sent = 0;  ///< bytes
  std::byte* out = nullptr;
  std::size_t received = 0;
};
using Transfers = std::array<Transfer, kMaxDevices>;  ///< by rank
/// Of a call that moves blocks, in a group of at most kMaxDevices.
[[nodiscard]] Transfers transfers_of(const CollectiveCall& call);

}  // namespace onehop
