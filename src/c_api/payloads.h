// SPDX-License-Identifier: Apache-2.0
// Byte strings on their way to a C caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onehop/c/base.h"

struct onehop_payloads {
  std::vector<std::string> all;
};

namespace onehop::c_api {

/// A handle of what `make` returns. It is allocated before: what all ranks have must not be lost on one.
template <class Make>
void make_payloads(onehop_payloads_t*& out, Make&& make) {
  auto handle = std::make_unique<onehop_payloads>();
  handle->all = make();
  out = handle.release();
}

}  // namespace onehop::c_api
