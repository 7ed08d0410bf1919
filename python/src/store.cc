// SPDX-License-Identifier: Apache-2.0
#include "store.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "errors.h"
#include "group.h"
#include "text.h"
#include "traverse.h"

namespace onehop_python {
namespace {

struct Store {
  nb::object keeps;  ///< what the handle calls or refers to; freed after it
  Handle<onehop_store_t> handle;

  [[nodiscard]] std::array<const nb::object*, 1> kept() const { return {&keeps}; }
};

struct TcpServer {
  Handle<onehop_tcp_server_t> handle;
};

template <class Make>
Store make_store(Make&& make, nb::object keeps = nb::none()) {
  onehop_store_t* store = nullptr;
  run([&] { return make(&store); });
  return {std::move(keeps), Handle<onehop_store_t>(store)};
}

template <class Make>
nb::bytes take_bytes(Make&& make) {
  char* value = nullptr;
  std::size_t size = 0;
  run([&] { return make(&value, &size); });
  const Handle<char> held(value);
  return nb::bytes(value, size);
}

/// Runs `wait` for at most 100 ms at a time, so that signal handlers of Python run even if the main thread waits in a store
/// that does not look for interrupts. `what` is awaited, for the message.
template <class Wait>
void wait_in_slices(int64_t timeout_ms, const std::string& what, Wait&& wait) {
  watch_signals();
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSlice = 100;
  constexpr int64_t kDefault = 30'000;
  const int64_t limit = timeout_ms < 0 ? kDefault : timeout_ms;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(limit);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    const onehop_status_t status = without_gil([&] { return wait(std::clamp<int64_t>(left, 0, kSlice)); });
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (status != ONEHOP_ERROR_TIMEOUT || limit <= kSlice) return finish(status);
    if (left <= kSlice) raise(status, what + " did not appear within " + std::to_string(limit) + " ms");
  }
}

/// What a server and its clients share.
struct TcpSettings {
  std::string host;
  std::optional<std::string> secret;
  onehop_tcp_options_t options{};

  TcpSettings(const Text& given_host, int port, const std::optional<Text>& given_secret, nb::handle timeout)
      : host(given_host.read("host")) {
    if (given_secret) secret = given_secret->read("secret", true);
    if (port < 0 || port > 65535) raise_invalid("port is " + std::to_string(port) + ", not within 0..65535");
    onehop_tcp_options_init(&options, sizeof options);
    options.host = host.c_str();
    options.port = static_cast<uint16_t>(port);
    options.secret = secret ? secret->c_str() : nullptr;
    options.timeout_ms = read_timeout(timeout);
  }
};

// ---- A store that is a Python object: methods with the names of the callbacks ----

/// Runs `body` with the GIL. What it raises becomes a status, and the cause of the error of the call.
template <class Body>
onehop_status_t in_python(Body&& body) noexcept {
  onehop_status_t status = ONEHOP_ERROR_ABORTED;  // if the interpreter has ended
  with_gil([&] {
    try {
      const NestedCalls nested;
      body();
      status = ONEHOP_OK;
    } catch (nb::python_error& error) {
      status = error.matches(PyExc_TimeoutError) ? ONEHOP_ERROR_TIMEOUT
               : error.matches(PyExc_Exception)  ? ONEHOP_ERROR_SYSTEM
                                                 : ONEHOP_ERROR_ABORTED;
      if (status != ONEHOP_ERROR_TIMEOUT) keep_exception(std::move(error));
    } catch (const std::exception&) {
      status = ONEHOP_ERROR_SYSTEM;
    }
  });
  return status;
}

nb::handle callbacks_of(void* context) {
  return static_cast<PyObject*>(context);
}

void reply_with(onehop_reply_t* reply, const nb::object& value) {
  const nb::bytes bytes = nb::cast<nb::bytes>(value);
  check(onehop_reply_set(reply, bytes.data(), bytes.size()));
}

onehop_status_t python_set(void* context, const char* key, const void* value, std::size_t bytes,
                           int64_t timeout_ms) {
  return in_python([&] { callbacks_of(context).attr("_set")(key, nb::bytes(value, bytes), timeout_ms); });
}

onehop_status_t python_get(void* context, const char* key, int64_t timeout_ms, onehop_reply_t* value) {
  return in_python([&] { reply_with(value, callbacks_of(context).attr("_get")(key, timeout_ms)); });
}

onehop_status_t python_add(void* context, const char* key, int64_t delta, int64_t timeout_ms,
                           int64_t* result) {
  return in_python([&] {
    *result = nb::cast<int64_t>(nb::object(callbacks_of(context).attr("_add")(key, delta, timeout_ms)));
  });
}

onehop_status_t python_compare_set(void* context, const char* key, const void* expected,
                                   std::size_t expected_bytes, const void* desired, std::size_t desired_bytes,
                                   int64_t timeout_ms, onehop_reply_t* value) {
  return in_python([&] {
    reply_with(value,
               callbacks_of(context).attr("_compare_set")(key, nb::bytes(expected, expected_bytes),
                                                          nb::bytes(desired, desired_bytes), timeout_ms));
  });
}

onehop_status_t python_delete(void* context, const char* key, int64_t timeout_ms, int* existed) {
  return in_python([&] {
    *existed = nb::cast<bool>(nb::object(callbacks_of(context).attr("_delete")(key, timeout_ms))) ? 1 : 0;
  });
}

Store callback_store(const nb::object& object, const Text& given) {
  const std::string description = given.read("description");
  onehop_store_callbacks_t callbacks;
  onehop_store_callbacks_init(&callbacks, sizeof callbacks);
  // Without a reference of its own, which the garbage collector would not see: the Store keeps it.
  callbacks.context = object.ptr();
  callbacks.set = python_set;
  callbacks.get = python_get;
  callbacks.add = python_add;
  callbacks.compare_set = python_compare_set;
  callbacks.delete_key = python_delete;
  callbacks.description = description.c_str();
  return make_store([&](onehop_store_t** store) { return onehop_store_callbacks(&callbacks, store); },
                    object);
}

}  // namespace

