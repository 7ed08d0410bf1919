// SPDX-License-Identifier: Apache-2.0
// A client's connection as the TCP store's server sees it.
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

/// What the sessions of a server share: the keys, and who waits for them. Touched by the loop's thread only.
struct Hub {
  Hub(std::string secret_in, std::uint64_t instance_in)
      : secret(std::move(secret_in)), instance(instance_in) {}

  /// Of those that have proved themselves.
  static constexpr std::size_t kMaxClients = 1024;

  void close_all_sessions();
  /// Closes the connection that has been in its handshake for longest. False: there is none.
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

/// Serves a client until it leaves, fails or breaks the protocol. One with a `refusal` is told that, and
/// nothing else.
void start_session(Hub& hub, asio::ip::tcp::socket socket, std::string refusal);

}  // namespace onehop::store
