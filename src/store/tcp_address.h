// SPDX-License-Identifier: Apache-2.0
// Resolves addresses and opens TCP sockets that are close-on-exec and non-blocking from the start. Asio opens
// sockets without SOCK_CLOEXEC, so they are opened here and handed to Asio.
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

/// Returns all addresses of host:port. Throws Error{invalid_argument} if there is none, and Error{timeout} if
/// a name server does not answer in time.
[[nodiscard]] std::vector<TcpAddress> resolve(const std::string& host, std::uint16_t port,
                                              const Deadline& deadline = Deadline::after(kDefaultTimeout));

/// Opens a TCP socket of the address's family. Throws Error{out_of_resources} if no descriptor is available.
[[nodiscard]] os::UniqueFd open_socket(const TcpAddress& address);

/// Returns the local or the remote address of a socket.
[[nodiscard]] TcpAddress local_address(int fd);
[[nodiscard]] bool is_connected_to_itself(int fd);

/// Formats "127.0.0.1:29500" or "[::1]:29500".
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

}  // namespace onehop::store
