// SPDX-License-Identifier: Apache-2.0
#include "os/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace onehop::os {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  require(path.size() < sizeof address.sun_path,
          "socket path '{}' has {} bytes, more than the {} that fit; set ONEHOP_RUNTIME_DIR to a shorter "
          "directory",
          path, path.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

UniqueFd new_socket() {
  UniqueFd fd(::socket(AF_UNIX, kType, 0));
  if (!fd) fail_errno(errno, "socket");
  return fd;
}

/// Waits for `events` or an error condition; returns false at the deadline.
bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_errno(errno, "poll");
    if (deadline.expired()) return false;
  }
}

}  // namespace

UniqueFd listen_unix(const std::string& path) {
  const sockaddr_un address = address_of(path);
  UniqueFd fd = new_socket();
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail_errno(errno, fmt::format("binding socket {}", path));
  }
  if (::listen(fd.get(), 256) != 0) fail_errno(errno, fmt::format("listening on {}", path));
  return fd;
}

UniqueFd accept_unix(int listener, const Deadline& deadline) {
  while (true) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return fd;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(listener, POLLIN, deadline)) return {};
    } else if (errno != EINTR && errno != ECONNABORTED) {
      fail_errno(errno, "accepting a connection");
    }
  }
}

ConnectStatus try_connect_unix(const std::string& path, UniqueFd& socket) {
  const sockaddr_un address = address_of(path);
  UniqueFd fd = new_socket();
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return ConnectStatus::nobody;
    if (errno == EAGAIN) return ConnectStatus::busy;
    if (errno != EINTR) fail_errno(errno, fmt::format("connecting to {}", path));
  }
  socket = std::move(fd);
  return ConnectStatus::connected;
}

UniqueFd connect_unix(const std::string& path, const Deadline& deadline) {
  UniqueFd fd;
  while (try_connect_unix(path, fd) == ConnectStatus::busy) {
    // The owner is alive, so wait a little.
    if (deadline.expired()) fail(ErrorCode::timeout, "connecting to {}: nobody accepts", path);
    (void)::poll(nullptr, 0, 1);
  }
  return fd;
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, kType, 0, ends.data()) != 0) fail_errno(errno, "socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

uid_t peer_uid(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    fail_errno(errno, "SO_PEERCRED");
  return credentials.uid;
}

SendStatus send_message(int socket, std::string_view bytes, int fd, const Deadline& deadline) {
  require(bytes.size() <= kMaxMessageBytes, "a message of {} bytes exceeds the limit of {}", bytes.size(),
          kMaxMessageBytes);
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const entry = CMSG_FIRSTHDR(&header);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(entry), &fd, sizeof fd);
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent >= 0) return SendStatus::sent;  // SEQPACKET sends a message completely or not at all
    if (errno == EPIPE || errno == ECONNRESET) return SendStatus::closed;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket, POLLOUT, deadline)) return SendStatus::timed_out;
    } else if (errno != EINTR) {
      fail_errno(errno, fd >= 0 ? "sending a descriptor" : "sending a message");
    }
  }
}

bool recv_message(int socket, Message& message, const Deadline& deadline) {
  message = Message{};
  static thread_local std::array<char, kMaxMessageBytes> buffer;
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  // Room for several descriptors, so that those of a peer that sends too many are received and closed, not
  // truncated.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  // The kernel looks for a message first and for the end of the connection second. A peer that sends and closes in
  // between makes it report the end before those messages. Nothing follows an end, so a second look is sure.
  bool second_look = false;
  while (true) {
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (got < 0) {
      // If a peer closes with unread messages, the kernel reports this error once, before the messages that
      // the peer sent earlier. Those messages follow, and then the end.
      if (errno == ECONNRESET) continue;
      if (second_look && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        message.closed = true;  // by an empty message
        return true;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(socket, POLLIN, deadline)) return false;
      } else if (errno != EINTR) {
        fail_errno(errno, "receiving a message");
      }
      continue;
    }
    int descriptors = 0;
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr; entry = CMSG_NXTHDR(&header, entry)) {
      if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof fd);
        message.fd.reset(fd);  // a second descriptor closes the first, so that none leaks
        ++descriptors;
      }
    }
    message.bytes.assign(buffer.data(), static_cast<std::size_t>(got));
    // onehop never sends empty messages, so zero bytes mean the end.
    message.closed = got == 0 && descriptors == 0;
    if (message.closed && !std::exchange(second_look, true)) continue;
    // Without free descriptors, recvmsg succeeds and drops the received ones; only MSG_CTRUNC shows it.
    message.fd_lost = (header.msg_flags & MSG_CTRUNC) != 0;
    if ((header.msg_flags & MSG_TRUNC) != 0 || descriptors > 1) {
      fail(ErrorCode::protocol, "a peer sent a message larger than {} bytes or with {} descriptors",
           kMaxMessageBytes, descriptors);
    }
    return true;
  }
}

bool peer_closed(int socket) {
  pollfd entry{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace onehop::os
