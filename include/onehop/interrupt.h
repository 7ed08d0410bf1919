// SPDX-License-Identifier: Apache-2.0
// Ends waits of a thread on request: for programs that must react to signals, such as language runtimes.
#pragma once

#include <functional>

#include "onehop/export.h"

namespace onehop {

/// Sets a function that this thread calls about every 20 ms while one of its calls waits for other ranks or
/// for a stream. If it returns true, the call throws Error{aborted}. A collective then fails on all ranks, as
/// after Group::abort, because this rank has not finished its part. Joining fails on this rank. `synchronize`
/// and `wait_signal` consume nothing and may be repeated. An empty function removes the check.
///
/// Applies to the calling thread only. The function may call `abort` and `check` of any group, but nothing
/// that waits for ranks of the same group. It must not throw. It cannot end a wait inside the driver, or a
/// single operation of a store, of which joining makes many short ones.
ONEHOP_API void set_interrupt_check(std::function<bool()> interrupted);

}  // namespace onehop
