// SPDX-License-Identifier: Apache-2.0
#include "last_error.h"

#include <utility>

#include "base/log.h"

namespace onehop::nccl {
namespace {

thread_local std::string t_last_error;

}  // namespace

Result fail(Result result, std::string text) noexcept {
  t_last_error = std::move(text);
  try {
    log::warn("{}", t_last_error);
  } catch (...) {
    // The caller still gets the result and the text.
  }
  return result;
}

void remember(std::string text) noexcept {
  t_last_error = std::move(text);
}

const std::string& last_error() noexcept {
  return t_last_error;
}

}  // namespace onehop::nccl
