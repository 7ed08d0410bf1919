// SPDX-License-Identifier: Apache-2.0
// Errors of the C API as c10d's exception, which Python sees as torch.distributed.DistBackendError.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Names ranks in messages. The library counts ranks within its group; users know the ranks of the job.
struct Membership {
  std::string group;                  ///< c10d's name of the process group
  std::vector<int64_t> global_ranks;  ///< by rank of this group; empty: the same numbers

  int64_t global(int rank) const {
    const auto index = static_cast<size_t>(rank);
    return index < global_ranks.size() ? global_ranks[index] : rank;
  }

  std::string describe(int rank) const {
    if (rank < 0) return "";
    return global(rank) == rank ? c10::str(", rank ", rank)
                                : c10::str(", rank ", rank, ", global rank ", global(rank));
  }
};

/// Throws this thread's last error of the library. `what` is what the caller did: "all_reduce".
[[noreturn]] inline void raise(onehop_status_t status, const char* what, const Membership& members,
                               const char* advice = "") {
  C10_THROW_ERROR(DistBackendError, c10::str("onehop: ", what, " in process group '", members.group,
                                             "': ", onehop_last_error(), " [", onehop_status_name(status),
                                             members.describe(onehop_last_error_rank()), "]", advice));
}

inline void check(onehop_status_t status, const char* what, const Membership& members) {
  if (C10_UNLIKELY(status != ONEHOP_OK)) raise(status, what, members);
}

}  // namespace onehop_torch
