#include "store/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace onehop::store {
namespace {

// sockaddr_storage may be read as the family it holds: that is what it is for.
const sockaddr_in& ipv4(const TcpAddress& a) {
  return *reinterpret_cast<const sockaddr_in*>(&a.storage);
}
const sockaddr_in6& ipv6(const TcpAddress& a) {
  return *reinterpret_cast<const sockaddr_in6*>(&a.storage);
}

}  // namespace

bool TcpAddress::is_loopback() const {
  if (is_ipv6()) return IN6_IS_ADDR_LOOPBACK(&ipv6(*this).sin6_addr);
  return storage.ss_family == AF_INET && (ntohl(ipv4(*this).sin_addr.s_addr) >> 24) == 127;
}

std::uint16_t TcpAddress::port() const {
  return ntohs(is_ipv6() ? ipv6(*this).sin6_port : ipv4(*this).sin_port);
}

std::vector<TcpAddress> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(error == 0 && !host.empty(), "cannot resolve the host '{}' of a tcp store: {}", host,
          host.empty() ? "it is empty" : ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<TcpAddress> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    TcpAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    out.push_back(address);
  }
  return out;
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
