// SPDX-License-Identifier: Apache-2.0
#include "onehop/pool.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace onehop;
using namespace onehop::c_api;

namespace {

/// Which pool serves which device, and which pool each allocation came from. A framework may free late, when
/// another pool serves its device, or none.
struct Served {
  std::mutex mutex;
  std::map<int, std::shared_ptr<SymmetricPool>> in_use;
  std::map<void*, std::shared_ptr<SymmetricPool>> origin;
};
Served& served() {
  static auto& instance = *new Served;  // leaked: frameworks free while statics are destroyed
  return instance;
}

void* allocate(std::size_t bytes, int device, void* stream) {
  Served& all = served();
  const std::lock_guard lock(all.mutex);
  const auto at = all.in_use.find(device);
  require(at != all.in_use.end(), "no symmetric pool is in use for device {}: onehop_pool_use says which is",
          device);
  void* const data = at->second->allocate(bytes, Stream{stream});
  try {
    all.origin.emplace(data, at->second);
  } catch (...) {
    at->second->free(data);
    throw;
  }
  return data;
}

void free_again(void* data, void* stream) {
  Served& all = served();
  std::shared_ptr<SymmetricPool> pool;  // released outside the lock, since the last owner frees the memory
  const std::lock_guard lock(all.mutex);
  const auto at = all.origin.find(data);
  require(at != all.origin.end(), "{} did not come from onehop_pool_malloc, or was freed already", data);
  pool = std::move(at->second);
  all.origin.erase(at);
  pool->free(data, Stream{stream});
}

}  // namespace

extern "C" {

onehop_status_t onehop_pool_create(onehop_group_t* group, size_t bytes, onehop_pool_t** pool) {
  return guard([&] {
    Group& of = deref(group, "group").group;
    if (pool == nullptr) (void)of.allocate(0);  // all ranks refuse 0 bytes
    onehop_pool_t*& out = deref(pool, "pool");
    out = new onehop_pool{std::make_shared<SymmetricPool>(of.allocate(bytes)), of.device()};
  });
}

onehop_status_t onehop_pool_create_in(const onehop_buffer_t* buffer, onehop_pool_t** pool) {
  return produce(pool, "pool", [&] {
    const onehop_buffer& memory = deref(buffer, "buffer");
    return new onehop_pool{std::make_shared<SymmetricPool>(memory.buffer), memory.device};
  });
}

void onehop_pool_destroy(onehop_pool_t* pool) {
  if (pool == nullptr) return;
  const std::unique_ptr<onehop_pool> last(pool);
  Served& all = served();
  const std::lock_guard lock(all.mutex);
  const auto at = all.in_use.find(last->device.value);
  if (at != all.in_use.end() && at->second == last->pool) all.in_use.erase(at);
}

onehop_status_t onehop_pool_buffer(const onehop_pool_t* pool, onehop_buffer_t** buffer) {
  return produce(buffer, "buffer", [&] {
    const onehop_pool& of = deref(pool, "pool");
    return new onehop_buffer{of.pool->buffer(), of.device};
  });
}

onehop_status_t onehop_pool_offset(const onehop_pool_t* pool, const void* data, size_t* offset) {
  return guard([&] { deref(offset, "offset") = deref(pool, "pool").pool->offset_of(data); });
}

onehop_status_t onehop_pool_allocate(onehop_pool_t* pool, size_t bytes, void* stream, void** data) {
  return produce(data, "data", [&] { return deref(pool, "pool").pool->allocate(bytes, Stream{stream}); });
}

onehop_status_t onehop_pool_deallocate(onehop_pool_t* pool, void* data, void* stream) {
  return guard([&] { deref(pool, "pool").pool->free(data, Stream{stream}); });
}

size_t onehop_pool_free_bytes(const onehop_pool_t* pool) {
  if (pool == nullptr) return 0;
  return guard_or(std::size_t{0}, [&] { return pool->pool->free_bytes(); });
}

onehop_status_t onehop_pool_use(onehop_pool_t* pool) {
  return guard([&] {
    onehop_pool& handle = deref(pool, "pool");
    Served& all = served();
    std::shared_ptr<SymmetricPool> before = handle.pool;  // the old pool is released after the lock
    const std::lock_guard lock(all.mutex);
    std::swap(all.in_use[handle.device.value], before);
  });
}

void* onehop_pool_malloc(size_t bytes, int device, void* stream) {
  return guard_or<void*>(nullptr, [&] { return allocate(bytes, device, stream); });
}

void onehop_pool_free(void* data, size_t, int, void* stream) {
  if (data == nullptr) return;
  (void)guard([&] { free_again(data, stream); });  // errors can go to onehop_last_error only
}

}  // extern "C"
