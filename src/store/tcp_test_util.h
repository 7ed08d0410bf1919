// SPDX-License-Identifier: Apache-2.0
// Misbehaving clients and servers of the TCP store, for tests.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/deadline.h"
#include "os/unique_fd.h"
#include "store/store_test_util.h"
#include "store/tcp_address.h"
#include "store/tcp_protocol.h"

namespace onehop {

inline TcpStoreOptions at_port(std::uint16_t port, Duration timeout = kDefaultTimeout) {
  return {.port = port, .timeout = timeout};
}

/// A client that can misbehave.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) {
    const store::TcpAddress address = store::resolve("127.0.0.1", port).front();
    fd_ = os::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd_.get(), address.get(), address.size) != 0) fail_errno(errno, "connect");
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // closed: the tests examine only what can be read
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void send_frame(std::string_view message) {
    send(store::encode_frame_header(message.size()).append(message));
  }
  void end_sending() { (void)::shutdown(fd_.get(), SHUT_WR); }
  void end() { (void)::shutdown(fd_.get(), SHUT_RDWR); }

  /// Returns nullopt if the server closes the connection instead.
  std::optional<std::string> read_frame(Duration timeout = Duration{20000}) {
    const Deadline deadline = Deadline::after(timeout);
    const std::optional<std::string> header = read(store::kFrameHeaderBytes, deadline);
    return header ? read(store::parse_frame_header(*header), deadline) : std::nullopt;
  }

  void shake_hands(const std::string& secret) {
    const std::string nonce(store::kNonceBytes, 'c');
    send_frame(encode_hello(store::ClientHello{.nonce = nonce}));
    const std::string answer = read_frame().value();
    const store::ServerHello hello = store::parse_server_hello(store::parse_reply(answer).bytes);
    send_frame(proof(store::Side::client, secret, nonce, hello.nonce));
    EXPECT_EQ(store::parse_reply(read_frame().value()).kind, store::ReplyKind::value);
  }

 private:
  std::optional<std::string> read(std::size_t size, const Deadline& deadline) {
    std::string out;
    while (out.size() < size) {
      pollfd entry = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, deadline.poll_ms()) <= 0) {
        if (!deadline.expired()) continue;
        ADD_FAILURE() << "neither a reply nor the end of the connection in time";
        return std::nullopt;
      }
      char buffer[4096];
      const ssize_t n = ::recv(fd_.get(), buffer, std::min(sizeof buffer, size - out.size()), 0);
      if (n <= 0) return std::nullopt;
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
  }

  os::UniqueFd fd_;
};

/// A server in a separate process, which can be stopped and killed.
class ServerProcess {
 public:
  explicit ServerProcess(const TcpStoreOptions& options = {}) {
    int ports[2];
    if (::pipe2(ports, O_CLOEXEC) != 0) fail_errno(errno, "pipe2");
    child_ = ::fork();
    if (child_ == 0) {
      const std::unique_ptr<TcpStoreServer> server = TcpStoreServer::start(options);
      const std::uint16_t port = server->port();
      if (::write(ports[1], &port, sizeof port) != sizeof port) ::_exit(1);
      for (;;) ::pause();
    }
    if (::read(ports[0], &port_, sizeof port_) != sizeof port_) fail_errno(errno, "read");
    ::close(ports[0]);
    ::close(ports[1]);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() { kill(); }

  /// Returns after the server has stopped.
  void stop() const {
    (void)::kill(child_, SIGSTOP);
    (void)::waitpid(child_, nullptr, WUNTRACED);
  }
  void go_on() const { (void)::kill(child_, SIGCONT); }
  void kill() {
    if (child_ <= 0) return;
    (void)::kill(child_, SIGKILL);
    (void)::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

/// A reserved port without a listener; only a server that is told to may use it.
class ReservedPort {
 public:
  ReservedPort() {
    const store::TcpAddress any = store::resolve("127.0.0.1", 0).front();
    const int on = 1;
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd_.get(), any.get(), any.size) != 0) fail_errno(errno, "bind");
  }
  [[nodiscard]] std::uint16_t port() const { return store::local_address(fd_.get()).port(); }

 private:
  os::UniqueFd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

}  // namespace onehop
