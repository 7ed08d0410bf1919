// SPDX-License-Identifier: Apache-2.0
// A client's connection to the TCP store server: connect, handshake, one request at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/store.h"

#include "base/deadline.h"
#include "os/unique_fd.h"
#include "store/tcp_address.h"

namespace onehop::store {

class TcpConnection {
 public:
  /// Connects and proves knowledge of the secret. With `retry`, waits for a server that is not up yet. Always
  /// tries again if the server closes the connection or has no room. At the deadline, throws the error of the
  /// last attempt: Error{timeout}, or Error{out_of_resources} if the server has no room.
  TcpConnection(const TcpStoreOptions& options, const Deadline& deadline, bool retry);

  /// Sends one message and returns the reply, or nullopt if the deadline passes first. After that, or after
  /// an Error, the connection is unusable. Throws Error{peer_lost} as soon as the server is gone.
  [[nodiscard]] std::optional<std::string> exchange(std::string_view message, const Deadline& deadline);

  /// A random number that the server chose at its start.
  [[nodiscard]] std::uint64_t server_instance() const { return instance_; }

 private:
  enum class Io { done, deadline };
  /// Returns 0 or the errno of the failure.
  [[nodiscard]] int connect(const std::vector<TcpAddress>& addresses, const Deadline& deadline);
  void shake_hands(const TcpStoreOptions& options, const Deadline& deadline);
  [[nodiscard]] std::string exchange_or_fail(std::string_view message, const Deadline& deadline);
  [[nodiscard]] Io send_all(std::string_view bytes, const Deadline& deadline);
  [[nodiscard]] Io receive_all(char* to, std::size_t size, const Deadline& deadline);

  std::string name_;  ///< "tcp store 127.0.0.1:29500", for messages
  os::UniqueFd fd_;
  std::uint64_t instance_ = 0;
};

}  // namespace onehop::store
