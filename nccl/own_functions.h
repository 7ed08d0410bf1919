// SPDX-License-Identifier: Apache-2.0
// NCCL's functions that this library implements.
#pragma once

#include <string_view>

#include "library.h"

namespace onehop::nccl {

/// The function of that name that programs get in this mode; nullptr if this library has none, so that the real one is
/// wanted.
[[nodiscard]] void* own_function(std::string_view name, Mode mode);

}  // namespace onehop::nccl
