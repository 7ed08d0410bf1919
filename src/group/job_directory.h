// SPDX-License-Identifier: Apache-2.0
// A store for processes of one job that know only their job identity.
#pragma once

#include <memory>
#include <string>

#include "onehop/store.h"

namespace onehop {

/// A file store in `<runtime base>/onehop-<uid>/job-<hash>`; the hash covers `identity` and the boot id.
/// Identities repeat: torchrun's default port and run id do from run to run. So that leftovers of an earlier
/// run are never used, every process that has the store open holds a shared lock. The first process gets the
/// lock alone and empties the directory; the last one removes it. After a kill -9, the next process that
/// opens any job store of this user removes it. Error{timeout} when another process holds the lock for longer
/// than `timeout`.
[[nodiscard]] std::shared_ptr<Store> open_job_store(const std::string& identity, Duration timeout);

}  // namespace onehop
