#include "group/connect_mesh.h"

#include <poll.h>
#include <unistd.h>

#include "base/log.h"
#include "group/messages.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

// Looks without waiting.
const Deadline& no_wait() {
  static const Deadline passed = Deadline::after(Duration{0});
  return passed;
}
// How often a rank that waits for connections asks whether the missing ones are still alive.
constexpr Duration kProbeInterval{100};
// Connections that have not said yet who they are; beyond that the oldest goes. Ours say it at once.
constexpr std::size_t kMaxSilent = std::size_t{2} * kMaxHostRanks;

void require_same_user(int socket, Rank from) {
  const uid_t theirs = os::peer_uid(socket);
  if (theirs != ::geteuid()) {
    fail_from(from, ErrorCode::refused,
              "rank {} runs as user {}, this rank as user {}; ranks must be one user's", from.value, theirs,
              ::geteuid());
  }
}

[[noreturn]] void fail_unreachable(const MeshPlan& plan, Rank who) {
  fail_from(
      who, ErrorCode::peer_lost,
      "connecting: nobody listens on {}: rank {} died, or does not share that directory (containers: point "
      "ONEHOP_RUNTIME_DIR at one they share)",
      plan.paths[static_cast<std::size_t>(who.value)], who.value);
}

/// Connections to this rank's listener, until they have said which rank they come from. Whoever says
/// something else, or nothing, is in nobody's way.
class Lobby {
 public:
  Lobby(const MeshPlan& plan, std::vector<os::UniqueFd>& sockets) : plan_(plan), sockets_(sockets) {}

  /// Waits for somebody to connect or to speak, and moves the ranks that are awaited to their places.
  void admit(const Deadline& deadline) {
    std::vector<pollfd> entries{{.fd = plan_.listener, .events = POLLIN, .revents = 0}};
    for (const os::UniqueFd& each : silent_)
      entries.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
    (void)::poll(entries.data(), entries.size(), deadline.poll_ms());
    while (os::UniqueFd socket = os::accept_unix(plan_.listener, no_wait())) {
      if (silent_.size() == kMaxSilent) silent_.erase(silent_.begin());
      silent_.push_back(std::move(socket));
    }
    std::erase_if(silent_, [&](os::UniqueFd& each) { return heard(each); });
  }

 private:
  /// True when this connection is done with: placed, or turned away.
  bool heard(os::UniqueFd& socket) {
    os::Message raw;
    MeshHello hello;
    try {
      if (!os::recv_message(socket.get(), raw, no_wait())) return false;
      if (raw.closed) return true;
      hello = parse_mesh_hello(raw.bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::protocol && error.code() != ErrorCode::refused) throw;
      log::info("a connection that speaks something else is turned away: {}", error.message());
      return true;
    }
    const auto index = static_cast<std::size_t>(hello.rank);
    if (hello.id != plan_.id || hello.rank <= plan_.rank.value || index >= sockets_.size() || sockets_[index])
      return true;
    require_same_user(socket.get(), Rank{hello.rank});
    sockets_[index] = std::move(socket);
    return true;
  }

  const MeshPlan& plan_;
  std::vector<os::UniqueFd>& sockets_;
  std::vector<os::UniqueFd> silent_;
};

void connect_all(const MeshPlan& plan, const Deadline& deadline, std::vector<os::UniqueFd>& sockets) {
  const int size = static_cast<int>(plan.paths.size());
  os::fault_point("connect", plan.rank.value);

  const std::string hello = encode(MeshHello{.id = plan.id, .rank = plan.rank.value});
  for (int r = 0; r < plan.rank.value; ++r) {
    os::UniqueFd socket = os::connect_unix(plan.paths[static_cast<std::size_t>(r)], deadline);
    if (!socket) {
      plan.poll_failure();
      fail_unreachable(plan, Rank{r});
    }
    require_same_user(socket.get(), Rank{r});
    if (os::send_message(socket.get(), hello, -1, deadline) != os::SendStatus::sent)
      fail_unreachable(plan, Rank{r});
    sockets[static_cast<std::size_t>(r)] = std::move(socket);
  }

  Lobby lobby(plan, sockets);
  const auto first_missing = [&] {
    int r = plan.rank.value + 1;
    while (r < size && sockets[static_cast<std::size_t>(r)]) ++r;
    return r;
  };
  // Whoever is connected already waits for this rank, and not for the one that is missing here.
  const Deadline early = deadline.with_time_to_tell();
  Deadline probe = Deadline::after(kProbeInterval);
  while (first_missing() < size) {
    lobby.admit(probe.at() < early.at() ? probe : early);
    if (!probe.expired() && !early.expired()) continue;
    plan.poll_failure();
    for (int r = first_missing(); r < size; ++r) {
      if (sockets[static_cast<std::size_t>(r)]) continue;
      if (!os::connect_unix(plan.paths[static_cast<std::size_t>(r)], deadline))
        fail_unreachable(plan, Rank{r});
      if (early.expired()) {
        fail_from(Rank{r}, ErrorCode::timeout, "connecting: rank {} did not come to rank {} within {} ms", r,
                  plan.rank.value, deadline.timeout().count());
      }
    }
    probe = Deadline::after(kProbeInterval);
  }
}

}  // namespace

std::shared_ptr<IpcChannel::Mesh> connect_mesh(const MeshPlan& plan, const Deadline& deadline) {
  std::vector<os::UniqueFd> sockets(plan.paths.size());
  const auto mesh = [&] {
    return std::make_shared<IpcChannel::Mesh>(plan.rank, static_cast<int>(plan.paths.size()),
                                              std::move(sockets));
  };
  try {
    connect_all(plan, deadline, sockets);
  } catch (const Error& error) {
    // To a rank that is connected already, closed sockets would look like this rank's death.
    mesh()->fail_group(error);
    throw;
  }
  return mesh();
}

}  // namespace onehop
