// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <mutex>
#include <vector>

#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "store/grace.h"
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

constexpr std::string_view to_string(Op op) {
  switch (op) {
    case Op::set:
      return "set";
    case Op::get:
      return "get";
    case Op::add:
      return "add";
    case Op::compare_set:
      return "compare_set";
    case Op::erase:
      return "delete_key";
  }
  return "operation";
}

/// A call takes an idle connection, or opens one if all are in use, and returns it afterwards. Therefore a
/// thread that waits for a key blocks no other thread, and requests need no numbers. There are as many
/// connections as there were concurrent calls: one for a rank with one thread.
class TcpStore final : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options) : options_(options), owner_(::getpid()) {
    require(options_.port != 0, "a tcp store needs the port of its server (TcpStoreServer::port), got 0");
    idle_.emplace_back(options_, grace_.extend(Deadline::after(options_.timeout)), /*retry=*/true);
    server_instance_ = idle_.back().server_instance();
  }

  std::string describe() const override {
    return grace_.exhausted() ? name() + " (which does not answer)" : name();
  }

 private:
  std::string name() const { return "tcp store " + store::host_and_port(options_.host, options_.port); }

  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    (void)ask({.op = Op::set, .key = key, .value = value}, timeout);
  }

  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    const Duration wait = Deadline::after(timeout).left();  // limited to one year
    const Request request{.op = Op::get, .key = key, .timeout = wait};
    if (timeout.count() > 0) return value_of(ask(request, wait));
    // A caller that polls must not fail because the server was slow once.
    const std::optional<Answer> answer = try_ask(request, wait);
    return answer ? value_of(*answer) : std::nullopt;
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    return ask({.op = Op::add, .key = key, .delta = delta}, timeout).reply.number;
  }

  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    return std::string(
        ask({.op = Op::compare_set, .key = key, .value = desired, .expected = expected}, timeout)
            .reply.bytes);
  }

  bool do_delete_key(std::string_view key, Duration timeout) override {
    return ask({.op = Op::erase, .key = key}, timeout).reply.kind == ReplyKind::done;
  }

  struct Answer {
    /// reply.bytes points into it. On the heap, because a moved std::string may move its bytes.
    std::unique_ptr<const std::string> frame;
    Reply reply;
  };

  static std::optional<std::string> value_of(const Answer& answer) {
    return answer.reply.kind == ReplyKind::missing ? std::nullopt
                                                   : std::optional<std::string>(answer.reply.bytes);
  }

  Answer ask(const Request& request, Duration timeout) {
    std::optional<Answer> answer = try_ask(request, timeout);
    if (!answer) {
      store::fail_expired(to_string(request.op), request.key, timeout, name(), "its server does not answer");
    }
    return *std::move(answer);
  }

  /// Returns the server's reply, whose kind matches the request, or nullopt if the timeout passes first.
  std::optional<Answer> try_ask(const Request& request, Duration timeout) {
    if (timeout.count() == 0 && grace_.exhausted()) return std::nullopt;  // no time to try again
    const Deadline deadline = grace_.extend(Deadline::after(timeout));
    std::optional<TcpConnection> connection = take(deadline);
    std::optional<std::string> frame;
    if (connection) frame = connection->exchange(store::encode_request(request), deadline);
    if (!frame) {
      grace_.operation_expired();
      return std::nullopt;
    }
    grace_.operation_ended();
    Answer answer{.frame = std::make_unique<const std::string>(*std::move(frame)), .reply = {}};
    answer.reply = store::parse_reply(*answer.frame);
    if (!fits(answer.reply.kind, request.op)) {
      fail(ErrorCode::protocol, "{}: a reply of kind {} to operation {}", name(),
           static_cast<int>(answer.reply.kind), static_cast<int>(request.op));
    }
    give_back(*std::move(connection));
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

  /// Returns nullopt if the deadline passes before another connection is open.
  std::optional<TcpConnection> take(const Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      // A forked child opens its own connections: two processes on one would read each other's replies.
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
    std::optional<TcpConnection> connection;
    try {
      connection.emplace(options_, deadline, /*retry=*/false);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::timeout) return std::nullopt;
      throw;
    }
    if (connection->server_instance() != server_instance_) {
      fail(ErrorCode::peer_lost, "{}: the server was restarted and has forgotten all keys: connect anew",
           name());
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
  store::Grace grace_;
  pid_t owner_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options) {
  return std::make_shared<TcpStore>(options);
}

std::shared_ptr<Store> tcp_store(const std::string& host, std::uint16_t port, Duration timeout) {
  return tcp_store({.host = host, .port = port, .timeout = timeout});
}

}  // namespace onehop
