// SPDX-License-Identifier: Apache-2.0
// Descriptions of the collectives that can be measured.
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
  ReduceOp op = ReduceOp::sum;  ///< of collectives that reduce
  Rank root{0};                 ///< of collectives with a root
  int parts = 1;                ///< all-reduce: number of smaller calls, made in one GroupCall
};

/// The input or the output of the ranks.
struct Side {
  bool block_per_rank = false;  ///< a block for each rank of the group, else one
  bool root_only = false;       ///< only the root has it

  [[nodiscard]] constexpr int blocks(int ranks) const { return block_per_rank ? ranks : 1; }
  [[nodiscard]] constexpr bool counts_on(Rank rank, Rank root) const { return !root_only || rank == root; }
};

/// busbw over algbw as nccl-tests defines it: the bytes on the busiest link per byte of the size.
struct BusFactor {
  const char* text;
  double (*of)(int ranks);
};

struct Collective {
  std::string_view name;  ///< "all-gather"
  Side in;
  Side out;
  bool reduces = false;         ///< combines the blocks of all ranks; else moves them unchanged
  bool has_algorithms = false;  ///< one-shot and two-shot, which --algorithm selects
  BusFactor bus_factor;
  Algorithm (*ours)(Group&, const CollectiveCall&, Stream, const CallOptions&);
  /// Queues NCCL's. Returns NCCL's result.
  int (*nccl)(const Nccl&, const NcclMember&, const CollectiveCall&, NcclStream);
  bool nccl_has_symmetric = false;  ///< NCCL has kernels for memory in symmetric windows
  bool ring = false;                ///< every rank gets the input of the rank before it
  bool moves_data = true;           ///< false for a barrier, which has no sizes

  [[nodiscard]] constexpr bool rooted() const { return in.root_only || out.root_only; }
  /// The blocks of the larger side, which a size counts.
  [[nodiscard]] constexpr int blocks(int ranks) const {
    return in.block_per_rank || out.block_per_rank ? ranks : 1;
  }
  /// In place, one side is the other, or the rank's own block of it. Impossible when both sides have a block per
  /// rank.
  [[nodiscard]] constexpr bool can_be_in_place() const {
    return moves_data && !ring && !(in.block_per_rank && out.block_per_rank);
  }
  /// The output of every rank can be the input of the next call.
  [[nodiscard]] constexpr bool can_be_dependent() const {
    return moves_data && !ring && !rooted() && in.block_per_rank == out.block_per_rank;
  }
  /// All ranks get the same result.
  [[nodiscard]] constexpr bool same_everywhere() const {
    return !ring && !in.block_per_rank && !out.root_only;
  }
};

/// The collectives over blocks, all-reduce first.
[[nodiscard]] std::span<const Collective> collectives();
/// The collectives, send-recv and barrier.
[[nodiscard]] std::span<const Collective> benchmarks();
/// Null when there is none of that name. "all_gather" is "all-gather".
[[nodiscard]] const Collective* find_collective(std::string_view typed);

/// The names of those that `belongs` accepts: "broadcast, reduce, gather, scatter".
template <class Belongs>
[[nodiscard]] std::string names_of_collectives(const Belongs& belongs) {
  std::string names;
  for (const Collective& each : benchmarks()) {
    if (belongs(each)) names.append(names.empty() ? "" : ", ").append(each.name);
  }
  return names;
}

}  // namespace onehop::cli
