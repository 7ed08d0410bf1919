// SPDX-License-Identifier: Apache-2.0
// A c10d::Store as a store of onehop, through which the ranks of a group find each other.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Ends the waits of a process group that is aborted: a thread may be waiting for ranks that never come.
using Cancellation = std::shared_ptr<std::atomic<bool>>;

enum class Waited { found, timed_out, cancelled };

/// Between two looks at whether a wait is cancelled.
constexpr std::chrono::milliseconds kSlice{20};
/// How much longer than asked a store may take: a timeout of zero asks for one attempt.
constexpr std::chrono::milliseconds kGrace{500};

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

/// body() on a thread of its own: stores of c10d wait without a deadline for a server that does not answer.
/// nullopt if that took longer than `timeout`, or `cancelled` became true; the thread then goes on alone, so `body` must
/// own all that it uses.
template <class Body>
std::optional<std::invoke_result_t<Body>> run_for(std::chrono::milliseconds timeout,
                                                  const Cancellation& cancelled, Body body) {
  const auto deadline = std::chrono::steady_clock::now() + timeout + kGrace;
  std::packaged_task<std::invoke_result_t<Body>()> task(std::move(body));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  while (result.wait_for(kSlice) != std::future_status::ready) {
    if (*cancelled || std::chrono::steady_clock::now() > deadline) return std::nullopt;
  }
  return result.get();
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

/// The callbacks run on the threads that join a group, without the GIL. Each ends by its timeout and
/// kGrace, whatever the store does.
class StoreBridge {
 public:
  static c10::intrusive_ptr<c10d::Store> clone(const c10::intrusive_ptr<c10d::Store>& store) {
    try {
      return store->clone();
    } catch (const std::exception&) {
      return store;  // stores written in Python need not have clone()
    }
  }

  /// Creates the library's handle, which owns a clone of `store`, that is, a connection of its own: other users of `store`
  /// do not delay it. NULL: the library's last error says why, unless the store did not answer.
  static onehop_store_t* open(const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout,
                              const Cancellation& cancelled) {
    const auto own = run_for(timeout, cancelled, [store] { return clone(store); });
    if (!own) return nullptr;
    onehop_store_callbacks_t callbacks;
    onehop_store_callbacks_init(&callbacks, sizeof(callbacks));
    callbacks.context = new StoreBridge(*own, cancelled);
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

  StoreBridge(c10::intrusive_ptr<c10d::Store> store, Cancellation cancelled)
      : store_(std::move(store)), cancelled_(std::move(cancelled)) {}

  static Bytes bytes_of(const void* data, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(data);
    return size == 0 ? Bytes() : Bytes(begin, begin + size);
  }

  /// What `body(store)` returns, or the status that says why there is nothing. No exception may cross the C API.
  template <class Body>
  static onehop_status_t call(void* context, int64_t timeout_ms, const Body& body,
                              std::optional<std::invoke_result_t<Body, c10d::Store&>>& result) {
    const auto& self = *static_cast<StoreBridge*>(context);
    try {
      result = run_for(std::chrono::milliseconds(timeout_ms), self.cancelled_,
                       [store = self.store_, body] { return body(*store); });
    } catch (const std::exception&) {
      return ONEHOP_ERROR_SYSTEM;
    }
    if (result) return ONEHOP_OK;
    return *self.cancelled_ ? ONEHOP_ERROR_ABORTED : ONEHOP_ERROR_TIMEOUT;
  }

  static onehop_status_t set(void* context, const char* key, const void* value, size_t size,
                             int64_t timeout_ms) {
    std::optional<bool> done;
    return call(
        context, timeout_ms,
        [key = std::string(key), value = bytes_of(value, size)](c10d::Store& store) {
          store.set(key, value);
          return true;
        },
        done);
  }

  static onehop_status_t get(void* context, const char* key, int64_t timeout_ms, onehop_reply_t* reply) {
    std::optional<std::optional<Bytes>> value;
    const onehop_status_t status = call(
        context, timeout_ms,
        [key = std::string(key), timeout = std::chrono::milliseconds(timeout_ms),
         cancelled =
             static_cast<StoreBridge*>(context)->cancelled_](c10d::Store& store) -> std::optional<Bytes> {
          if (wait_for(store, {key}, timeout, *cancelled) != Waited::found) return std::nullopt;
          return store.get(key);
        },
        value);
    if (status != ONEHOP_OK) return status;
    if (*value) return onehop_reply_set(reply, (*value)->data(), (*value)->size());
    return *static_cast<StoreBridge*>(context)->cancelled_ ? ONEHOP_ERROR_ABORTED : ONEHOP_ERROR_TIMEOUT;
  }

  static onehop_status_t add(void* context, const char* key, int64_t delta, int64_t timeout_ms,
                             int64_t* result) {
    std::optional<int64_t> sum;
    const onehop_status_t status = call(
        context, timeout_ms,
        [key = std::string(key), delta](c10d::Store& store) { return store.add(key, delta); }, sum);
    if (sum) *result = *sum;
    return status;
  }

  static onehop_status_t compare_set(void* context, const char* key, const void* expected,
                                     size_t expected_size, const void* desired, size_t desired_size,
                                     int64_t timeout_ms, onehop_reply_t* reply) {
    std::optional<Bytes> value;
    const onehop_status_t status = call(
        context, timeout_ms,
        [key = std::string(key), want = bytes_of(expected, expected_size),
         next = bytes_of(desired, desired_size)](c10d::Store& store) {
          Bytes now = store.compareSet(key, want, next);
          // c10d answers `expected` for a missing key that was not set, onehop the empty value.
          if (!want.empty() && now == want && want != next && !store.check({key})) now.clear();
          return now;
        },
        value);
    return value ? onehop_reply_set(reply, value->data(), value->size()) : status;
  }

  static onehop_status_t delete_key(void* context, const char* key, int64_t timeout_ms, int* existed) {
    std::optional<bool> deleted;
    const onehop_status_t status = call(
        context, timeout_ms, [key = std::string(key)](c10d::Store& store) { return store.deleteKey(key); },
        deleted);
    if (deleted) *existed = *deleted ? 1 : 0;
    return status;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Cancellation cancelled_;
};

}  // namespace onehop_torch
