// SPDX-License-Identifier: Apache-2.0
// The text that ncclGetLastError returns for errors of this library.
#pragma once

#include <string>

#include "abi.h"

namespace onehop::nccl {

/// Keeps `text` for this thread and returns `result`. Logs it as a warning, as NCCL does.
Result fail(Result result, std::string text) noexcept;

/// Only keeps it: for a state that programs poll.
void remember(std::string text) noexcept;

/// The last error of this thread; empty if there was none. Valid until the thread's next error.
[[nodiscard]] const std::string& last_error() noexcept;

}  // namespace onehop::nccl
