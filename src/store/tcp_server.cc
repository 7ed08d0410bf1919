// The TCP store's server: one thread, one event loop, so that no lock is needed and no client can hold up
// another. Each client has one Session; requests of one connection are answered one after the other, and a
// get whose key is missing parks its session in the list of that key's waiters.
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "onehop/store.h"

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "os/unique_fd.h"
#include "store/key_table.h"
#include "store/rules.h"
#include "store/tcp_address.h"
#include "store/tcp_protocol.h"

namespace onehop {

TcpStoreServer::~TcpStoreServer() = default;

namespace store {
namespace {

using asio::ip::tcp;

constexpr std::size_t kMaxConnections = 1024;
constexpr std::chrono::seconds kHandshakeTime{5};
// For the rest of a request to arrive once its size has, and for a client to take its reply.
constexpr std::chrono::seconds kTransferTime{30};
// Requests being received, of all clients together.
constexpr std::size_t kMaxReceivingBytes = std::size_t{256} << 20;

class Session;

/// What the sessions share. Touched by the loop's thread only.
struct Hub {
  Hub(std::string secret_in, std::uint64_t instance_in)
      : secret(std::move(secret_in)), instance(instance_in) {}

  void wake_waiters(const std::string& key);
  void forget_waiter(const std::string& key, const Session* session);

  const std::string secret;
  const std::uint64_t instance;
  KeyTable table;
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Session>>> waiters;
  std::size_t receiving_bytes = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Hub& hub, tcp::socket socket)
      : hub_(hub), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

  void start() {
    hub_.sessions.insert(shared_from_this());
    close_after(kHandshakeTime);
    read_header();
  }

  /// Refuses a client that was never admitted. It learns why if it is listening, and nobody waits for it.
  static void turn_away(tcp::socket socket, std::string_view reason) {
    const std::string reply =
        encode_reply({.kind = ReplyKind::error, .bytes = reason, .code = ErrorCode::out_of_resources});
    asio::error_code ignored;
    (void)socket.write_some(asio::buffer(encode_frame_header(reply.size()) + reply), ignored);
  }

  void close() {
    if (phase_ == Phase::closed) return;
    const std::shared_ptr<Session> self = shared_from_this();  // the hub may hold the last reference but this
    if (phase_ == Phase::waiting) hub_.forget_waiter(waiting_key_, this);
    phase_ = Phase::closed;
    release_body();
    stop_timer();
    asio::error_code ignored;
    socket_.close(ignored);
    hub_.sessions.erase(self);
  }

  /// The key this session waits for exists now.
  void resolve(const KeyTable::Value& value) { reply_value(value); }

 private:
  // hello -> proof -> idle -> [waiting ->] replying -> idle; replying also between the first three; closed
  // from any.
  enum class Phase { hello, proof, idle, waiting, replying, closed };

  /// Runs `then` unless the session was closed meanwhile; whatever it throws ends this session and no other.
  template <class F>
  auto guarded(F then) {
    return
        [self = shared_from_this(), then = std::move(then)](const asio::error_code& error, std::size_t = 0) {
          if (self->phase_ == Phase::closed) return;
          try {
            then(*self, error);
          } catch (const std::exception& failure) {
            log::info("tcp store server: closing a client's connection: {}", failure.what());
            self->close();
          }
        };
  }

  template <class F>
  void after(std::chrono::steady_clock::duration time, F then) {
    // The generation drops expiries that were queued already when the timer was stopped or set anew.
    const std::uint64_t generation = ++timer_generation_;
    timer_.expires_after(time);
    timer_.async_wait(guarded([generation, then](Session& s, const asio::error_code& error) {
      if (!error && generation == s.timer_generation_) then(s);
    }));
  }
  void close_after(std::chrono::steady_clock::duration time) {
    after(time, [](Session& s) { s.close(); });
  }
  void stop_timer() {
    ++timer_generation_;
    timer_.cancel();
  }

  // A read is under way at all times, also while waiting and replying: that is how a client's leaving is
  // noticed.
  void read_header() {
    asio::async_read(socket_, asio::buffer(header_), guarded([](Session& s, const asio::error_code& error) {
                       if (error) return s.reached_end();
                       s.header_ready_ = true;
                       if (s.phase_ != Phase::waiting && s.phase_ != Phase::replying) s.read_body();
                     }));
  }

  void reached_end() {
    // A client that only closed its sending side still gets the reply that is on its way.
    if (phase_ == Phase::replying) {
      last_reply_ = true;
    } else {
      close();
    }
  }

  void read_body() {
    header_ready_ = false;
    const std::size_t size = parse_frame_header(std::string_view(header_.data(), header_.size()));
    if (size > (admitted_ ? kMaxFrameBytes : kMaxHandshakeBytes)) return close();
    if (admitted_) close_after(kTransferTime);
    if (hub_.receiving_bytes + size > kMaxReceivingBytes) return skip_body(size);
    body_.resize(size);
    hub_.receiving_bytes += size;
    asio::async_read(socket_, asio::buffer(body_), guarded([](Session& s, const asio::error_code& error) {
                       if (error) return s.close();
                       if (s.admitted_) s.stop_timer();
                       s.handle_frame();
                     }));
  }

