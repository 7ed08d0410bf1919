// The job a launcher started this process in.
#pragma once

#include <optional>
#include <string>

#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

struct JobInfo {
  std::string launcher;  ///< whose variables were found: "onehop", "torchrun", "Open MPI", "Slurm"
  Rank rank;
  int size = 0;
  Rank local_rank;  ///< usually the GPU to use
};

/// What the environment says, without joining anything; nullopt when no launcher's variables are set.
/// Error{invalid_argument} names a variable that makes no sense.
[[nodiscard]] ONEHOP_API std::optional<JobInfo> job_from_env();

}  // namespace onehop
