// SPDX-License-Identifier: Apache-2.0
// Where there is an NCCL: every communicator is NCCL's, and those of one machine have a group of onehop beside them, which
// carries their calls. These functions make and end both.
#pragma once

#include "abi.h"

namespace onehop::nccl::accelerate {

Result get_unique_id(UniqueId* id) noexcept;
Result comm_init_rank(Comm* comm, int size, UniqueId id, int rank) noexcept;
Result comm_init_rank_config(Comm* comm, int size, UniqueId id, int rank, const Config* config) noexcept;
Result comm_init_rank_scalable(Comm* comm, int size, int rank, int count, const UniqueId* ids,
                               const Config* config) noexcept;
Result comm_init_all(Comm* comms, int size, const int* devices) noexcept;
Result comm_destroy(Comm comm) noexcept;
Result comm_abort(Comm comm) noexcept;
Result comm_revoke(Comm comm, int flags) noexcept;
Result comm_shrink(Comm comm, int* excluded, int count, Comm* rest, const Config* config, int flags) noexcept;
Result comm_split(Comm comm, int color, int key, Comm* part, const Config* config) noexcept;
Result comm_get_async_error(Comm comm, Result* async_error) noexcept;
Result group_start() noexcept;
Result group_end() noexcept;
/// Ends the group and makes none of its calls. `info` is NCCL's.
Result group_simulate_end(void* info) noexcept;

}  // namespace onehop::nccl::accelerate
