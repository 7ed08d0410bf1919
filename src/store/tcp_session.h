// SPDX-License-Identifier: Apache-2.0
// The server side of a client's connection to the TCP store.
#pragma once

#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/key_table.h"
#include "store/tcp_room.h"

namespace onehop::store {

class Session;

/// The state that a server's sessions share: the keys and their waiters. Only the loop's thread uses it.
struct Hub {
  Hub(std::string secret_in, std::uint64_t instance_in)
      : secret(std::move(secret_in)), instance(instance_in) {}

  /// Limit of authenticated clients.
  static constexpr std::size_t kMaxClients = 1024;

  void close_all_sessions();
  /// Closes the connection with the longest unfinished handshake. Returns false if there is none.
  bool close_oldest_newcomer();
  [[nodiscard]] std::size_t clients() const { return sessions.size() - newcomers.size(); }
  void wake_waiters(const std::string& key);
  void forget_waiter(const std::string& key, const Session* session);

  const std::string secret;
  const std::uint64_t instance;
  KeyTable table;
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Session>>> waiters;
  Newcomers newcomers;
  ReceiveRoom room;
};

/// Serves a client until it leaves, fails or violates the protocol. A client with a `refusal` receives only
/// that message.
void start_session(Hub& hub, asio::ip::tcp::socket socket, std::string refusal);

}  // namespace onehop::store
