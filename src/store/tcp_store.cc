#include <unistd.h>

#include <mutex>
#include <vector>

#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "store/rules.h"
#include "store/tcp_connection.h"
#include "store/tcp_protocol.h"

namespace onehop {
namespace {

using store::Op;
using store::Reply;
using store::ReplyKind;
using store::Request;
using store::TcpConnection;

// Beyond a get's own timeout, for the server's "missing" to arrive.
constexpr Duration kGrace{75};

/// A call takes an idle connection, or opens one when all are in use, and puts it back. So a thread that
/// waits for a key holds up no other, requests need no numbers, and there are as many connections as there
/// were calls at once: for a rank with one thread, one.
class TcpStore final : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options) : options_(options), owner_(::getpid()) {
    idle_.emplace_back(options_, Deadline::after(options_.timeout), /*retry=*/true);
    server_instance_ = idle_.back().server_instance();
  }

  void set(std::string_view key, std::string_view value) override {
    store::check_key(key);
    store::check_value(key, value);
    (void)ask({.op = Op::set, .key = key, .value = value});
  }

  std::optional<std::string> get_for(std::string_view key, Duration timeout) override {
    store::check_key(key);
    const Deadline deadline = Deadline::after(timeout);  // caps it, too
    if (timeout.count() == 0) return value_of(ask({.op = Op::get, .key = key}));
    const Duration wait = deadline.left();
    std::optional<Answer> answer =
        try_ask({.op = Op::get, .key = key, .timeout = wait}, Deadline::after(wait + kGrace));
    // A server that is silent for longer is, to this caller, the same as a key that stays missing.
    return answer ? value_of(*answer) : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) override {
    store::check_key(key);
    return ask({.op = Op::add, .key = key, .delta = delta}).reply.number;
  }

  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    store::check_exchange(key, expected, desired);
    return std::string(
        ask({.op = Op::compare_set, .key = key, .value = desired, .expected = expected}).reply.bytes);
  }

  bool delete_key(std::string_view key) override {
    store::check_key(key);
    return ask({.op = Op::erase, .key = key}).reply.kind == ReplyKind::done;
  }

  std::string describe() const override {
    return "tcp store " + store::host_and_port(options_.host, options_.port);
  }

 private:
  struct Answer {
    std::unique_ptr<const std::string>
        frame;  ///< what reply.bytes points into; a string would move away under it
    Reply reply;
  };

  static std::optional<std::string> value_of(const Answer& answer) {
    return answer.reply.kind == ReplyKind::missing ? std::nullopt
                                                   : std::optional<std::string>(answer.reply.bytes);
  }

  Answer ask(const Request& request) {
    std::optional<Answer> answer = try_ask(request, Deadline::after(options_.timeout));
    if (!answer) {
      fail(ErrorCode::timeout, "{}: the server did not answer within {} ms (key {})", describe(),
           options_.timeout.count(), store::quoted(request.key));
    }
    return *std::move(answer);
  }

  /// The server's answer, of a kind that fits the request; nullopt when the deadline passed first.
  std::optional<Answer> try_ask(const Request& request, const Deadline& deadline) {
    TcpConnection connection = take(deadline);
    std::optional<std::string> frame = connection.exchange(store::encode_request(request), deadline);
    if (!frame) return std::nullopt;
    Answer answer{.frame = std::make_unique<const std::string>(*std::move(frame)), .reply = {}};
    answer.reply = store::parse_reply(*answer.frame);
    if (!fits(answer.reply.kind, request.op)) {
      fail(ErrorCode::protocol, "{}: a reply of kind {} to operation {}", describe(),
           static_cast<int>(answer.reply.kind), static_cast<int>(request.op));
    }
    give_back(std::move(connection));
    if (answer.reply.kind == ReplyKind::error)
      throw Error(answer.reply.code, std::string(answer.reply.bytes));
    return answer;
  }

  static bool fits(ReplyKind kind, Op op) {
    if (kind == ReplyKind::error) return true;
    switch (op) {
      case Op::set:
        return kind == ReplyKind::done;
      case Op::get:
        return kind == ReplyKind::value || kind == ReplyKind::missing;
      case Op::add:
        return kind == ReplyKind::number;
      case Op::compare_set:
        return kind == ReplyKind::value;
      case Op::erase:
        return kind == ReplyKind::done || kind == ReplyKind::missing;
    }
    return false;
  }

  TcpConnection take(const Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      // A forked child has connections of its own: two processes on one would read each other's replies.
      if (const pid_t self = ::getpid(); self != owner_) {
        idle_.clear();
        owner_ = self;
      }
      if (!idle_.empty()) {
        TcpConnection connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    TcpConnection connection(options_, deadline, /*retry=*/false);
    if (connection.server_instance() != server_instance_) {
      fail(ErrorCode::peer_lost, "{}: the server was restarted and has forgotten all keys: connect anew",
           describe());
    }
    return connection;
  }

  void give_back(TcpConnection connection) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

  const TcpStoreOptions options_;
  std::uint64_t server_instance_ = 0;
  std::mutex mutex_;
  std::vector<TcpConnection> idle_;
  pid_t owner_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options) {
  return std::make_shared<TcpStore>(options);
}

std::shared_ptr<Store> tcp_store(const std::string& host, std::uint16_t port) {
  return tcp_store({.host = host, .port = port});
}

}  // namespace onehop
