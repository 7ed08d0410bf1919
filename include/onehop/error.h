// SPDX-License-Identifier: Apache-2.0
// The one exception type of onehop.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// The category of a failure, sufficient to decide what to do next. The numbers are part of the C API: append
/// only.
enum class ErrorCode : int {
  invalid_argument = 1,  ///< an argument is invalid; nothing was changed
  timeout = 2,           ///< a deadline passed; the message names the event and the awaited rank
  peer_lost = 3,         ///< a rank's process died or left; `origin()` names it
  aborted = 4,           ///< the group was aborted (by `origin()`); leave it and form a new one
  mismatch = 5,          ///< ranks made different collective calls; the message names the difference
  refused = 6,           ///< all ranks agreed that the group cannot be formed; the message gives the reason
  unsupported = 7,       ///< this machine, driver or build does not support it
  out_of_resources = 8,  ///< memory, descriptors, address space
  system = 9,            ///< another system call failed; the message holds its errno text
  protocol = 10,         ///< malformed data from a peer, file or server
  not_found = 11,        ///< a key, file or variable does not exist
  driver = 12,           ///< another call of the CUDA driver failed; the message holds its error
};

[[nodiscard]] ONEHOP_API std::string_view to_string(ErrorCode code);

/// Thrown by every throwing function of onehop. Nothing throws across C, thread or destructor boundaries.
class ONEHOP_API Error : public std::exception {
 public:
  Error(ErrorCode code, std::string_view message, Rank origin = {});
  ~Error() override;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  Error(Error&&) = default;
  Error& operator=(Error&&) = default;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// The rank on which the failure began, or a rank that is `none()` if only this caller is affected.
  [[nodiscard]] Rank origin() const noexcept { return origin_; }
  /// One line: what failed, with which values, on which rank, and what to try.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  Rank origin_;
  std::string message_;
};

}  // namespace onehop
