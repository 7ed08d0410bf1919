// SPDX-License-Identifier: Apache-2.0
// Byte strings returned to a C caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onehop/c/base.h"

struct onehop_payloads {
  std::vector<std::string> all;
};

namespace onehop::c_api {

/// Creates a handle for the result of `make`. The handle is allocated first, so that one rank cannot lose a
/// result that all others have.
template <class Make>
void make_payloads(onehop_payloads_t*& out, Make&& make) {
  auto handle = std::make_unique<onehop_payloads>();
  handle->all = make();
  out = handle.release();
}

}  // namespace onehop::c_api
