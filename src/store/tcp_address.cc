// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/interrupt.h"

namespace onehop::store {
namespace {

// sockaddr_storage may be accessed as the address family that it holds.
const sockaddr_in& ipv4(const TcpAddress& a) {
  return *reinterpret_cast<const sockaddr_in*>(&a.storage);
}
const sockaddr_in6& ipv6(const TcpAddress& a) {
  return *reinterpret_cast<const sockaddr_in6*>(&a.storage);
}

struct Found {
  int error = 0;         ///< result of getaddrinfo
  int system_error = 0;  ///< errno, for EAI_SYSTEM
  std::vector<TcpAddress> addresses = {};
};

Found look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  Found found{.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list)};
  if (found.error == EAI_SYSTEM) found.system_error = errno;
  if (found.error != 0) return found;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    TcpAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    found.addresses.push_back(address);
  }
  return found;
}

/// getaddrinfo has no deadline, and an unreachable name server delays it by many seconds. It therefore runs
/// on its own thread, which is detached if it takes too long.
Found look_up_name(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  std::packaged_task<Found()> task([host, port] { return look_up(host, port, 0); });
  std::future<Found> found = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error& error) {
    fail(ErrorCode::out_of_resources, "cannot start a thread to resolve the host '{}' of a tcp store: {}",
         host, error.what());
  }
  while (found.wait_until(deadline.at_most(kInterruptSlice).at()) != std::future_status::ready) {
    if (deadline.expired()) {
      fail(ErrorCode::timeout,
           "the host '{}' of a tcp store could not be resolved within {} ms: give its numeric address, "
           "or find out why the name server does not answer",
           host, deadline.timeout().count());
    }
    throw_if_interrupted("waiting for the name server");
  }
  return found.get();
}

}  // namespace

bool TcpAddress::is_loopback() const {
  if (is_ipv6()) return IN6_IS_ADDR_LOOPBACK(&ipv6(*this).sin6_addr);
  return storage.ss_family == AF_INET && (ntohl(ipv4(*this).sin_addr.s_addr) >> 24) == 127;
}

std::uint16_t TcpAddress::port() const {
  return ntohs(is_ipv6() ? ipv6(*this).sin6_port : ipv4(*this).sin_port);
}

std::vector<TcpAddress> resolve(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  require(!host.empty(), "cannot resolve the host '' of a tcp store: it is empty");
  Found found = look_up(host, port, AI_NUMERICHOST);  // without a name server
  if (found.error != 0) found = look_up_name(host, port, deadline);
  if (found.error == EAI_SYSTEM)
    fail_errno(found.system_error, fmt::format("cannot resolve the host '{}' of a tcp store", host));
  require(found.error == 0, "cannot resolve the host '{}' of a tcp store: {}", host,
          ::gai_strerror(found.error));
  return std::move(found.addresses);
}

os::UniqueFd open_socket(const TcpAddress& address) {
  os::UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(errno, "cannot open a TCP socket");
  return fd;
}

TcpAddress local_address(int fd) {
  TcpAddress out;
  out.size = sizeof out.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0)
    fail_errno(errno, "getsockname");
  return out;
}

bool is_connected_to_itself(int fd) {
  const TcpAddress local = local_address(fd);
  TcpAddress remote;
  remote.size = sizeof remote.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote.storage), &remote.size) != 0) return false;
  return local.size == remote.size && std::memcmp(&local.storage, &remote.storage, local.size) == 0;
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace onehop::store
