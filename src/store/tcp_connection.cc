// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_connection.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

#include "base/check.h"
#include "base/interrupt.h"
#include "base/sha256.h"
#include "store/tcp_protocol.h"

namespace onehop::store {
namespace {

constexpr const char* kWait = "waiting for the server of the tcp store";

/// Returns false if the deadline passes first.
bool wait_until_ready(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, deadline.poll_ms(kInterruptSlice));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_errno(errno, "poll");
    if (deadline.expired()) return false;
    throw_if_interrupted(kWait);
  }
}

/// Returns 0 or the errno of the failure.
int connect_to(int fd, const TcpAddress& address, const Deadline& deadline) {
  if (::connect(fd, address.get(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_until_ready(fd, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  // Connecting to a local port without a listener can connect the socket to itself, if the kernel chooses
  // that port for our end. Keeping such a connection would prevent the server from ever listening there.
  return is_connected_to_itself(fd) ? ECONNREFUSED : 0;
}

}  // namespace

TcpConnection::TcpConnection(const TcpStoreOptions& options, const Deadline& deadline, bool retry)
    : name_("tcp store " + host_and_port(options.host, options.port)) {
  const std::vector<TcpAddress> addresses = resolve(options.host, options.port, deadline);
  // A server that is flooded with connections loses some of them, and some answers never arrive.
  constexpr Duration kConnectTime{1000};
  constexpr Duration kHandshakeTime{5000};
  constexpr Duration kLongestPause{200};
  std::optional<Error> refusal;  // more informative than the timeout of the last attempt
  for (Duration pause{5};; pause = std::min(pause * 2, kLongestPause)) {
    if (const int failed = connect(addresses, deadline.at_most(kConnectTime)); failed != 0) {
      if (deadline.expired() && !refusal) {
        fail(ErrorCode::timeout,
             "{}: no server could be reached within {} ms ({}): check host and port, and that it runs", name_,
             deadline.timeout().count(), errno_text(failed));
      }
      if (!retry && failed != ETIMEDOUT && !deadline.expired())
        fail(ErrorCode::peer_lost, "{}: the server is gone: {}", name_, errno_text(failed));
    } else {
      try {
        shake_hands(options, deadline.at_most(kHandshakeTime));
        return;
      } catch (const Error& error) {
        // The server is busy with other new clients, or has its maximum number of clients. Try again, because
        // both may change.
        if (error.code() == ErrorCode::peer_lost) {
          refusal.emplace(ErrorCode::timeout,
                          fmt::format("{} (tried for {} ms)", error.message(), deadline.timeout().count()));
        } else if (error.code() == ErrorCode::out_of_resources) {
          refusal = error;
        } else if (error.code() != ErrorCode::timeout || (deadline.expired() && !refusal)) {
          throw;
        }
      }
    }
    if (deadline.expired() && refusal) throw Error(*refusal);
    pause_in_wait(pause, deadline, kWait);
  }
}

int TcpConnection::connect(const std::vector<TcpAddress>& addresses, const Deadline& deadline) {
  int error = 0;
  for (const TcpAddress& address : addresses) {
    fd_ = open_socket(address);
    error = connect_to(fd_.get(), address, deadline);
    if (error == 0) {
      const int on = 1;
      (void)::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return 0;
    }
  }
  fd_.reset();
  return error;
}

void TcpConnection::shake_hands(const TcpStoreOptions& options, const Deadline& deadline) {
  const std::string nonce = fresh_nonce();
  const std::string answer = exchange_or_fail(encode_hello(ClientHello{.nonce = nonce}), deadline);
  const ServerHello hello = parse_server_hello(answer);
  if (hello.version != kProtocolVersion) {
    fail(ErrorCode::protocol,
         "{}: the server has protocol version {}, this library {}: use the same onehop on both", name_,
         hello.version, kProtocolVersion);
  }
  require(!hello.secret_required || !options.secret.empty(),
          "{}: the server asks for a secret and none was given", name_);
  require(hello.secret_required || options.secret.empty(),
          "{}: a secret was given, but this server has none: is it the one you meant?", name_);
  instance_ = hello.instance;
  const std::string theirs =
      exchange_or_fail(proof(Side::client, options.secret, nonce, hello.nonce), deadline);
  require(equal_constant_time(theirs, proof(Side::server, options.secret, nonce, hello.nonce)),
          "{}: the server does not know the secret: is it the one you meant?", name_);
}

std::string TcpConnection::exchange_or_fail(std::string_view message, const Deadline& deadline) {
  const std::optional<std::string> frame = exchange(message, deadline);
  if (!frame) {
    fail(ErrorCode::timeout, "{}: no answer to the handshake within {} ms: is this a onehop tcp store?",
         name_, deadline.timeout().count());
  }
  const Reply reply = parse_reply(*frame);
  if (reply.kind == ReplyKind::error) fail(reply.code, "{}: {}", name_, reply.bytes);
  return std::string(reply.bytes);
}

std::optional<std::string> TcpConnection::exchange(std::string_view message, const Deadline& deadline) {
  std::string frame = encode_frame_header(message.size());
  frame += message;
  if (send_all(frame, deadline) == Io::deadline) return std::nullopt;
  std::string header(kFrameHeaderBytes, '\0');
  if (receive_all(header.data(), header.size(), deadline) == Io::deadline) return std::nullopt;
  const std::size_t size = parse_frame_header(header);
  if (size > kMaxFrameBytes) {
    fail(ErrorCode::protocol, "{}: a reply of {} bytes: this is not a onehop tcp store", name_, size);
  }
  std::string reply(size, '\0');
  if (receive_all(reply.data(), size, deadline) == Io::deadline) return std::nullopt;
  return reply;
}

TcpConnection::Io TcpConnection::send_all(std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_until_ready(fd_.get(), POLLOUT, deadline)) return Io::deadline;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Io::done;  // the server's last message can still be read, and is more informative
    } else if (errno != EINTR) {
      fail_errno(errno, name_ + ": cannot send");
    }
  }
  return Io::done;
}

TcpConnection::Io TcpConnection::receive_all(char* to, std::size_t size, const Deadline& deadline) {
  while (size > 0) {
    const ssize_t n = ::recv(fd_.get(), to, size, 0);
    if (n > 0) {
      to += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0 || errno == ECONNRESET || errno == EPIPE) {
      fail(ErrorCode::peer_lost, "{}: the server closed the connection: it has ended, or refuses this client",
           name_);
    } else if (errno == EAGAIN) {
      if (!wait_until_ready(fd_.get(), POLLIN, deadline)) return Io::deadline;
    } else if (errno != EINTR) {
      fail_errno(errno, name_ + ": cannot receive");
    }
  }
  return Io::done;
}

}  // namespace onehop::store
