// SPDX-License-Identifier: Apache-2.0
// The tuning table of a group: rank 0 decides, every rank follows.
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
  std::string file;  ///< that rank 0 read; empty: none
  Tuning table;
};

/// The same before it is understood, as it travels.
struct TuningText {
  std::string file;
  std::string json;  ///< empty: no table
};

/// The table measured on GPUs of this name, as JSON; empty when there is none.
[[nodiscard]] std::string_view shipped_tuning(std::string_view device);

/// For rank 0: the file that options or environment name, which must be a table, or what is shipped.
[[nodiscard]] TuningText choose_tuning(const JoinOptions& options);

/// Collective: rank 0's, whatever the others pass.
[[nodiscard]] std::shared_ptr<const GroupTuning> share_tuning(IpcChannel::Mesh& mesh, Rank rank,
                                                              const TuningText& own,
                                                              const Deadline& deadline);

}  // namespace onehop
