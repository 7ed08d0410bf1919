// SPDX-License-Identifier: Apache-2.0
// The text that ncclGetLastError returns for errors of this library.
#pragma once

#include <string_view>

#include "abi.h"

namespace onehop::nccl {

/// Keeps `text` and returns `result`. Logs it as a warning, as NCCL does.
Result fail(Result result, std::string_view text) noexcept;

/// Only keeps it: for a state that programs poll.
void remember(std::string_view text) noexcept;

/// The last error of the process, whichever thread it occurred on, as with NCCL; and after it `real`, if there are both.
/// "" if there is none. Valid until this thread's next call.
[[nodiscard]] const char* last_error(const char* real) noexcept;

}  // namespace onehop::nccl
