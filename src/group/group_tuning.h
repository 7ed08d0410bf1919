// SPDX-License-Identifier: Apache-2.0
// The tuning table of a group: rank 0 chooses it, every rank uses it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "onehop/group.h"
#include "onehop/tuning.h"

#include "base/deadline.h"
#include "group/mesh.h"

namespace onehop {

struct GroupTuning {
  std::string file;  ///< file that rank 0 read; empty: none
  Tuning table;
};

/// The same as unparsed text, as sent to the other ranks.
struct TuningText {
  std::string file;
  std::string json;  ///< empty: no table
};

/// The table measured on GPUs of this model, as JSON; empty if there is none.
[[nodiscard]] std::string_view shipped_tuning(std::string_view device);

/// For rank 0: reads the file that the options or the environment name, or else returns the shipped table.
/// Throws if the file is no valid table.
[[nodiscard]] TuningText choose_tuning(const JoinOptions& options);

/// Collective: returns rank 0's table on every rank, whatever the others pass.
[[nodiscard]] std::shared_ptr<const GroupTuning> share_tuning(IpcChannel::Mesh& mesh, Rank rank,
                                                              const TuningText& own,
                                                              const Deadline& deadline);

}  // namespace onehop
