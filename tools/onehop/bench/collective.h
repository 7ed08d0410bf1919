// SPDX-License-Identifier: Apache-2.0
// Descriptions of the collectives that can be measured.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "onehop/call.h"
#include "onehop/group.h"
#include "onehop/types.h"

#include "bench/nccl.h"

namespace onehop::cli {

/// One rank's call. A send stands for a send to the next rank and a receive from the one before.
struct BenchCall : Call {
  int parts = 1;  ///< all-reduce: number of smaller calls, made in one GroupCall

  [[nodiscard]] const std::byte* in_at(std::size_t offset) const {
    return static_cast<const std::byte*>(in) + offset;
  }
  [[nodiscard]] std::byte* out_at(std::size_t offset) const { return static_cast<std::byte*>(out) + offset; }
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

/// A collective, and what is measured beside it. Send is "send-recv": every rank gets the input of the rank before it.
struct Benchmark {
  /// Queues NCCL's call. Returns NCCL's result.
  using NcclCall = int (*)(const Nccl&, const NcclMember&, const BenchCall&, NcclStream);
  Benchmark(Collective which, BusFactor factor, NcclCall queue, bool has_symmetric = false);

  Collective collective;
  BusFactor bus_factor;
  NcclCall nccl;
  bool nccl_has_symmetric;  ///< NCCL has kernels for memory in symmetric windows
  std::string_view name;    ///< "all-gather"
  Side in;
  Side out;
  bool reduces;         ///< combines the blocks of all ranks; else moves them unchanged
  bool has_algorithms;  ///< one-shot and two-shot, which --algorithm selects
  bool ring;            ///< every rank gets the input of the rank before it
  bool moves_data;      ///< false for a barrier, which has no sizes

  [[nodiscard]] bool rooted() const { return in.root_only || out.root_only; }
  /// The blocks of the larger side, which a size counts.
  [[nodiscard]] int blocks(int ranks) const { return in.block_per_rank || out.block_per_rank ? ranks : 1; }
  /// In place, one side is the other, or the rank's own block of it. Impossible when both sides have a block per
  /// rank.
  [[nodiscard]] bool can_be_in_place() const {
    return moves_data && !ring && !(in.block_per_rank && out.block_per_rank);
  }
  /// The output of every rank can be the input of the next call.
  [[nodiscard]] bool can_be_dependent() const {
    return moves_data && !ring && !rooted() && in.block_per_rank == out.block_per_rank;
  }
  /// All ranks get the same result.
  [[nodiscard]] bool same_everywhere() const { return !ring && !in.block_per_rank && !out.root_only; }
};

/// The collectives over blocks, all-reduce first.
[[nodiscard]] std::span<const Benchmark> collectives();
/// The collectives, send-recv and barrier.
[[nodiscard]] std::span<const Benchmark> benchmarks();
/// Null when there is none of that name. "all_gather" is "all-gather".
[[nodiscard]] const Benchmark* find_collective(std::string_view typed);

/// Makes the library's call, whatever its collective. Returns the algorithm that was used.
Algorithm call_onehop(Group& group, const BenchCall& call);

/// The names of those that `belongs` accepts: "broadcast, reduce, gather, scatter".
template <class Belongs>
[[nodiscard]] std::string names_of_collectives(const Belongs& belongs) {
  std::string names;
  for (const Benchmark& each : benchmarks()) {
    if (belongs(each)) names.append(names.empty() ? "" : ", ").append(each.name);
  }
  return names;
}

}  // namespace onehop::cli
