// SPDX-License-Identifier: Apache-2.0
#include "group/connect_mesh.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "group/messages.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

// How often a rank that waits for connections checks that the missing ranks are alive.
constexpr Duration kProbeInterval{100};
// Pause before another attempt to connect to a rank that had no room.
constexpr Duration kRetry{1};
// The most connections that have not sent their hello yet; beyond that, the oldest is dropped. Ranks send it
// at once, and connect again when they are dropped. One call also accepts no more than this, so that a
// process that connects continuously holds up nothing else.
constexpr std::size_t kMaxSilent = std::size_t{2} * kMaxHostRanks;

void require_same_user(int socket, Rank from) {
  const uid_t theirs = os::peer_uid(socket);
  if (theirs != ::geteuid()) {
    fail_from(from, ErrorCode::refused,
              "rank {} runs as user {}, this rank as user {}; all ranks must belong to one user", from.value,
              theirs, ::geteuid());
  }
}

/// Connections to this rank's listener that have not said which rank they come from. A stranger that sends
/// something else, or nothing, holds up no rank.
class Lobby {
 public:
  Lobby(const MeshPlan& plan, std::vector<os::UniqueFd>& sockets)
      : plan_(plan), sockets_(sockets), answer_(encode(MeshHello{.id = plan.id, .rank = plan.rank.value})) {}

  void add_to(std::vector<pollfd>& entries) const {
    entries.push_back({.fd = plan_.listener, .events = POLLIN, .revents = 0});
    for (const os::UniqueFd& each : silent_)
      entries.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
  }

  /// Assigns the connections of awaited ranks to their sockets. Does not wait.
  void admit() {
    std::erase_if(silent_, [&](os::UniqueFd& each) { return heard(each); });
    for (std::size_t i = 0; i < kMaxSilent; ++i) {
      os::UniqueFd socket = accept();
      if (!socket) return;
      if (heard(socket)) continue;
      if (silent_.size() == kMaxSilent) silent_.erase(silent_.begin());
      silent_.push_back(std::move(socket));
    }
  }

 private:
  os::UniqueFd accept() {
    try {
      return os::accept_unix(plan_.listener, Deadline::passed());
    } catch (const Error& error) {
      // Out of descriptors: drop the silent connections, which frees some.
      if (error.code() != ErrorCode::out_of_resources || silent_.empty()) throw;
      silent_.clear();
      return os::accept_unix(plan_.listener, Deadline::passed());
    }
  }

  /// True when this connection needs no more attention: accepted or turned away.
  bool heard(os::UniqueFd& socket) {
    os::Message raw;
    MeshHello hello;
    try {
      if (!os::recv_message(socket.get(), raw, Deadline::passed())) return false;
      if (raw.closed) return true;
      hello = parse_mesh_hello(raw.bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::protocol && error.code() != ErrorCode::refused) throw;
      log::info("a connection with an unexpected message is turned away: {}", error.message());
      return true;
    }
    const auto index = static_cast<std::size_t>(hello.rank);
    if (hello.id != plan_.id || hello.rank <= plan_.rank.value || index >= sockets_.size() || sockets_[index])
      return true;
    require_same_user(socket.get(), Rank{hello.rank});
    if (os::send_message(socket.get(), answer_, -1, Deadline::passed()) == os::SendStatus::sent)
      sockets_[index] = std::move(socket);
    return true;
  }

  const MeshPlan& plan_;
  std::vector<os::UniqueFd>& sockets_;
  const std::string answer_;
  std::vector<os::UniqueFd> silent_;
};

/// Fills `sockets`. Works on all ranks at the same time, so that a missing rank is itself the cause, and is
/// not waiting for yet another rank.
class Connector {
 public:
  /// `unanswered`: connections to lower ranks that have not answered.
  Connector(const MeshPlan& plan, const Deadline& deadline, std::vector<os::UniqueFd>& sockets,
            std::vector<os::UniqueFd>& unanswered)
      : plan_(plan),
        deadline_(deadline),
        sockets_(sockets),
        lobby_(plan, sockets),
        unanswered_(unanswered),
        hello_(encode(MeshHello{.id = plan.id, .rank = plan.rank.value})) {}

  void run() {
    // The connected ranks are waiting for this rank, not for the one that is missing here.
    const Deadline early = deadline_.with_time_to_tell();
    Deadline probe = Deadline::after(kProbeInterval);
    while (true) {
      bool retry = false;
      for (std::size_t r = 0; r < static_cast<std::size_t>(plan_.rank.value); ++r) {
        if (!sockets_[r] && !reach(r)) retry = true;
      }
      lobby_.admit();
      if (!first_missing()) return;
      if (probe.expired() || early.expired()) {
        examine(early.expired());
        probe = Deadline::after(kProbeInterval);
      }
      throw_if_interrupted("connecting");
      const Deadline& next = probe.at() < early.at() ? probe : early;
      wait(std::min(retry ? kRetry : kInterruptSlice, next.left()));
    }
  }

