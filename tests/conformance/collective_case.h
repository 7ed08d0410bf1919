// SPDX-License-Identifier: Apache-2.0
// One collective call of the conformance suite: the layout of its data, the forced algorithm, and how it is
// run and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/onehop.h"

#include "conformance/backend.h"
#include "conformance/reference.h"

namespace onehop::testing {

/// The collectives that the suite runs are numbered from 0: all that move data among all ranks.
inline constexpr int kCollectivesOfData = static_cast<int>(Collective::send);

/// Where the ranks keep a call's data.
enum class Placement {
  ordinary,
  symmetric,         ///< input and output in symmetric buffers, at the same offset on every rank
  symmetric_input,   ///< the input alone
  symmetric_output,  ///< the output alone
  sub_buffers,       ///< both in sub-buffers of one symmetric buffer
  even_ranks_only,   ///< symmetric on the even ranks, ordinary on the others
  displaced,         ///< symmetric, but at another offset on every rank
};
inline constexpr int kPlacementCount = 7;

struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double factor = 1;
  bool weighted = false;
  std::size_t count = 0;
  Rank root{0};
  std::optional<Algorithm> algorithm;
  Placement placement = Placement::ordinary;
  bool in_place = false;
  std::size_t shift = 0;  ///< elements past an address that is a multiple of 64
  std::size_t start = 0;  ///< start of the data in the streams
  bool symmetric =
      false;  ///< CallOptions::symmetric: every rank passes its output, also one that gets nothing

  [[nodiscard]] Reduction how() const { return {op, factor, weighted}; }
  void set(const Reduction& how) { op = how.op, factor = how.factor, weighted = how.weighted; }
  /// The most memory that the larger of input and output takes on a rank of `ranks`.
  [[nodiscard]] std::size_t max_bytes(int ranks) const;
  [[nodiscard]] std::string describe() const;
};

/// factor_of_rank() for the calls of a rank.
class OwnFactor {
 public:
  OwnFactor(RankMemory& memory, Rank rank);
  ~OwnFactor() { memory_.release(data_); }
  OwnFactor(const OwnFactor&) = delete;
  OwnFactor& operator=(const OwnFactor&) = delete;

  /// Its options for calls of this reduction.
  [[nodiscard]] CallOptions options(DType type, const Reduction& how, bool on_host) const;

 private:
  RankMemory& memory_;
  std::byte* data_;
  Bytes elements_;  ///< one per type, 8 bytes apart; the same in data_
};

/// A rank's memory, used for one case after another.
class Workspace {
 public:
  /// Collective. The memory suffices for cases of up to `max_bytes`.
  Workspace(const Backend& backend, Group& group, std::size_t max_bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Makes the call and checks every byte that it may and may not have written. Returns the algorithm it
  /// used. Throws std::runtime_error that describes the case when something is wrong.
  Algorithm run(const CollectiveCase& call, const Streams& streams);

 private:
  /// The first byte for the call's data, at least kGuard bytes away from other data.
  [[nodiscard]] std::byte* address(const CollectiveCase& call, bool output) const;
  Algorithm call(const CollectiveCase& call, const std::byte* in, std::byte* out, const Blocks& in_blocks,
                 const Blocks& out_blocks);
  void put(std::byte* at, const Bytes& content);
  void expect(std::byte* at, const Bytes& content, const CollectiveCase& call, const char* what);

  Group& group_;
  std::unique_ptr<RankMemory> memory_;
  OwnFactor factor_;
  std::size_t max_bytes_;
  std::byte* ordinary_[2] = {};
  SymmetricBuffer symmetric_[2];
  Bytes image_;
};

}  // namespace onehop::testing
