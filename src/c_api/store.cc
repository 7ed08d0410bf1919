// SPDX-License-Identifier: Apache-2.0
#include "onehop/store.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace onehop;
using namespace onehop::c_api;

struct onehop_tcp_server {
  std::unique_ptr<TcpStoreServer> server;
};

struct onehop_reply {
  std::optional<std::string> value;
};

namespace {

onehop_tcp_options_t tcp_defaults() {
  onehop_tcp_options_t defaults{};
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  return defaults;
}

TcpStoreOptions to_tcp_options(const onehop_tcp_options_t* options) {
  const onehop_tcp_options_t given = read_options(options, "options", tcp_defaults());
  TcpStoreOptions out;
  if (given.host != nullptr) out.host = given.host;
  if (given.secret != nullptr) out.secret = given.secret;
  out.port = given.port;
  out.timeout = timeout(given.timeout_ms, kDefaultTimeout);
  return out;
}

/// The C callbacks and their context, shared by the functions made from them.
class Callbacks {
 public:
  explicit Callbacks(const onehop_store_callbacks_t& table)
      : table_(table),
        name_(table.description != nullptr ? table.description : StoreCallbacks().description) {}
  ~Callbacks() {
    if (table_.destroy != nullptr) table_.destroy(table_.context);
  }
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  void require_complete() const {
    require(table_.set != nullptr && table_.get != nullptr && table_.add != nullptr &&
                table_.compare_set != nullptr && table_.delete_key != nullptr,
            "callbacks must set all of set, get, add, compare_set and delete_key");
  }

  void set(std::string_view key, std::string_view value, Duration timeout) const {
    check(table_.set(table_.context, std::string(key).c_str(), value.data(), value.size(),
                     std::int64_t{timeout.count()}),
          "set", key);
  }

  [[nodiscard]] std::optional<std::string> get_for(std::string_view key, Duration timeout) const {
    onehop_reply reply;
    const onehop_status_t status =
        table_.get(table_.context, std::string(key).c_str(), std::int64_t{timeout.count()}, &reply);
    if (status == ONEHOP_ERROR_TIMEOUT) return std::nullopt;
    check(status, "get", key);
    return replied(std::move(reply), "get", key);
  }

  [[nodiscard]] std::int64_t add(std::string_view key, std::int64_t delta, Duration timeout) const {
    std::int64_t result = 0;
    check(table_.add(table_.context, std::string(key).c_str(), delta, std::int64_t{timeout.count()}, &result),
          "add", key);
    return result;
  }

  [[nodiscard]] std::string compare_set(std::string_view key, std::string_view expected,
                                        std::string_view desired, Duration timeout) const {
    onehop_reply reply;
    check(table_.compare_set(table_.context, std::string(key).c_str(), expected.data(), expected.size(),
                             desired.data(), desired.size(), std::int64_t{timeout.count()}, &reply),
          "compare_set", key);
    return replied(std::move(reply), "compare_set", key);
  }

  [[nodiscard]] bool delete_key(std::string_view key, Duration timeout) const {
    int existed = 0;
    check(
        table_.delete_key(table_.context, std::string(key).c_str(), std::int64_t{timeout.count()}, &existed),
        "delete_key", key);
    return existed != 0;
  }

 private:
  void check(onehop_status_t status, std::string_view call, std::string_view key) const {
    if (status == ONEHOP_OK) return;
    fail(to_error_code(status), "{}: {} of key '{}' returned status {} ({})", name_, call, key, status,
         onehop_status_name(status));
  }

  std::string replied(onehop_reply&& reply, std::string_view call, std::string_view key) const {
    if (!reply.value) {
      fail(ErrorCode::protocol, "{}: {} of key '{}' returned ONEHOP_OK without calling onehop_reply_set",
           name_, call, key);
    }
    return *std::move(reply.value);
  }

  onehop_store_callbacks_t table_;
  std::string name_;
};

std::shared_ptr<Store> make_callback_store(const onehop_store_callbacks_t& table) {
  const auto callbacks = std::make_shared<const Callbacks>(table);
  callbacks->require_complete();
  StoreCallbacks functions;
  functions.description = callbacks->name();
  functions.set = [callbacks](std::string_view key, std::string_view value, Duration timeout) {
    callbacks->set(key, value, timeout);
  };
  functions.get_for = [callbacks](std::string_view key, Duration timeout) {
    return callbacks->get_for(key, timeout);
  };
  functions.add = [callbacks](std::string_view key, std::int64_t delta, Duration timeout) {
    return callbacks->add(key, delta, timeout);
  };
  functions.compare_set = [callbacks](std::string_view key, std::string_view expected,
                                      std::string_view desired, Duration timeout) {
    return callbacks->compare_set(key, expected, desired, timeout);
  };
  functions.delete_key = [callbacks](std::string_view key, Duration timeout) {
    return callbacks->delete_key(key, timeout);
  };
  return callback_store(std::move(functions));
}

}  // namespace

