// SPDX-License-Identifier: Apache-2.0
// Selects the algorithm of a call. All ranks of a group have the same tables and make the same selection.
#pragma once

#include <optional>
#include <vector>

#include "onehop/tuning.h"

#include "backend/algorithm.h"
#include "call/call.h"

namespace onehop {

/// The rows that apply to one group, with their algorithms looked up. Immutable.
class Selector {
 public:
  /// `own` precedes the library's table; its rows for other groups are dropped.
  Selector(const Tuning& own, Backend backend, int ranks, Links links);

  struct Selection {
    const AlgorithmTraits* algorithm = nullptr;
    AlgorithmChoice choice{};
  };

  /// The selection for a call of `bytes` bytes per block. With `kind`, only among algorithms of that kind and
  /// without the group's own table: that of the row for this size, or else the one for the longest messages.
  [[nodiscard]] const Selection& select(const CollectiveCall& call, std::size_t bytes,
                                        std::optional<Algorithm> kind) const;

 private:
  struct Row {
    Collective collective;
    TypeClass types;
    Buffers buffers;
    std::uint64_t up_to;
    Selection selection;  ///< algorithm == nullptr: the library's rows decide
  };
  void add(std::vector<Row>& rows, const TuningRow& row) const;
  [[nodiscard]] static bool applies(const Row& row, const CollectiveCall& call) {
    return row.collective == call.collective &&
           (row.types == TypeClass::any || type_class(call.type) == row.types) &&
           (row.buffers == Buffers::any || call.options.symmetric);
  }

  Backend backend_;
  std::vector<Row> own_;
  std::vector<Row> defaults_;
  std::vector<Selection> all_;  ///< those for this many ranks, for calls that no row matches
};

}  // namespace onehop
