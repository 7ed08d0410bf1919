// SPDX-License-Identifier: Apache-2.0
// Ends waits of a thread on request: for programs that must react to signals, such as language runtimes.
#pragma once

#include <functional>

#include "onehop/export.h"

namespace onehop {

/// Sets a function that this thread calls about every 20 ms while one of its calls waits: for other ranks, for
/// another thread's call on the same group, for a stream (`synchronize`), or for a store, that is for a key, for
/// a lock that another process holds, and for a server that does not answer. If it returns true, the call throws
/// Error{aborted}. An empty function removes the check.
///
/// A collective then fails on all ranks, as after Group::abort, because this rank has not finished its part.
/// Joining fails on this rank, which first tells the others; a store that does not answer delays that by at most
/// 50 ms. `synchronize` and `wait_signal` consume nothing and may be repeated. An interrupted change of a store may
/// have been made or not.
///
/// Applies to the calling thread only. The function may call `abort` and `check` of any group and use stores,
/// but nothing that waits for ranks of the same group. It must not throw. It cannot end a wait inside the driver
/// or the file system, or inside a function of callback_store. Leaving a group of GPUs, diagnose_gpus and
/// check_peers do not call it.
ONEHOP_API void set_interrupt_check(std::function<bool()> interrupted);

}  // namespace onehop