onehop_store_t* store_handle(nb::handle store) {
  if (!nb::isinstance<Store>(store))
    raise_invalid("store is " + type_text(store) + "; wrap a store of your own in onehop.PyStore");
  return object_of<Store>(store).handle.get();
}

void add_stores(nb::module_& module) {
  nb::class_<Store> store(
      module, "Store", nb::type_slots(traverse_slots<Store>),
      "A small key-value store through which ranks find each other. Values are bytes. Thread-safe.\n\n"
      "Every operation ends by its timeout (30 s by default) with `Timeout`.");
  const auto timeout = nb::arg("timeout").none() = nb::none();
  store
      .def(
          "set",
          [](Store& self, const Text& given, const nb::bytes& value, nb::handle limit) {
            const std::string key = given.read("key");
            const int64_t ms = read_timeout(limit);
            run([&] {
              return onehop_store_set(self.handle.get(), key.c_str(), value.data(), value.size(), ms);
            });
          },
          nb::arg("key"), nb::arg("value"), timeout,
          nb::sig("def set(self, key: str, value: bytes, timeout: float | timedelta | None = None) -> None"),
          "Sets the key, or overwrites its value.")
      .def(
          "get",
          [](Store& self, const Text& given, nb::handle limit) {
            const std::string key = given.read("key");
            char* value = nullptr;
            std::size_t size = 0;
            wait_in_slices(read_timeout(limit), "get: key '" + key + "'", [&](int64_t ms) {
              return onehop_store_get(self.handle.get(), key.c_str(), ms, &value, &size);
            });
            const Handle<char> held(value);
            return nb::bytes(value, size);
          },
          nb::arg("key"), timeout,
          nb::sig("def get(self, key: str, timeout: float | timedelta | None = None) -> bytes"),
          "Waits until the key exists and returns its value.")
      .def(
          "wait",
          [](Store& self, const std::vector<Text>& given, nb::handle limit) {
            std::vector<std::string> keys;
            for (const Text& key : given) keys.push_back(key.read("keys"));
            std::vector<const char*> names;
            std::string listed;
            for (const std::string& key : keys) {
              names.push_back(key.c_str());
              listed += (listed.empty() ? "'" : ", '") + key + "'";
            }
            wait_in_slices(read_timeout(limit), "wait: one of " + listed, [&](int64_t ms) {
              return onehop_store_wait(self.handle.get(), names.data(), names.size(), ms);
            });
          },
          nb::arg("keys"), timeout,
          nb::sig("def wait(self, keys: Sequence[str], timeout: float | timedelta | None = None) -> None"),
          "Waits until all keys exist.")
      .def(
          "add",
          [](Store& self, const Text& given, int64_t delta, nb::handle limit) {
            const std::string key = given.read("key");
            const int64_t ms = read_timeout(limit);
            int64_t result = 0;
            run([&] { return onehop_store_add(self.handle.get(), key.c_str(), delta, ms, &result); });
            return result;
          },
          nb::arg("key"), nb::arg("delta"), timeout,
          nb::sig("def add(self, key: str, delta: int, timeout: float | timedelta | None = None) -> int"),
          "Adds `delta` to a decimal counter and returns the new value. A missing key counts as 0.")
      .def(
          "compare_set",
          [](Store& self, const Text& given, const nb::bytes& expected, const nb::bytes& desired,
             nb::handle limit) {
            const std::string key = given.read("key");
            const int64_t ms = read_timeout(limit);
            return take_bytes([&](char** value, std::size_t* size) {
              return onehop_store_compare_set(self.handle.get(), key.c_str(), expected.data(),
                                              expected.size(), desired.data(), desired.size(), ms, value,
                                              size);
            });
          },
          nb::arg("key"), nb::arg("expected"), nb::arg("desired"), timeout,
          nb::sig(
              "def compare_set(self, key: str, expected: bytes, desired: bytes, timeout: float | timedelta | "
              "None = None) -> bytes"),
          "Sets the key to `desired` if it holds `expected`; an empty `expected` also matches a missing "
          "key.\n\n"
          "Returns the value that the key holds afterwards.")
      .def(
          "delete",
          [](Store& self, const Text& given, nb::handle limit) {
            const std::string key = given.read("key");
            const int64_t ms = read_timeout(limit);
            int existed = 0;
            run([&] { return onehop_store_delete(self.handle.get(), key.c_str(), ms, &existed); });
            return existed != 0;
          },
          nb::arg("key"), timeout,
          nb::sig("def delete(self, key: str, timeout: float | timedelta | None = None) -> bool"),
          "Deletes the key. Returns whether it existed.")
      .def("__repr__", [](const Store& self) {
        char* text = nullptr;
        check(onehop_store_describe(self.handle.get(), &text));
        const Handle<char> held(text);
        return to_str("<onehop " + std::string(text) + ">");
      });

  nb::class_<TcpServer>(module, "TcpServer",
                        "The server of a TcpStore. It ends with `stop`, or with this object.")
      .def(
          "__init__",
          [](TcpServer* self, const Text& host, int port, const std::optional<Text>& secret) {
            const TcpSettings settings(host, port, secret, nb::none());
            onehop_tcp_server_t* server = nullptr;
            run([&] { return onehop_tcp_server_start(&settings.options, &server); });
            new (self) TcpServer{Handle<onehop_tcp_server_t>(server)};
          },
          nb::arg("host") = "127.0.0.1", nb::arg("port") = 0, nb::arg("secret").none() = nb::none(),
          nb::sig("def __init__(self, host: str = \"127.0.0.1\", port: int = 0, secret: str | None = None) "
                  "-> None"),
          "Starts a server. Port 0 selects a free one. Beyond loopback a secret is required.")
      .def_prop_ro(
          "port", [](const TcpServer& self) { return onehop_tcp_server_port(self.handle.get()); },
          "The port that it listens on; 0 after `stop`.")
      .def(
          "stop", [](TcpServer& self) { self.handle.reset(); }, "Stops the server. May be repeated.");

  const auto factory = [&](const char* name, auto&& function, auto&&... extra) {
    module.def(name, function, extra...);
  };
  factory(
      "FileStore",
      [](const nb::object& directory) {
        const std::string path = read_path(directory, "directory");
        return make_store([&](onehop_store_t** store) { return onehop_store_file(path.c_str(), store); });
      },
      nb::arg("directory"), nb::sig("def FileStore(directory: Path) -> Store"),
      "A store with one file per key, for processes that share `directory`.\n\n"
      "The directory is created if missing, and must belong to the caller.");
  factory(
      "TcpStore",
      [](const Text& host, int port, const std::optional<Text>& secret, nb::handle limit) {
        const TcpSettings settings(host, port, secret, limit);
        return make_store([&](onehop_store_t** store) { return onehop_store_tcp(&settings.options, store); });
      },
      nb::arg("host"), nb::arg("port"), nb::arg("secret").none() = nb::none(), timeout,
      nb::sig(
          "def TcpStore(host: str, port: int, secret: str | None = None, timeout: float | timedelta | None = "
          "None) -> Store"),
      "Connects to a `TcpServer`, and waits until it is up.");
  factory(
      "MemoryStore", [] { return make_store(onehop_store_memory); }, nb::sig("def MemoryStore() -> Store"),
      "A store in this process, for ranks that are threads.");
  factory(
      "PrefixStore",
      [](const nb::object& inner, const Text& given) {
        const std::string prefix = given.read("prefix");
        onehop_store_t* const handle = store_handle(inner);
        return make_store(
            [&](onehop_store_t** made) { return onehop_store_prefix(handle, prefix.c_str(), made); }, inner);
      },
      nb::arg("store"), nb::arg("prefix"), nb::sig("def PrefixStore(store: Store, prefix: str) -> Store"),
      "A view of `store` that prepends `prefix` and a slash to every key.");
  factory(
      "_store_from_env",
      [](nb::handle limit) {
        const int64_t ms = read_timeout(limit);
        return make_store([&](onehop_store_t** store) { return onehop_store_from_env(ms, store); });
      },
      timeout);
  factory("_callback_store", callback_store, nb::arg("callbacks"), nb::arg("description"));
}

}  // namespace onehop_python
