// SPDX-License-Identifier: Apache-2.0
// The errors that calls throw, as tests compare them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "onehop/error.h"

namespace onehop::testing {

/// The error that `call` throws. The test fails unless it is an Error of one line.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode{}, ""};
}

/// The message of the error that `call` throws, which must have this code.
inline std::string message_of(const std::function<void()>& call, ErrorCode expected) {
  const Error error = error_of(call);
  EXPECT_EQ(to_string(error.code()), to_string(expected)) << error.what();
  return error.message();
}

}  // namespace onehop::testing
