// SPDX-License-Identifier: Apache-2.0
// Key-value stores through which ranks find each other. Once a group is joined it needs its store no more.
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

/// Limits every store enforces before it allocates.
inline constexpr std::size_t kMaxKeyBytes = 8 << 10;
inline constexpr std::size_t kMaxValueBytes = 8 << 20;

/// A small key-value store. Values are byte strings. All functions are thread-safe and throw Error.
/// Derive from it and implement the private functions, or use `callback_store`, to plug in your own.
///
/// Every operation ends by its timeout, also when another process holds a lock or a server does not answer:
/// then with Error{timeout} that names operation, key, store and time. Whether such an operation took effect
/// is unknown. A zero timeout makes one attempt. Negative timeouts, and keys and values beyond the limits,
/// are Error{invalid_argument}.
class ONEHOP_API Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store();

  /// Sets or overwrites.
  void set(std::string_view key, std::string_view value, Duration timeout = kDefaultTimeout);
  /// Waits until the key exists; nullopt when `timeout` passes first. A zero timeout asks without waiting,
  /// and is nullopt also when the store does not answer.
  [[nodiscard]] std::optional<std::string> get_for(std::string_view key, Duration timeout);
  /// Adds to a decimal counter (a missing key counts as 0) and returns the new value. A value that is not a
  /// decimal integer is Error{invalid_argument}.
  std::int64_t add(std::string_view key, std::int64_t delta, Duration timeout = kDefaultTimeout);
  /// Sets the key to `desired` if it holds `expected` (an empty `expected` also matches a missing key).
  /// Returns the value the key holds afterwards: `desired` exactly when the exchange happened (or already
  /// held it). A missing key that did not match returns `expected`.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Duration timeout = kDefaultTimeout);
  /// True when the key existed.
  bool delete_key(std::string_view key, Duration timeout = kDefaultTimeout);
  /// What this store is, for messages: "file store /tmp/x", "tcp store 127.0.0.1:29500".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Waits until the key exists and returns its value; Error{timeout} names key and store otherwise.
  [[nodiscard]] std::string get(std::string_view key, Duration timeout = kDefaultTimeout);
  /// Waits until all keys exist; Error{timeout} names the first missing key.
  void wait(std::span<const std::string> keys, Duration timeout = kDefaultTimeout);

 private:
  /// The operations of one kind of store. Keys and values are within the limits, `timeout` is not negative.
  /// Each must end by its timeout, with Error{timeout} if need be, and be thread-safe.
  virtual void do_set(std::string_view key, std::string_view value, Duration timeout) = 0;
  [[nodiscard]] virtual std::optional<std::string> do_get_for(std::string_view key, Duration timeout) = 0;
  virtual std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) = 0;
  virtual std::string do_compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired, Duration timeout) = 0;
  virtual bool do_delete_key(std::string_view key, Duration timeout) = 0;
};

/// In-process store, for ranks that are threads.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> memory_store();

/// One file per key in `directory` (created 0700 if missing), written atomically, so it works between
/// processes and over shared file systems. The directory must belong to the caller. Opening it waits for
/// nobody.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> file_store(const std::filesystem::path& directory);

/// Options of the TCP store. `secret` authenticates clients (never encrypts); it is required for a server
/// that listens on anything but loopback.
struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;   ///< a server with port 0 picks a free one (see TcpStoreServer::port)
  std::string secret = {};  ///< shared by server and clients; empty: loopback only
  /// To resolve the host, and for a client to connect; operations have their own.
  Duration timeout = kDefaultTimeout;
};

/// The server side: owns its thread and stops it when destroyed. One per job, usually in the launcher or in
/// rank 0.
class ONEHOP_API TcpStoreServer {
 public:
  virtual ~TcpStoreServer();
  [[nodiscard]] virtual std::uint16_t port() const = 0;

  [[nodiscard]] static std::unique_ptr<TcpStoreServer> start(const TcpStoreOptions& options);
};

/// A client connection to a TcpStoreServer; waits until the server is up. Error{timeout} when it is not, or
/// does not answer, within the timeout.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options);
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> tcp_store(const std::string& host, std::uint16_t port,
                                                          Duration timeout = kDefaultTimeout);

/// The same store with `prefix + "/"` before every key.
[[nodiscard]] ONEHOP_API std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store,
                                                             std::string prefix);

/// Your own store. All five functions are required and may be called from several threads. Each must end by
/// its timeout: throw Error{timeout} then (get_for: return nullopt).
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

/// What the typed calls of StoreExchange accept: fixed-size bytes, and nothing that is text already.
template <class T>
concept StoreValue = std::is_trivially_copyable_v<T> && !std::is_convertible_v<const T&, std::string_view>;

/// Typed exchange among the ranks of one rendezvous. Keys are `<prefix>/<sequence>/<rank>`; the prefix must
/// be unique to the group instance. Every call is collective: all ranks make the same calls in the same
/// order. Keys are deleted once nobody needs them any more. Not thread-safe: one exchange per rank and
/// thread.
class ONEHOP_API StoreExchange {
 public:
  StoreExchange(std::shared_ptr<Store> store, std::string prefix, Rank rank, int size);
  ~StoreExchange();
  StoreExchange(StoreExchange&&) noexcept;
  StoreExchange& operator=(StoreExchange&&) noexcept;

  /// Everyone's payload in rank order. Payloads may differ in size. Error{timeout} names the missing rank.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload, Duration timeout);
  /// Root's payload, on every rank.
  [[nodiscard]] std::string broadcast(std::string_view payload, Rank root, Duration timeout);
  void barrier(Duration timeout);

  /// The typed forms: T is trivially copyable; a payload of another size is Error{protocol} that names the
  /// key, the expected and the actual size.
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
