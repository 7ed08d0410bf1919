// SPDX-License-Identifier: Apache-2.0
// The contents of the opaque handles of c_api.h.
#pragma once

#include <memory>

#include "onehop/group.h"
#include "onehop/pool.h"
#include "onehop/store.h"

struct onehop_store {
  std::shared_ptr<onehop::Store> store;
};

struct onehop_group {
  onehop::Group group;
};

struct onehop_buffer {
  onehop::SymmetricBuffer buffer;
  onehop::DeviceId device;
};

struct onehop_pool {
  std::shared_ptr<onehop::SymmetricPool> pool;
  onehop::DeviceId device;
};