  /// Takes a request there is no room for off the wire, so that its sender can be told.
  void skip_body(std::size_t left) {
    if (left == 0) {
      return reply_error(ErrorCode::out_of_resources,
                         "the tcp store server is receiving too much at once: try again");
    }
    const std::size_t part = std::min(left, skipped_.size());
    asio::async_read(socket_, asio::buffer(skipped_, part),
                     guarded([left, part](Session& s, const asio::error_code& error) {
                       if (error) return s.close();
                       s.skip_body(left - part);
                     }));
  }

  void release_body() {
    hub_.receiving_bytes -= body_.size();
    std::string().swap(body_);  // unlike clear(), frees it
  }

  void handle_frame() {
    switch (phase_) {
      case Phase::hello:
        handle_hello();
        break;
      case Phase::proof:
        handle_proof();
        break;
      default:
        handle_request();
        break;
    }
    release_body();
  }

  void handle_hello() {
    const ClientHello hello = parse_client_hello(body_);
    nonce_ = random_bytes(kNonceBytes);
    client_nonce_ = hello.nonce;
    const std::string answer = encode_hello(
        ServerHello{.secret_required = !hub_.secret.empty(), .instance = hub_.instance, .nonce = nonce_});
    last_reply_ =
        hello.version != kProtocolVersion;  // our hello tells it our version; there is no more to say
    reply({.kind = ReplyKind::value, .bytes = answer}, Phase::proof);
  }

  void handle_proof() {
    if (!equal_constant_time(body_, proof(Side::client, hub_.secret, client_nonce_, nonce_))) {
      last_reply_ = true;
      return reply({.kind = ReplyKind::error,
                    .bytes = "the secret does not match the server's",
                    .code = ErrorCode::invalid_argument},
                   Phase::proof);
    }
    admitted_ = true;
    const std::string mine = proof(Side::server, hub_.secret, client_nonce_, nonce_);
    reply({.kind = ReplyKind::value, .bytes = mine}, Phase::idle);
  }

  void handle_request() {
    const Request request = parse_request(body_);
    try {
      execute(request);
    } catch (const Error& error) {
      reply_error(error.code(), error.message());
    }
  }

  void execute(const Request& request) {
    const std::string key(request.key);
    switch (request.op) {
      case Op::set:
        hub_.table.set(key, request.value);
        reply({.kind = ReplyKind::done}, Phase::idle);
        break;
      case Op::get:
        return get(key, request.timeout);
      case Op::add:
        reply({.kind = ReplyKind::number, .number = hub_.table.add(key, request.delta)}, Phase::idle);
        break;
      case Op::compare_set: {
        const std::string held = hub_.table.compare_set(key, request.expected, request.value);
        reply({.kind = ReplyKind::value, .bytes = held}, Phase::idle);
        break;
      }
      case Op::erase:
        return reply({.kind = hub_.table.erase(key) ? ReplyKind::done : ReplyKind::missing}, Phase::idle);
    }
    hub_.wake_waiters(key);
  }

  void get(const std::string& key, Duration timeout) {
    if (const KeyTable::Value value = hub_.table.find(key)) return reply_value(value);
    if (timeout.count() == 0) return reply({.kind = ReplyKind::missing}, Phase::idle);
    phase_ = Phase::waiting;
    waiting_key_ = key;
    hub_.waiters[key].push_back(shared_from_this());
    constexpr Duration kLongest =
        std::chrono::hours{24 * 365};  // keeps the clock's arithmetic from overflowing
    after(std::min(timeout, kLongest), [](Session& s) {
      s.hub_.forget_waiter(s.waiting_key_, &s);
      s.reply({.kind = ReplyKind::missing}, Phase::idle);
    });
    read_header();
  }

  void reply_error(ErrorCode code, std::string_view message) {
    reply({.kind = ReplyKind::error, .bytes = message, .code = code}, Phase::idle);
  }
  void reply(const Reply& answer, Phase next) {
    const std::string bytes = encode_reply(answer);
    send(encode_frame_header(bytes.size()) + bytes, nullptr, next);
  }
  void reply_value(const KeyTable::Value& value) {
    send(encode_value_head(value->size()), value, Phase::idle);
  }

