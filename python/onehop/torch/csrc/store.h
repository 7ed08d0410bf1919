// SPDX-License-Identifier: Apache-2.0
// A c10d::Store as a store of onehop, through which the ranks of a group find each other.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Ends the waits of a process group that is aborted: a thread may be waiting for ranks that never come.
using Cancellation = std::shared_ptr<std::atomic<bool>>;

enum class Waited { found, timed_out, cancelled };

/// Waits until all `keys` exist. Polls `check`: a blocking `get` or `wait` would hold the one lock of a
/// TCPStore's client until they do, and could not be cancelled.
inline Waited wait_for(c10d::Store& store, const std::vector<std::string>& keys,
                       std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto pause = std::chrono::milliseconds(1); !store.check(keys);
       pause = std::min(pause * 2, std::chrono::milliseconds(16))) {
    if (cancelled) return Waited::cancelled;
    if (std::chrono::steady_clock::now() + pause > deadline) return Waited::timed_out;
    std::this_thread::sleep_for(pause);
  }
  return Waited::found;
}

/// A part of `store` for an engine of torch. Its waits end when the process group is aborted.
class CancellableStore final : public c10d::PrefixStore {
 public:
  CancellableStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store, Cancellation cancelled)
      : PrefixStore(std::move(prefix), std::move(store)), cancelled_(std::move(cancelled)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<CancellableStore>(prefix_, store_->clone(), cancelled_);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key});
    return PrefixStore::get(key);
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    wait(keys);
    return PrefixStore::multiGet(keys);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    switch (wait_for(*this, keys, timeout, *cancelled_)) {
      case Waited::found:
        return;
      case Waited::cancelled:
        C10_THROW_ERROR(DistBackendError, "onehop: the process group was aborted");
      case Waited::timed_out:
        C10_THROW_ERROR(DistStoreError, c10::str("after ", timeout.count(), " ms, the store has no ", keys));
    }
  }

 private:
  Cancellation cancelled_;
};

/// The callbacks run on the threads that join a group, without the GIL.
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
      switch (wait_for(store, {key}, std::chrono::milliseconds(timeout_ms), cancelled)) {
        case Waited::found:
          break;
        case Waited::cancelled:
          return static_cast<int>(ONEHOP_ERROR_ABORTED);
        case Waited::timed_out:
          return static_cast<int>(ONEHOP_ERROR_TIMEOUT);
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
