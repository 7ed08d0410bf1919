// SPDX-License-Identifier: Apache-2.0
// Key-value stores through which ranks find each other. A group does not use its store after joining.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// Limits of keys and values. Every store enforces them before it allocates memory.
inline constexpr std::size_t kMaxKeyBytes = 8 << 10;
inline constexpr std::size_t kMaxValueBytes = 8 << 20;

/// A small key-value store. Values are byte strings. All functions are thread-safe and throw Error. To
/// provide your own store, derive from this class and implement the private functions, or use
/// `callback_store`.
///
/// Every operation ends by its timeout, even if another process holds a lock or a server does not answer. It
/// then throws Error{timeout}, which names operation, key, store and time; whether the operation took effect
/// is unknown. A zero timeout makes one attempt. Negative timeouts, and keys and values beyond the limits,
/// throw Error{invalid_argument}.
class ONEHOP_API Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store();

  /// Sets the key, or overwrites its value.
  void set(std::string_view key, std::string_view value, Duration timeout = kDefaultTimeout);
  /// Waits until the key exists and returns its value, or nullopt if `timeout` passes first. A zero timeout
  /// tests without waiting; the result is then nullopt also if the store does not answer.
  [[nodiscard]] std::optional<std::string> get_for(std::string_view key, Duration timeout);
  /// Adds `delta` to a decimal counter (a missing key counts as 0) and returns the new value. Throws
  /// Error{invalid_argument} if the value is not a decimal integer.
  std::int64_t add(std::string_view key, std::int64_t delta, Duration timeout = kDefaultTimeout);
  /// Sets the key to `desired` if it holds `expected`; an empty `expected` also matches a missing key.
  /// Returns the value that the key holds afterwards: `desired` exactly if the exchange succeeded or the key
  /// already held it. Returns `expected` if the key is missing and did not match.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Duration timeout = kDefaultTimeout);
  /// Deletes the key. Returns whether it existed.
  bool delete_key(std::string_view key, Duration timeout = kDefaultTimeout);
  /// Describes this store for messages: "file store /tmp/x", "tcp store 127.0.0.1:29500".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Waits until the key exists and returns its value. Throws Error{timeout}, which names key and store.
  [[nodiscard]] std::string get(std::string_view key, Duration timeout = kDefaultTimeout);
  /// Waits until all keys exist. Throws Error{timeout}, which names the first missing key.
  void wait(std::span<const std::string> keys, Duration timeout = kDefaultTimeout);

 private:
  /// The operations of one kind of store. The caller guarantees keys and values within the limits and a
  /// timeout of at least 0. Each operation must be thread-safe and end by its timeout, with Error{timeout} if
  /// necessary.
  virtual void do_set(std::string_view key, std::string_view value, Duration timeout) = 0;
  [[nodiscard]] virtual std::optional<std::string> do_get_for(std::string_view key, Duration timeout) = 0;
  virtual std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) = 0;
  virtual std::string do_compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired, Duration timeout) = 0;
  virtual bool do_delete_key(std::string_view key, Duration timeout) = 0;
};

/// In-process store, for ranks that are threads.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> memory_store();

/// Stores one file per key in `directory` (created with mode 0700 if missing). Files are written atomically,
/// so the store works between processes and over shared file systems. The directory must belong to the
/// caller. Opening the store never blocks.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> file_store(const std::filesystem::path& directory);

/// Options of the TCP store. `secret` authenticates clients but does not encrypt; it is required for a server
/// that listens on anything but loopback.
struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;   ///< 0: the server selects a free port (see TcpStoreServer::port)
  std::string secret = {};  ///< shared by server and clients; empty: loopback only
  /// For resolving the host and for a client's connection. Operations have their own timeouts.
  Duration timeout = kDefaultTimeout;
};

/// The server. Owns its thread and stops it when destroyed. A job needs one, usually in the launcher or in
/// rank 0.
class ONEHOP_API TcpStoreServer {
 public:
  virtual ~TcpStoreServer();
  [[nodiscard]] virtual std::uint16_t port() const = 0;

  [[nodiscard]] static std::unique_ptr<TcpStoreServer> start(const TcpStoreOptions& options);
};

/// Connects to a TcpStoreServer, and waits until the server is up. Throws Error{timeout} if the server is not
/// up, or does not answer, within the timeout.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options);
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> tcp_store(const std::string& host, std::uint16_t port,
                                                          Duration timeout = kDefaultTimeout);

/// A view of `store` that prepends `prefix + "/"` to every key.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store,
                                                             std::string prefix);

/// Callbacks that implement a store. All five functions are required and may be called from several threads.
/// Each must end by its timeout: throw Error{timeout} (get_for: return nullopt).
struct StoreCallbacks {
  std::function<void(std::string_view key, std::string_view value, Duration timeout)> set;
  std::function<std::optional<std::string>(std::string_view key, Duration timeout)> get_for;
  std::function<std::int64_t(std::string_view key, std::int64_t delta, Duration timeout)> add;
  std::function<std::string(std::string_view key, std::string_view expected, std::string_view desired,
                            Duration timeout)>
      compare_set;
  std::function<bool(std::string_view key, Duration timeout)> delete_key;
  std::string description = "callback store";
};
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> callback_store(StoreCallbacks callbacks);

/// The types that StoreExchange's typed functions accept: trivially copyable, and not convertible to text.
template <class T>
concept StoreValue = std::is_trivially_copyable_v<T> && !std::is_convertible_v<const T&, std::string_view>;

/// Exchange of bytes and typed values among the ranks of one rendezvous. Keys are
/// `<prefix>/<sequence>/<rank>`; the prefix must be unique to the group instance. Every call is collective:
/// all ranks make the same calls in the same order. Keys are deleted when no rank needs them any more. Not
/// thread-safe: use one exchange per rank and thread.
class ONEHOP_API StoreExchange {
 public:
  StoreExchange(std::shared_ptr<Store> store, std::string prefix, Rank rank, int size);
  ~StoreExchange();
  StoreExchange(StoreExchange&&) noexcept;
  StoreExchange& operator=(StoreExchange&&) noexcept;

  /// Returns the payloads of all ranks in rank order. Payloads may differ in size. Throws Error{timeout},
  /// which names the missing rank.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload, Duration timeout);
  /// Returns the root's payload on every rank.
  [[nodiscard]] std::string broadcast(std::string_view payload, Rank root, Duration timeout);
  void barrier(Duration timeout);

  /// The typed forms. Throw Error{protocol}, which names the key, the expected and the actual size, if a
  /// payload has another size than T.
  template <StoreValue T>
  [[nodiscard]] std::vector<T> all_gather(const T& value, Duration timeout);
  template <StoreValue T>
  [[nodiscard]] T broadcast(const T& value, Rank root, Duration timeout);

 private:
  [[nodiscard]] std::vector<std::string> all_gather_sized(std::string_view payload, std::size_t expected,
                                                          Duration timeout);
  [[nodiscard]] std::string broadcast_sized(std::string_view payload, std::size_t expected, Rank root,
                                            Duration timeout);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onehop

#include "onehop/detail/store_exchange.h"
