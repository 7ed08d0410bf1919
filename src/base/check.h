// SPDX-License-Identifier: Apache-2.0
// Throwing errors with formatted one-line messages.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "onehop/error.h"

namespace onehop {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws an Error whose origin is a known rank.
template <class... Args>
[[noreturn]] void fail_from(Rank origin, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...), origin);
}

/// Throws Error{invalid_argument} unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

/// Escapes control characters and bytes that are not UTF-8 as "\x0a". Messages and reports quote text of callers, peers and
/// files; they go to terminals, web pages and JSON.
[[nodiscard]] std::string printable(std::string_view text);

/// "Permission denied (EACCES)". Thread-safe.
[[nodiscard]] std::string errno_text(int err);
/// Like errno_text. For a lack of file descriptors it also names the limit to raise.
[[nodiscard]] std::string explain_errno(int err);

/// Throws the Error of a failed system call, with the message `what: <explain_errno>`. ENOMEM, ENOSPC,
/// EMFILE, ENFILE, ETOOMANYREFS and EAGAIN become out_of_resources, all others `system`.
[[noreturn]] void fail_errno(int err, const std::string& what);

}  // namespace onehop