 private:
  [[nodiscard]] std::optional<std::size_t> first_missing() const {
    for (std::size_t r = 0; r < sockets_.size(); ++r) {
      if (r != static_cast<std::size_t>(plan_.rank.value) && !sockets_[r]) return r;
    }
    return std::nullopt;
  }

  /// One step towards lower rank r. False when only time can help.
  bool reach(std::size_t r) {
    os::UniqueFd& socket = unanswered_[r];
    if (!socket) {
      if (!open(r, socket)) return false;
      require_same_user(socket.get(), Rank{static_cast<int>(r)});
      if (os::send_message(socket.get(), hello_, -1, Deadline::passed()) != os::SendStatus::sent) {
        socket.reset();
        return false;
      }
    }
    os::Message raw;
    if (!os::recv_message(socket.get(), raw, Deadline::passed())) return true;
    if (raw.closed) {  // dropped for lack of room, or the owner is gone: the next attempt tells
      socket.reset();
      return false;
    }
    const MeshHello answer = parse_mesh_hello(raw.bytes);
    if (answer.id != plan_.id || answer.rank != static_cast<int>(r)) {
      fail_from(Rank{static_cast<int>(r)}, ErrorCode::protocol,
                "connecting: rank {} answers on {}, the socket of rank {}", answer.rank, plan_.paths[r], r);
    }
    sockets_[r] = std::move(socket);
    return true;
  }

  /// False when rank r's backlog has no room just now. Throws when nobody listens.
  bool open(std::size_t r, os::UniqueFd& socket) {
    const os::ConnectStatus status = os::try_connect_unix(plan_.paths[r], socket);
    if (status == os::ConnectStatus::nobody) {
      plan_.poll_failure(false);
      fail_from(Rank{static_cast<int>(r)}, ErrorCode::peer_lost,
                "connecting: nobody listens on {}: rank {} died or gave up, or does not share that directory "
                "(containers: point ONEHOP_RUNTIME_DIR at one they share)",
                plan_.paths[r], r);
    }
    return status == os::ConnectStatus::connected;
  }

  /// Throws when no connection can come any more.
  void examine(bool expired) {
    plan_.poll_failure(expired);
    const auto own = static_cast<std::size_t>(plan_.rank.value);
    for (std::size_t r = own + 1; r < sockets_.size(); ++r) {
      os::UniqueFd probed;
      if (!sockets_[r]) (void)open(r, probed);
    }
    if (!expired) return;
    const std::size_t missing = *first_missing();
    fail_from(Rank{static_cast<int>(missing)}, ErrorCode::timeout,
              "connecting: rank {} did not {} rank {} within {} ms", missing,
              missing < own ? "answer" : "come to", own, deadline_.timeout().count());
  }

  void wait(Duration longest) {
    std::vector<pollfd> entries;
    lobby_.add_to(entries);
    for (const os::UniqueFd& each : unanswered_) {
      if (each) entries.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
    }
    (void)::poll(entries.data(), entries.size(), static_cast<int>(longest.count()));
  }

  const MeshPlan& plan_;
  const Deadline& deadline_;
  std::vector<os::UniqueFd>& sockets_;
  Lobby lobby_;
  std::vector<os::UniqueFd>& unanswered_;
  const std::string hello_;
};

}  // namespace

std::shared_ptr<IpcChannel::Mesh> connect_mesh(const MeshPlan& plan, const Deadline& deadline) {
  std::vector<os::UniqueFd> sockets(plan.paths.size());
  const auto mesh = [&] {
    std::vector<os::ProcessWatch> processes;
    for (const os::UniqueFd& each : sockets)
      processes.push_back(each ? os::ProcessWatch::of_peer(each.get()) : os::ProcessWatch());
    return std::make_shared<IpcChannel::Mesh>(plan.rank, static_cast<int>(plan.paths.size()),
                                              std::move(sockets), std::move(processes));
  };
  std::vector<os::UniqueFd> unanswered(sockets.size());
  try {
    os::fault_point("connect", plan.rank.value);
    Connector(plan, deadline, sockets, unanswered).run();
  } catch (const Error& cause) {
    // An interrupt is left as it is, since Joiner::hurry_after recognizes it.
    const Error error = cause.code() == ErrorCode::aborted ? cause : naming(plan.rank, cause);
    // To a rank that is already connected, a closed socket would look like this rank's death. A rank that has
    // not answered may have accepted the connection all the same.
    for (std::size_t r = 0; r < sockets.size(); ++r) {
      if (!sockets[r]) sockets[r] = std::move(unanswered[r]);
    }
    mesh()->fail_group(error);
    throw error;
  }
  return mesh();
}

}  // namespace onehop
