// SPDX-License-Identifier: Apache-2.0
// The TCP store's server: one thread with one event loop, so that no lock is needed and no client can block
// another.
#include <poll.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "onehop/store.h"

#include "base/check.h"
#include "base/log.h"
#include "os/random.h"
#include "os/spare_descriptors.h"
#include "os/unique_fd.h"
#include "store/tcp_address.h"
#include "store/tcp_session.h"

namespace onehop {

TcpStoreServer::~TcpStoreServer() = default;

namespace store {
namespace {

using asio::ip::tcp;

// Connections accepted in a row before existing ones are served.
constexpr int kAcceptBatch = 64;

/// Accepts clients and runs the loop.
class Loop {
 public:
  Loop(os::UniqueFd listener, const TcpAddress& address, std::string secret, std::uint64_t instance)
      : hub_(std::move(secret), instance),
        protocol_(address.is_ipv6() ? tcp::v6() : tcp::v4()),
        acceptor_(io_, protocol_, listener.get()),
        accept_timer_(io_) {
    (void)listener.release();  // now owned by the acceptor
    accept_when_ready();
    thread_ = std::thread([this] { run(); });
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  ~Loop() {
    asio::post(io_, [this] { close_all(); });
    thread_.join();
  }

 private:
  void run() noexcept {
    // Sessions handle their own failures. An error here is a failed accept, which must not end the server.
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& failure) {
        log::warn("tcp store server: {}", failure.what());
      }
    }
  }

  void accept_when_ready() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const asio::error_code& error) {
      if (!error) {
        accept_all();
      } else if (acceptor_.is_open()) {
        log::warn("tcp store server: cannot wait for clients: {}; trying again", error.message());
        accept_later(std::chrono::milliseconds{100});
      }
    });
  }

  void accept_later(std::chrono::steady_clock::duration pause) {
    accept_timer_.expires_after(pause);
    accept_timer_.async_wait([this](const asio::error_code& error) {
      if (!error) accept_all();
    });
  }

  void accept_all() {
    if (!acceptor_.is_open()) return;
    for (int i = 0; i < kAcceptBatch; ++i) {
      // Meanwhile new clients wait in the backlog.
      const auto pause = hub_.newcomers.time_until_room();
      if (pause.count() > 0) return accept_later(pause);
      spare_.refill();
      os::UniqueFd fd = accept();
      if (fd) {
        told_shortage_ = false;
        admit(std::move(fd), {});
      } else if (errno == EAGAIN) {
        return accept_when_ready();
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const int failure = errno;
        // Without descriptors, accept4 also fails where no client waits.
        if (!client_waits()) return accept_when_ready();
        if (hub_.close_oldest_newcomer()) continue;
        // Tell the client; otherwise it stays in the backlog. Accepting again at once would spin until a
        // descriptor is free.
        if (!std::exchange(told_shortage_, true))
          log::warn("tcp store server: cannot accept a client: {}; trying again", explain_errno(failure));
        if (spare_.give_up_one() && (fd = accept())) {
          admit(std::move(fd),
                fmt::format("the server's process cannot accept another client: {}", explain_errno(failure)));
        }
        return accept_later(std::chrono::milliseconds{100});
      }
      // Any other error concerns only that client, which is already gone.
    }
    accept_later({});
  }

  os::UniqueFd accept() {
    return os::UniqueFd(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }

  bool client_waits() {
    pollfd listener{.fd = acceptor_.native_handle(), .events = POLLIN, .revents = 0};
    return ::poll(&listener, 1, 0) > 0;
  }

  /// Sends `refusal` to a client that is not served.
  void admit(os::UniqueFd fd, std::string refusal) {
    tcp::socket socket(io_);
    asio::error_code refused;
    socket.assign(protocol_, fd.get(), refused);
    if (refused) {
      log::warn("tcp store server: cannot serve a client: {}", refused.message());
      return;
    }
    (void)fd.release();
    asio::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (hub_.newcomers.size() >= Newcomers::kMax) (void)hub_.close_oldest_newcomer();
    start_session(hub_, std::move(socket), std::move(refusal));
  }

  /// Removes all work from the loop, so that run() returns.
  void close_all() {
    asio::error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    hub_.close_all_sessions();
  }

  Hub hub_;
  asio::io_context io_{1};
  tcp protocol_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_timer_;
  bool told_shortage_ = false;     ///< since a client was accepted last
  os::SpareDescriptors spare_{1};  ///< for telling a client that no descriptors are available
  std::thread thread_;
};

class Server final : public TcpStoreServer {
 public:
  Server(os::UniqueFd listener, const TcpAddress& address, const TcpStoreOptions& options)
      : port_(address.port()), owner_(::getpid()) {
    loop_ = std::make_unique<Loop>(std::move(listener), address, options.secret, os::random_u64());
  }

  ~Server() override {
    // A forked child has no loop thread to join, and the loop's epoll set is still the parent's: closing
    // anything through it would remove the parent's connections from that set.
    if (::getpid() != owner_) (void)loop_.release();
  }

  std::uint16_t port() const override { return port_; }

 private:
  std::uint16_t port_;
  pid_t owner_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace
}  // namespace store

std::unique_ptr<TcpStoreServer> TcpStoreServer::start(const TcpStoreOptions& options) {
  const store::TcpAddress address =
      store::resolve(options.host, options.port, Deadline::after(options.timeout)).front();
  const std::string name = store::host_and_port(options.host, options.port);
  require(
      address.is_loopback() || !options.secret.empty(),
      "a tcp store server on {} can be reached from other hosts: give it a secret, or listen on 127.0.0.1",
      name);
  os::UniqueFd listener = store::open_socket(address);
  // Allows a port that is used only by old connections in TIME_WAIT, but never one on which another server
  // listens.
  const int on = 1;
  (void)::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), address.get(), address.size) != 0 || ::listen(listener.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) {
      fail(ErrorCode::system,
           "cannot listen on {}: the port is in use; choose another, or 0 for any free one", name);
    }
    fail_errno(errno, fmt::format("cannot listen on {}", name));
  }
  const store::TcpAddress bound = store::local_address(listener.get());
  try {
    return std::make_unique<store::Server>(std::move(listener), bound, options);
  } catch (const std::system_error& error) {
    fail_errno(error.code().value(), fmt::format("starting a tcp store server on {}", name));
  }
}

}  // namespace onehop
