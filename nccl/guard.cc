// SPDX-License-Identifier: Apache-2.0
#include "guard.h"

#include <fmt/core.h>

#include <string>

namespace onehop::nccl {

Result result_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return Result::invalid_argument;
    case ErrorCode::timeout:  // ncclTimeout is younger than most programs' list of results
    case ErrorCode::peer_lost:
    case ErrorCode::aborted:
      return Result::remote_error;
    case ErrorCode::mismatch:
    case ErrorCode::refused:
    case ErrorCode::unsupported:
      return Result::invalid_usage;
    case ErrorCode::out_of_resources:
    case ErrorCode::system:
      return Result::system_error;
    case ErrorCode::driver:
      return Result::unhandled_cuda_error;
    case ErrorCode::protocol:
    case ErrorCode::not_found:
      break;
  }
  return Result::internal_error;
}

Result fail_with_current_exception(std::string_view function) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return fail(result_of(error.code()), fmt::format("{}: {}", function, error.message()));
  } catch (const std::exception& error) {
    return fail(Result::system_error, fmt::format("{}: {}", function, error.what()));
  }
}

}  // namespace onehop::nccl
