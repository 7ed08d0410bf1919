// SPDX-License-Identifier: Apache-2.0
// What `onehop tune --show` and `--explain` print: the tuning table that a group uses, and why a call uses one
// of its rows. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onehop/tuning.h"

namespace onehop::cli {

/// The groups that a table is for.
struct GroupKind {
  Backend backend = Backend::host;
  int ranks = 0;
  Links links = Links::nvlink;  ///< of GPUs
};
/// "4 GPUs with NVLink", "2 host ranks".
[[nodiscard]] std::string describe(const GroupKind& kind);

/// The rows that a group uses: those of a file, then the library's own.
struct GroupTable {
  GroupKind kind;
  std::string file;  ///< empty: none
  std::string device;
  std::vector<TuningRow> file_rows;
  std::vector<TuningRow> own_rows;
  std::size_t other_rows = 0;  ///< rows of the file for other groups
};

/// `collectives`: those whose rows are kept; empty: all. Leaves out rows of the library that no call reaches
/// because rows of the file match before.
[[nodiscard]] GroupTable group_table(const GroupKind& kind, const std::string& file, const Tuning& file_table,
                                     const Tuning& own, const std::vector<onehop::Collective>& collectives);

/// An aligned table with a line per row.
[[nodiscard]] std::string to_text(const GroupTable& table);

/// The same rows as a table that groups can use. Where a row of the file leaves calls to the library, the rows
/// of the library for the same calls are left out, because a table has no rows that are never reached.
[[nodiscard]] Tuning to_tuning(const GroupTable& table);

/// The row that a call uses, and why the rows of this collective before it do not match. `query` has backend
/// and ranks of the table.
[[nodiscard]] std::string explain(const GroupTable& table, const TuningQuery& query);

}  // namespace onehop::cli
