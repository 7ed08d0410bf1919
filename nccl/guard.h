// SPDX-License-Identifier: Apache-2.0
// The boundary between C++ and NCCL's interface: no exception passes, every error has a result and a text.
#pragma once

#include <exception>
#include <string_view>

#include "onehop/error.h"

#include "abi.h"
#include "last_error.h"

namespace onehop::nccl {

[[nodiscard]] Result result_of(ErrorCode code) noexcept;
/// The result and the text of the exception that is being handled.
Result fail_with_current_exception(std::string_view function) noexcept;

/// Runs `body`, which returns a Result or throws.
template <class Body>
Result guarded(std::string_view function, const Body& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fail_with_current_exception(function);
  }
}

}  // namespace onehop::nccl
