// SPDX-License-Identifier: Apache-2.0
// A store for the processes of one job that were told nothing but who they are.
#pragma once

#include <memory>
#include <string>

#include "onehop/store.h"

namespace onehop {

/// A file store in `<runtime base>/onehop-<uid>/job-<hash>`, the hash being that of `identity` and the boot
/// id. Identities repeat (torchrun's default port and run id do from run to run), so what an earlier run left
/// behind must not be taken for this one's: every process that has the store open holds a shared lock, and
/// the first to come, who gets the lock alone, empties the directory. The last to go removes it; after a kill
/// -9 the next one to open any job store of this user does. Error{timeout} when another process holds the
/// lock for longer than `timeout`.
[[nodiscard]] std::shared_ptr<Store> open_job_store(const std::string& identity, Duration timeout);

}  // namespace onehop
