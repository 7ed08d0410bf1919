// SPDX-License-Identifier: Apache-2.0
// Requests of one connection are answered one after the other. A get whose key is missing parks its session
// in the list of that key's waiters; the timer or a writer of that key ends the wait.
#include "store/tcp_session.h"

#include <array>
#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <chrono>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "store/tcp_protocol.h"

namespace onehop::store {

using asio::ip::tcp;

namespace {

constexpr std::chrono::seconds kHandshakeTime{5};
// Time limit for the rest of a request after its size has arrived, and for a client to receive its reply.
constexpr std::chrono::seconds kTransferTime{30};
// How often a request that waits for room checks whether a session has held it for too long.
constexpr std::chrono::milliseconds kRoomPause{100};

}  // namespace

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Hub& hub, tcp::socket socket, std::string refusal)
      : hub_(hub), socket_(std::move(socket)), refusal_(std::move(refusal)), timer_(socket_.get_executor()) {}

  void start() {
    hub_.sessions.insert(shared_from_this());
    hub_.newcomers.add(this);
    close_after(kHandshakeTime);
    read_header();
  }

  void close() {
    if (phase_ == Phase::closed) return;
    const std::shared_ptr<Session> self = shared_from_this();  // the hub may hold the only other reference
    if (phase_ == Phase::waiting) hub_.forget_waiter(waiting_key_, this);
    phase_ = Phase::closed;
    if (!admitted_) hub_.newcomers.remove(this);
    release_body();
    stop_timer();
    asio::error_code ignored;
    socket_.close(ignored);
    hub_.sessions.erase(self);
  }

  /// Called when there is room for the rest of this session's request.
  void receive_rest() {
    close_after(kTransferTime);
    read_part();
  }

  /// Called when the key that this session waits for exists.
  void resolve(const KeyTable::Value& value) { reply_value(value); }

 private:
  // hello -> proof -> idle -> [waiting ->] replying -> idle; replying also between the first three; closed
  // from any.
  enum class Phase { hello, proof, idle, waiting, replying, closed };

  /// Runs `then` unless the session has been closed. An exception ends this session and no other.
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
    // The generation number discards expiries that were already queued when the timer was stopped or set
    // anew.
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

  // A read is pending at all times, also while waiting and replying, so that the end of the connection is
  // detected.
  void read_header() {
    asio::async_read(socket_, asio::buffer(header_), guarded([](Session& s, const asio::error_code& error) {
                       if (error) return s.reached_end();
                       s.header_ready_ = true;
                       if (s.phase_ != Phase::waiting && s.phase_ != Phase::replying) s.read_body();
                     }));
  }

  void reached_end() {
    // A client that has closed only its sending side still receives the pending reply.
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
    body_bytes_ = size;
    read_part();
  }

  /// Memory grows only with received data, so announcing a large size costs nothing here.
  void read_part() {
    const std::size_t have = body_.size();
    const std::size_t part = std::min(body_bytes_ - have, ReceiveRoom::kFree);
    body_.resize(have + part);
    asio::async_read(socket_, asio::buffer(body_.data() + have, part),
                     guarded([](Session& s, const asio::error_code& error) {
                       if (error) return s.close();
                       s.received_part();
                     }));
  }

  void received_part() {
    if (body_.size() == body_bytes_) {
      if (admitted_) stop_timer();
      return handle_frame();
    }
    if (body_.size() > ReceiveRoom::kFree) return read_part();
    // The first part of a long request contains its operation; the rest is read when there is room.
    if (body_bytes_ > max_request_bytes(static_cast<std::uint8_t>(body_[0]))) return close();
    if (hub_.room.reserve(this, body_bytes_)) return receive_rest();
    wait_for_room();
  }

  void wait_for_room() {
    after(kRoomPause, [](Session& s) {
      s.wait_for_room();  // first, because closing the other one may end this wait
      if (Session* const other = s.hub_.room.overdue()) {
        log::info("tcp store server: closing a client that sends a long request too slowly: others wait");
        other->close();
      }
    });
  }

  void release_body() {
    std::string().swap(body_);  // unlike clear(), frees the memory
    hub_.room.release(this);
    while (Session* const next = hub_.room.next()) next->receive_rest();
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
    if (!refusal_.empty()) {
      last_reply_ = true;
      return reply({.kind = ReplyKind::error, .bytes = refusal_, .code = ErrorCode::out_of_resources},
                   Phase::proof);
    }
    nonce_ = fresh_nonce();
    client_nonce_ = hello.nonce;
    const std::string answer = encode_hello(
        ServerHello{.secret_required = !hub_.secret.empty(), .instance = hub_.instance, .nonce = nonce_});
    last_reply_ =
        hello.version != kProtocolVersion;  // our hello contains our version; no other reply is needed
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
    if (hub_.clients() >= Hub::kMaxClients) {
      log::info("tcp store server: turned a client away: {} are connected already", Hub::kMaxClients);
      last_reply_ = true;
      return reply({.kind = ReplyKind::error,
                    .bytes = fmt::format("the server has its {} clients already", Hub::kMaxClients),
                    .code = ErrorCode::out_of_resources},
                   Phase::proof);
    }
    admitted_ = true;
    hub_.newcomers.remove(this);
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
        std::chrono::hours{24 * 365};  // prevents overflow in the clock's arithmetic
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
  const std::string refusal_;  ///< if not empty, the only reply to this client
  asio::steady_timer timer_;
  std::uint64_t timer_generation_ = 0;
  Phase phase_ = Phase::hello;
  bool admitted_ = false;      ///< the client has proved that it knows the secret
  bool header_ready_ = false;  ///< the header of the next request has arrived while this one is served
  bool last_reply_ = false;    ///< close after sending the reply
  std::array<char, kFrameHeaderBytes> header_ = {};
  std::size_t body_bytes_ = 0;  ///< announced size of the request being received
  std::string body_;            ///< the received part of it
  std::string client_nonce_;
  std::string nonce_;
  std::string waiting_key_;
  std::string head_;
  KeyTable::Value value_;
};

void start_session(Hub& hub, tcp::socket socket, std::string refusal) {
  std::make_shared<Session>(hub, std::move(socket), std::move(refusal))->start();
}

void Hub::close_all_sessions() {
  const auto all = sessions;  // close() removes the session from the original
  for (const std::shared_ptr<Session>& session : all) session->close();
}

bool Hub::close_oldest_newcomer() {
  Session* const oldest = newcomers.oldest();
  if (oldest != nullptr) oldest->close();
  return oldest != nullptr;
}

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

}  // namespace onehop::store
