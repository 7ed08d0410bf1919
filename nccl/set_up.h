// SPDX-License-Identifier: Apache-2.0
// NCCL's functions that make, describe and end communicators.
#pragma once

#include "abi.h"

namespace onehop::nccl {

Result get_unique_id(UniqueId* id) noexcept;
Result comm_init_rank(Comm* comm, int size, UniqueId id, int rank) noexcept;
/// The options of `config` tune NCCL. Of all of them this library would have to heed `blocking`: it returns when the ranks
/// have joined, whatever that says.
Result comm_init_rank_config(Comm* comm, int size, UniqueId id, int rank, const Config* config) noexcept;
/// The ranks meet where the first of the `count` ids says.
Result comm_init_rank_scalable(Comm* comm, int size, int rank, int count, const UniqueId* ids,
                               const Config* config) noexcept;
Result comm_init_all(Comm* comms, int size, const int* devices) noexcept;
Result comm_finalize(Comm comm) noexcept;
Result comm_destroy(Comm comm) noexcept;
Result comm_abort(Comm comm) noexcept;
/// Ends the calls of the communicator, which remains until it is destroyed.
Result comm_revoke(Comm comm, int flags) noexcept;
/// As for comm_init_rank_config, it returns when the ranks have joined.
Result comm_split(Comm comm, int color, int key, Comm* part, const Config* config) noexcept;
/// As for comm_init_rank_config, it returns when the ranks that remain have joined. It does not need the others.
Result comm_shrink(Comm comm, const int* excluded, int count, Comm* rest, const Config* config,
                   int flags) noexcept;
Result comm_get_async_error(Comm comm, Result* async_error) noexcept;
Result comm_count(Comm comm, int* count) noexcept;
Result comm_cuda_device(Comm comm, int* device) noexcept;
Result comm_user_rank(Comm comm, int* rank) noexcept;

}  // namespace onehop::nccl
