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

namespace onehop::store {

class Session;

/// What the sessions of a server share: the keys, and who waits for them. Touched by the loop's thread only.
struct Hub {
  Hub(std::string secret_in, std::uint64_t instance_in)
      : secret(std::move(secret_in)), instance(instance_in) {}

  void close_all_sessions();
  void wake_waiters(const std::string& key);
  void forget_waiter(const std::string& key, const Session* session);

  const std::string secret;
  const std::uint64_t instance;
  KeyTable table;
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Session>>> waiters;
  std::size_t receiving_bytes = 0;
};

/// Serves a client until it leaves, fails or breaks the protocol.
void start_session(Hub& hub, asio::ip::tcp::socket socket);

/// Tells a client that it is not admitted, if it is listening (nobody waits for it), and hangs up.
void turn_away(asio::ip::tcp::socket socket, std::string_view reason);

}  // namespace onehop::store
