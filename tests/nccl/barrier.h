// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>
#include <thread>

#include "onehop/store.h"

namespace onehop::nccl {

/// Waits until `count` ranks have come to the place of that name.
inline void barrier(Store& store, std::string_view name, int count) {
  store.add(name, 1);
  while (store.add(name, 0) < count) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

}  // namespace onehop::nccl