  void send(std::string head, KeyTable::Value value, Phase next) {
    const bool was_waiting = phase_ == Phase::waiting;
    if (admitted_) close_after(kTransferTime);
    phase_ = Phase::replying;
    head_ = std::move(head);
    value_ = std::move(value);
    const std::array<asio::const_buffer, 2> parts = {asio::buffer(head_),
                                                     value_ ? asio::buffer(*value_) : asio::const_buffer()};
    asio::async_write(socket_, parts, guarded([next](Session& s, const asio::error_code& error) {
                        if (error || s.last_reply_) return s.close();
                        s.value_ = nullptr;
                        s.phase_ = next;
                        if (s.admitted_) s.stop_timer();
                        if (s.header_ready_) s.read_body();
                      }));
    if (!was_waiting) read_header();
  }

  Hub& hub_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  std::uint64_t timer_generation_ = 0;
  Phase phase_ = Phase::hello;
  bool admitted_ = false;      ///< it has proved that it knows the secret
  bool header_ready_ = false;  ///< the header of the next request came while this one was being served
  bool last_reply_ = false;    ///< close once the reply is out
  std::array<char, kFrameHeaderBytes> header_ = {};
  std::array<char, 4096> skipped_ = {};
  std::string body_;  ///< counted in hub_.receiving_bytes
  std::string client_nonce_;
  std::string nonce_;
  std::string waiting_key_;
  std::string head_;
  KeyTable::Value value_;
};

void Hub::wake_waiters(const std::string& key) {
  const auto it = waiters.find(key);
  if (it == waiters.end()) return;
  const KeyTable::Value value = table.find(key);
  const std::vector<std::shared_ptr<Session>> woken = std::move(it->second);
  waiters.erase(it);
  for (const std::shared_ptr<Session>& session : woken) session->resolve(value);
}

void Hub::forget_waiter(const std::string& key, const Session* session) {
  const auto it = waiters.find(key);
  if (it == waiters.end()) return;
  std::erase_if(it->second, [&](const std::shared_ptr<Session>& waiter) { return waiter.get() == session; });
  if (it->second.empty()) waiters.erase(it);
}

/// Accepts clients and runs the loop.
class Loop {
 public:
  Loop(os::UniqueFd listener, const TcpAddress& address, std::string secret, std::uint64_t instance)
      : hub_(std::move(secret), instance),
        protocol_(address.is_ipv6() ? tcp::v6() : tcp::v4()),
        acceptor_(io_, protocol_, listener.get()),
        accept_timer_(io_) {
    (void)listener.release();  // the acceptor's now
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
    // Sessions handle their own failures; what arrives here is a failed accept, and must not end the server.
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
      if (!error) accept_all();
    });
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        admit(os::UniqueFd(fd));
      } else if (errno == EAGAIN) {
        return accept_when_ready();
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The client stays in the backlog. Asking again at once would spin until a descriptor is free.
        log::warn("tcp store server: cannot accept a client: {}; trying again", errno_text(errno));
        accept_timer_.expires_after(std::chrono::milliseconds{100});
        return accept_timer_.async_wait([this](const asio::error_code& error) {
          if (!error) accept_all();
        });
      }
      // Any other error concerns that one client, which has gone already.
    }
  }

  void admit(os::UniqueFd fd) {
    tcp::socket socket(io_, protocol_, fd.get());
    (void)fd.release();
    asio::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (hub_.sessions.size() >= kMaxConnections) {
      log::warn("tcp store server: turned a client away: {} are connected already", kMaxConnections);
      return Session::turn_away(
          std::move(socket), fmt::format("the tcp store server has its {} clients already", kMaxConnections));
    }
    std::make_shared<Session>(hub_, std::move(socket))->start();
  }

  /// Leaves the loop without work, so that run() returns.
  void close_all() {
    asio::error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    const auto sessions = hub_.sessions;  // close() takes itself out of the original
    for (const std::shared_ptr<Session>& session : sessions) session->close();
  }

  Hub hub_;
  asio::io_context io_{1};
  tcp protocol_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_timer_;
  std::thread thread_;
};

class Server final : public TcpStoreServer {
 public:
  Server(os::UniqueFd listener, const TcpAddress& address, const TcpStoreOptions& options)
      : port_(address.port()), owner_(::getpid()) {
    std::uint64_t instance = 0;
    std::memcpy(&instance, random_bytes(sizeof instance).data(), sizeof instance);
    loop_ = std::make_unique<Loop>(std::move(listener), address, options.secret, instance);
  }

  ~Server() override {
    // In a forked child there is no loop thread to join, and the loop's epoll set is still the parent's:
    // closing anything through it would take the parent's connections out of that set.
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
  const store::TcpAddress address = store::resolve(options.host, options.port).front();
  const std::string name = store::host_and_port(options.host, options.port);
  require(
      address.is_loopback() || !options.secret.empty(),
      "a tcp store server on {} can be reached from other hosts: give it a secret, or listen on 127.0.0.1",
      name);
  os::UniqueFd listener = store::open_socket(address);
  // Takes over a port that only old connections in TIME_WAIT still use; never one that another server listens
  // on.
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
  return std::make_unique<store::Server>(std::move(listener), bound, options);
}

}  // namespace onehop
