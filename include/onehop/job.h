// SPDX-License-Identifier: Apache-2.0
// The job a launcher started this process in.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "onehop/export.h"
#include "onehop/store.h"
#include "onehop/types.h"

namespace onehop {

struct JobInfo {
  std::string launcher;  ///< whose variables were found: "onehop", "torchrun", "Open MPI", "Slurm", or
                         ///< "Hydra (MPICH, Intel MPI)"
  Rank rank;
  int size = 0;
  Rank local_rank;  ///< usually the GPU to use
};

/// What the environment says, without joining anything; nullopt when no launcher's variables are set.
/// Error{invalid_argument} names a variable that makes no sense.
[[nodiscard]] ONEHOP_API std::optional<JobInfo> job_from_env();

/// The store `Group::from_env` meets in, for joining further groups: after a failure, with the ranks that are
/// left, or under other names. Error{not_found} when no launcher's variables are set; Error{timeout} when the
/// store cannot be opened in time.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> store_from_env(Duration timeout = kDefaultTimeout);

}  // namespace onehop
