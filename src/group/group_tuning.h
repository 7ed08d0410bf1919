// SPDX-License-Identifier: Apache-2.0
// The tuning table that the user of a group names: rank 0 reads the file, every rank uses it. The library's own
// table, default_tuning(), is not part of it.
#pragma once

#include <memory>
#include <string>

#include "onehop/group.h"
#include "onehop/tuning.h"

#include "base/deadline.h"
#include "group/mesh.h"

namespace onehop {

struct GroupTuning {
  std::string file;  ///< file that rank 0 read; empty: none
  Tuning table;      ///< no rows without a file
};

/// The same as unparsed text, as sent to the other ranks.
struct TuningText {
  std::string file;
  std::string json;  ///< empty without a file
};

/// For rank 0: reads the file that the options or the environment name. Without one both texts are empty.
/// Throws if the file is no valid table.
[[nodiscard]] TuningText choose_tuning(const JoinOptions& options);

/// Collective: returns rank 0's table on every rank, whatever the others pass.
[[nodiscard]] std::shared_ptr<const GroupTuning> share_tuning(IpcChannel::Mesh& mesh, Rank rank,
                                                              const TuningText& own,
                                                              const Deadline& deadline);

}  // namespace onehop
