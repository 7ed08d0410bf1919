// SPDX-License-Identifier: Apache-2.0
// The job in which a launcher started this process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "onehop/export.h"
#include "onehop/store.h"
#include "onehop/types.h"

namespace onehop {

struct JobInfo {
  /// The launcher whose variables were found: "onehop", "torchrun", "Open MPI", "Slurm", or
  /// "Hydra (MPICH, Intel MPI)".
  std::string launcher;
  Rank rank;
  int size = 0;
  Rank local_rank;  ///< rank among those on this machine; usually the GPU to use
};

/// Reads the launcher's environment variables without joining a group. Returns nullopt if no launcher's
/// variables are set. Throws Error{invalid_argument}, which names the variable, if a value is invalid.
[[nodiscard]] ONEHOP_API std::optional<JobInfo> job_from_env();

/// Opens the store through which `Group::from_env` joins, for forming further groups: after a failure, with
/// the remaining ranks, or under other names. Throws Error{not_found} if no launcher's variables are set, and
/// Error{timeout} if the store cannot be opened in time.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> store_from_env(Duration timeout = kDefaultTimeout);

}  // namespace onehop