extern "C" {

onehop_status_t onehop_store_memory(onehop_store_t** store) {
  return produce(store, "store", [] { return new onehop_store{memory_store()}; });
}

onehop_status_t onehop_store_file(const char* directory, onehop_store_t** store) {
  return produce(store, "store", [&] { return new onehop_store{file_store(text(directory, "directory"))}; });
}

onehop_status_t onehop_store_prefix(onehop_store_t* store, const char* prefix, onehop_store_t** prefixed) {
  return produce(prefixed, "prefixed", [&] {
    return new onehop_store{prefix_store(deref(store, "store").store, text(prefix, "prefix"))};
  });
}

void onehop_tcp_options_init(onehop_tcp_options_t* options, size_t size) {
  init_options(options, size, tcp_defaults());
}

onehop_status_t onehop_store_tcp(const onehop_tcp_options_t* options, onehop_store_t** store) {
  return produce(store, "store", [&] { return new onehop_store{tcp_store(to_tcp_options(options))}; });
}

onehop_status_t onehop_tcp_server_start(const onehop_tcp_options_t* options, onehop_tcp_server_t** server) {
  return produce(server, "server",
                 [&] { return new onehop_tcp_server{TcpStoreServer::start(to_tcp_options(options))}; });
}

uint16_t onehop_tcp_server_port(const onehop_tcp_server_t* server) {
  if (server == nullptr) return 0;
  return guard_or(std::uint16_t{0}, [&] { return server->server->port(); });
}

void onehop_tcp_server_destroy(onehop_tcp_server_t* server) {
  delete server;
}

onehop_status_t onehop_reply_set(onehop_reply_t* reply, const void* value, size_t bytes) {
  return guard([&] {
    std::optional<std::string>& out = deref(reply, "reply").value;
    const std::string_view given = c_api::bytes(value, bytes, "value");
    require(bytes <= kMaxValueBytes, "value has {} bytes, a store takes at most {}", bytes, kMaxValueBytes);
    out = std::string(given);
  });
}

void onehop_store_callbacks_init(onehop_store_callbacks_t* callbacks, size_t size) {
  init_options(callbacks, size, onehop_store_callbacks_t{});
}

onehop_status_t onehop_store_callbacks(const onehop_store_callbacks_t* callbacks, onehop_store_t** store) {
  return guard([&] {
    // This comes first: from here on the context is destroyed, whatever else fails.
    auto made = std::make_unique<onehop_store>(
        onehop_store{make_callback_store(read_options(callbacks, "callbacks", onehop_store_callbacks_t{}))});
    onehop_store_t*& out = deref(store, "store");
    out = made.release();
  });
}

void onehop_store_destroy(onehop_store_t* store) {
  delete store;
}

onehop_status_t onehop_store_describe(const onehop_store_t* store, char** description) {
  return produce(description, "description",
                 [&] { return copy_out(deref(store, "store").store->describe()); });
}

onehop_status_t onehop_store_set(onehop_store_t* store, const char* key, const void* value, size_t bytes,
                                 int64_t timeout_ms) {
  return guard([&] {
    deref(store, "store")
        .store->set(text(key, "key"), c_api::bytes(value, bytes, "value"),
                    timeout(timeout_ms, kDefaultTimeout));
  });
}

onehop_status_t onehop_store_get(onehop_store_t* store, const char* key, int64_t timeout_ms, char** value,
                                 size_t* bytes) {
  return guard([&] {
    char*& out = deref(value, "value");
    std::size_t& size = deref(bytes, "bytes");
    hand_out(deref(store, "store").store->get(text(key, "key"), timeout(timeout_ms, kDefaultTimeout)), out,
             size);
  });
}

onehop_status_t onehop_store_wait(onehop_store_t* store, const char* const* keys, size_t count,
                                  int64_t timeout_ms) {
  return guard([&] {
    Store& target = *deref(store, "store").store;
    require_array(keys, count, "keys", "count");
    std::vector<std::string> names;
    names.reserve(count);
    for (std::size_t i = 0; i < count; ++i) names.emplace_back(text(keys[i], "an entry of keys"));
    target.wait(names, timeout(timeout_ms, kDefaultTimeout));
  });
}

onehop_status_t onehop_store_add(onehop_store_t* store, const char* key, int64_t delta, int64_t timeout_ms,
                                 int64_t* result) {
  return guard([&] {
    const std::int64_t sum =
        deref(store, "store").store->add(text(key, "key"), delta, timeout(timeout_ms, kDefaultTimeout));
    if (result != nullptr) *result = sum;
  });
}

onehop_status_t onehop_store_compare_set(onehop_store_t* store, const char* key, const void* expected,
                                         size_t expected_bytes, const void* desired, size_t desired_bytes,
                                         int64_t timeout_ms, char** value, size_t* bytes) {
  return guard([&] {
    char*& out = deref(value, "value");
    std::size_t& size = deref(bytes, "bytes");
    hand_out(deref(store, "store")
                 .store->compare_set(text(key, "key"), c_api::bytes(expected, expected_bytes, "expected"),
                                     c_api::bytes(desired, desired_bytes, "desired"),
                                     timeout(timeout_ms, kDefaultTimeout)),
             out, size);
  });
}

onehop_status_t onehop_store_delete(onehop_store_t* store, const char* key, int64_t timeout_ms,
                                    int* existed) {
  return guard([&] {
    const bool found =
        deref(store, "store").store->delete_key(text(key, "key"), timeout(timeout_ms, kDefaultTimeout));
    if (existed != nullptr) *existed = found ? 1 : 0;
  });
}

}  // extern "C"
