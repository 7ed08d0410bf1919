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
  /// Connects and proves knowledge of the secret. A server that is not up yet is waited for if `retry` is
  /// set; one that closes the connection or has no room is asked again in any case. At the deadline the
  /// reason of the last attempt: Error{timeout}, or Error{out_of_resources} when the server has no room.
  TcpConnection(const TcpStoreOptions& options, const Deadline& deadline, bool retry);

  /// Sends one message and returns the reply to it; nullopt when the deadline passed first, after which, as
  /// after an Error, the connection is of no more use. Error{peer_lost} as soon as the server is gone.
  [[nodiscard]] std::optional<std::string> exchange(std::string_view message, const Deadline& deadline);

  /// Random and chosen by the server at its start.
  [[nodiscard]] std::uint64_t server_instance() const { return instance_; }

 private:
  enum class Io { done, deadline };
  /// 0 or the errno of the failure.
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
