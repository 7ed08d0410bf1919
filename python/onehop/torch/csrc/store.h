// SPDX-License-Identifier: Apache-2.0
// A c10d::Store as a store of onehop, through which the ranks of a group find each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Ends the waits of a process group that is aborted: a thread may be waiting for ranks that never come.
using Cancellation = std::shared_ptr<std::atomic<bool>>;

/// The callbacks run on the threads that join a group, without the GIL. Waiting polls `check`: a blocking
/// `get` would hold the one lock of a TCPStore's client until the key appears.
class StoreBridge {
 public:
  /// The bridge owns a clone, that is, its own connection: other users of `store` do not delay it.
  StoreBridge(const c10::intrusive_ptr<c10d::Store>& store, Cancellation cancelled)
      : store_(clone(store)), cancelled_(std::move(cancelled)) {}

  static c10::intrusive_ptr<c10d::Store> clone(const c10::intrusive_ptr<c10d::Store>& store) {
    try {
      return store->clone();
    } catch (const std::exception&) {
      return store;  // stores written in Python need not have clone()
    }
  }

  /// Creates the library's handle, which owns the bridge. NULL: the library's last error says why.
  static onehop_store_t* open(const c10::intrusive_ptr<c10d::Store>& store, Cancellation cancelled) {
    onehop_store_callbacks_t callbacks;
    onehop_store_callbacks_init(&callbacks, sizeof(callbacks));
    callbacks.context = new StoreBridge(store, std::move(cancelled));
    callbacks.set = &set;
    callbacks.get = &get;
    callbacks.add = &add;
    callbacks.compare_set = &compare_set;
    callbacks.delete_key = &delete_key;
    callbacks.destroy = [](void* context) { delete static_cast<StoreBridge*>(context); };
    callbacks.description = "the process group's store";
    onehop_store_t* handle = nullptr;
    onehop_store_callbacks(&callbacks, &handle);
    return handle;
  }

 private:
  using Bytes = std::vector<uint8_t>;
  using Clock = std::chrono::steady_clock;

  static Bytes bytes_of(const void* data, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(data);
    return size == 0 ? Bytes() : Bytes(begin, begin + size);
  }

  /// No exception may cross the C API.
  template <class Body>
  static onehop_status_t guarded(void* context, const Body& body) {
    try {
      return body(*static_cast<StoreBridge*>(context)->store_);
    } catch (const std::exception&) {
      return ONEHOP_ERROR_SYSTEM;
    }
  }

  static onehop_status_t set(void* context, const char* key, const void* value, size_t size, int64_t) {
    return guarded(context, [&](c10d::Store& store) {
      store.set(key, bytes_of(value, size));
      return ONEHOP_OK;
    });
  }

  static onehop_status_t get(void* context, const char* key, int64_t timeout_ms, onehop_reply_t* reply) {
    return guarded(context, [&](c10d::Store& store) {
      const auto& cancelled = *static_cast<StoreBridge*>(context)->cancelled_;
      const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
      for (auto pause = std::chrono::milliseconds(1); !store.check({key});
           pause = std::min(pause * 2, std::chrono::milliseconds(16))) {
        if (cancelled) return static_cast<int>(ONEHOP_ERROR_ABORTED);
        if (Clock::now() + pause > deadline) return static_cast<int>(ONEHOP_ERROR_TIMEOUT);
        std::this_thread::sleep_for(pause);
      }
      const Bytes value = store.get(key);
      return onehop_reply_set(reply, value.data(), value.size());
    });
  }

  static onehop_status_t add(void* context, const char* key, int64_t delta, int64_t, int64_t* result) {
    return guarded(context, [&](c10d::Store& store) {
      *result = store.add(key, delta);
      return ONEHOP_OK;
    });
  }

  static onehop_status_t compare_set(void* context, const char* key, const void* expected,
                                     size_t expected_size, const void* desired, size_t desired_size, int64_t,
                                     onehop_reply_t* reply) {
    return guarded(context, [&](c10d::Store& store) {
      const Bytes want = bytes_of(expected, expected_size);
      const Bytes next = bytes_of(desired, desired_size);
      Bytes now = store.compareSet(key, want, next);
      // c10d answers `expected` for a missing key that was not set, onehop the empty value.
      if (!want.empty() && now == want && want != next && !store.check({key})) now.clear();
      return onehop_reply_set(reply, now.data(), now.size());
    });
  }

  static onehop_status_t delete_key(void* context, const char* key, int64_t, int* existed) {
    return guarded(context, [&](c10d::Store& store) {
      *existed = store.deleteKey(key) ? 1 : 0;
      return ONEHOP_OK;
    });
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Cancellation cancelled_;
};

}  // namespace onehop_torch
