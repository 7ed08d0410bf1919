// SPDX-License-Identifier: Apache-2.0
// A call of a collective as one value. collectives.h has a function for each collective. Programs that treat all
// collectives in one way (bindings, benchmarks, layers that queue or record calls) fill in a Call instead.
//
//   onehop::run(group, {.collective = onehop::Collective::all_gather, .in = in, .out = out, .count = 1000});
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

class Group;

struct CallOptions {
  /// The algorithm to use. Error{invalid_argument} if it cannot execute the call. Default: the group
  /// selects one.
  std::optional<Algorithm> algorithm{};
  /// Default: the group's timeout. On GPUs it bounds each wait of the call's kernels, from when that wait
  /// begins.
  std::optional<Duration> timeout{};
  /// Declares that `out` is symmetric: on every rank it lies at the same offset of the same SymmetricBuffer
  /// of this group. All ranks of the call must set it and pass `out`, even ranks that receive nothing, and an
  /// all_reduce must be in place on all ranks or on none.
  ///
  /// On GPUs, copy engines then write long blocks directly into the peers' outputs, which is faster than
  /// kernels. This applies to all_gather, all_to_all, gather and scatter, to broadcast between two ranks, and
  /// to all_reduce out of place. Other calls ignore the option. If `out` lies in no such buffer, or at
  /// different offsets on different ranks, the group fails and the buffer's contents are undefined.
  bool symmetric = false;
  /// The factor of ReduceOp::premul_sum, the same on all ranks; all other calls require 1. The sum over ranks
  /// is multiplied by it before the only rounding; the factor itself is rounded to the accumulation type. For
  /// integer types the element type must represent the factor exactly, and the product wraps. Otherwise the
  /// call throws Error{invalid_argument}.
  double factor = 1.0;
  /// Of ReduceOp::premul_sum: the address of this rank's own factor, one element of the call's type. Each rank's input is
  /// then multiplied by that rank's factor and rounded to the type before it is added; integers wrap. All ranks of the
  /// call must pass one, and `factor` must be 1. Host ranks read it at once. GPU ranks read it when the call runs, from
  /// memory of their GPU: the call, or each replay of its graph, uses what lies there by then.
  const void* own_factor = nullptr;
  /// GPU ranks: `own_factor` is in host memory instead, and read at once.
  bool own_factor_on_host = false;
};

/// One rank's call. Fields that a collective does not use are ignored.
struct Call {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  ///< elements per block
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< of collectives that reduce
  Rank root{};                  ///< of collectives that have one; of send and recv: the peer
  Stream stream{};
  CallOptions options{};
  Blocks in_blocks{};  ///< of all_to_all_v, in place of `count`
  Blocks out_blocks{};
};

/// Makes a call, as the function with the collective's name does (collectives.h; for a barrier Group::barrier). Returns the
/// algorithm that was used; Algorithm::none for a barrier and for a call that is queued in a GroupCall.
ONEHOP_API Algorithm run(Group& group, const Call& call);

/// Refuses a call that the other ranks make, for an error that this rank's caller has found by itself. All ranks receive
/// `reason`, whose origin is this rank. After a collective the group stays usable if the code is invalid_argument or
/// out_of_resources; a refused send or recv fails the group. In a GroupCall the scope throws, otherwise this call.
ONEHOP_API void refuse(Group& group, Collective collective, const Error& reason);

/// How much input a rank passes to a collective, or output it receives, in blocks of Call::count elements.
enum class Amount : std::uint8_t {
  nothing,
  block,            ///< one block
  block_per_rank,   ///< one block for every rank of the group
  counted_by_rank,  ///< one block for every rank, each with its own count (all_to_all_v)
};

/// What distinguishes a collective from the others.
struct CollectiveTraits {
  const char* name;  ///< of its function: "all_reduce"
  const char* text;  ///< its name in commands and tuning tables: "all-reduce"
  Amount in;
  Amount out;
  bool only_root_passes_in = false;
  bool only_root_gets_out = false;
  bool reduces = false;
  bool has_two_shot = false;  ///< the caller may choose the algorithm

  /// Whether callers name a root. The peer of a send or recv does not count as one.
  [[nodiscard]] constexpr bool has_root() const { return only_root_passes_in || only_root_gets_out; }
  /// Whether it only moves blocks of one size.
  [[nodiscard]] constexpr bool moves_blocks() const {
    const auto has_blocks = [](Amount amount) {
      return amount == Amount::block || amount == Amount::block_per_rank;
    };
    return !reduces && has_blocks(in) && has_blocks(out);
  }
};

/// Accepts any number, since numbers come from peers. The name for one that is out of range is "an unknown call".
[[nodiscard]] ONEHOP_API const CollectiveTraits& traits_of(Collective collective);

}  // namespace onehop
