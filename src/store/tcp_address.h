// SPDX-License-Identifier: Apache-2.0
// Resolving and opening TCP sockets, all of them close-on-exec and non-blocking from the start. Asio opens
// sockets without SOCK_CLOEXEC, so ours are opened here and handed to it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "os/unique_fd.h"

namespace onehop::store {

struct TcpAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] bool is_ipv6() const { return storage.ss_family == AF_INET6; }
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] std::uint16_t port() const;
};

/// All addresses of host:port. Error{invalid_argument} when there is none; Error{timeout} when a name server
/// does not answer in time.
[[nodiscard]] std::vector<TcpAddress> resolve(const std::string& host, std::uint16_t port,
                                              const Deadline& deadline = Deadline::after(kDefaultTimeout));

/// A new TCP socket of the address's family. Error{out_of_resources} when descriptors run out.
[[nodiscard]] os::UniqueFd open_socket(const TcpAddress& address);

/// The local or the remote end of a socket.
[[nodiscard]] TcpAddress local_address(int fd);
[[nodiscard]] bool is_connected_to_itself(int fd);

/// "127.0.0.1:29500", "[::1]:29500".
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

}  // namespace onehop::store
