// SPDX-License-Identifier: Apache-2.0
// The collectives that can be measured: one description of each, and everything else goes by it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "onehop/collectives.h"
#include "onehop/group.h"
#include "onehop/types.h"

#include "bench/nccl.h"

namespace onehop::cli {

/// One rank's call. A block is `count` elements.
struct CollectiveCall {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< for those that reduce
  Rank root{0};                 ///< for those that have one
  int parts = 1;                ///< all-reduce: so many, made in one group of calls
};

/// What ranks put in, or what they get.
struct Side {
  bool block_per_rank = false;  ///< a block for each rank of the group, else one
  bool root_only = false;       ///< nobody else's counts

  [[nodiscard]] constexpr int blocks(int ranks) const { return block_per_rank ? ranks : 1; }
  [[nodiscard]] constexpr bool counts_on(Rank rank, Rank root) const { return !root_only || rank == root; }
};

/// What busbw is of algbw, as nccl-tests defines it: the bytes the busiest link carries per byte of the size.
struct BusFactor {
  const char* text;
  double (*of)(int ranks);
};

struct Collective {
  std::string_view name;  ///< "all-gather"
  Side in;
  Side out;
  bool reduces = false;         ///< combines the blocks of all ranks; else they are moved, bit by bit
  bool has_algorithms = false;  ///< one-shot and two-shot, which can be forced
  BusFactor bus_factor;
  Algorithm (*ours)(Group&, const CollectiveCall&, Stream, const CallOptions&);
  /// Queues NCCL's. Returns NCCL's result.
  int (*nccl)(const Nccl&, const NcclMember&, const CollectiveCall&, NcclStream);
  bool nccl_has_symmetric = false;  ///< NCCL has kernels for memory in symmetric windows
  bool ring = false;                ///< every rank gets what the rank before it puts in
  bool moves_data = true;           ///< a barrier does not: it has no sizes

  [[nodiscard]] constexpr bool rooted() const { return in.root_only || out.root_only; }
  /// A size is that of the larger side: so many blocks.
  [[nodiscard]] constexpr int blocks(int ranks) const {
    return in.block_per_rank || out.block_per_rank ? ranks : 1;
  }
  /// In place one side is the other, or the rank's own block of it. Two sides of blocks for others cannot be.
  [[nodiscard]] constexpr bool can_be_in_place() const {
    return moves_data && !ring && !(in.block_per_rank && out.block_per_rank);
  }
  /// Every rank's output is an input that the next call needs.
  [[nodiscard]] constexpr bool can_be_dependent() const {
    return moves_data && !ring && !rooted() && in.block_per_rank == out.block_per_rank;
  }
  /// All ranks get the same.
  [[nodiscard]] constexpr bool same_everywhere() const {
    return !ring && !in.block_per_rank && !out.root_only;
  }
};

/// Those that all ranks of a group make together over blocks, all-reduce first.
[[nodiscard]] std::span<const Collective> collectives();
/// These, and what else can be measured: send-recv and barrier.
[[nodiscard]] std::span<const Collective> benchmarks();
/// Null when there is none of that name. "all_gather" is "all-gather".
[[nodiscard]] const Collective* find_collective(std::string_view typed);

/// "broadcast, reduce, gather, scatter": of those that `belongs` accepts.
template <class Belongs>
[[nodiscard]] std::string names_of_collectives(const Belongs& belongs) {
  std::string names;
  for (const Collective& each : benchmarks()) {
    if (belongs(each)) names.append(names.empty() ? "" : ", ").append(each.name);
  }
  return names;
}

}  // namespace onehop::cli
