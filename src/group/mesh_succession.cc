// SPDX-License-Identifier: Apache-2.0
// After a failure: the ranks that survived agree on who they are (survivors.h), over the sockets that they have, and
// connect to each other anew. New sockets separate what follows from the messages of the failed group.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/interrupt.h"
#include "group/mesh.h"
#include "os/fault_point.h"
#include "os/random.h"

namespace onehop {

RankSet IpcChannel::Mesh::gone_locked() const {
  RankSet gone = 0;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].closed) gone |= set_of(Rank{static_cast<int>(r)});
  }
  return gone;
}

void IpcChannel::Mesh::tell_all_locked(const SurvivorsMessage& message) {
  const std::string bytes = encode(MeshMessage{.kind = MessageKind::survivors, .payload = encode(message)});
  for (Peer& each : peers_) {
    if (each.socket && !each.closed) each.unsent.emplace_back(bytes, os::UniqueFd());
  }
}

/// The lower rank of each pair creates both ends.
void IpcChannel::Mesh::connect_survivors_locked() {
  std::vector<os::UniqueFd> sockets(peers_.size());
  const std::string bytes = encode(
      MeshMessage{.kind = MessageKind::successor, .descriptor = DescriptorState::attached, .payload = {}});
  for (auto r = static_cast<std::size_t>(rank_.value) + 1; r < peers_.size(); ++r) {
    if ((survivors_.decision()->ranks & set_of(Rank{static_cast<int>(r)})) == 0) continue;
    std::pair<os::UniqueFd, os::UniqueFd> ends = os::socket_pair();
    sockets[r] = std::move(ends.first);
    if (!peers_[r].closed) peers_[r].unsent.emplace_back(bytes, std::move(ends.second));
  }
  successor_sockets_ = std::move(sockets);
}

void IpcChannel::Mesh::send_unsent_locked() {
  for (Peer& each : peers_) {
    while (!each.unsent.empty()) {
      os::fault_point("shrink.send", rank_.value);
      const auto& [bytes, fd] = each.unsent.front();
      const os::SendStatus status =
          each.closed ? os::SendStatus::closed
                      : os::send_message(each.socket.get(), bytes, fd.get(), Deadline::passed());
      if (status == os::SendStatus::timed_out) break;
      each.unsent.pop_front();
    }
  }
}

RankSet IpcChannel::Mesh::advance_succession_locked(const char* phase) {
  require_usable(phase);
  // Messages of calls that the failure ended. They are never taken, and must not keep the rest from being read.
  for (Peer& each : peers_) each.inbox.clear();
  read_all_locked();
  const RankSet gone = gone_locked();
  while (const std::optional<SurvivorsMessage> message = survivors_.next(gone)) tell_all_locked(*message);
  const bool decided = survivors_.decision().has_value();
  if (decided && successor_sockets_.empty()) connect_survivors_locked();
  send_unsent_locked();
  if (!decided) return survivors_.awaited(gone);

  RankSet awaited = 0;
  for (int r = 0; r < size_; ++r) {
    const Peer& each = peers_[static_cast<std::size_t>(r)];
    if ((survivors_.decision()->ranks & set_of(Rank{r})) == 0 || r == rank_.value || each.closed) continue;
    const bool connected = r > rank_.value || each.successor.message.kind == MessageKind::successor;
    if (!connected || !each.unsent.empty()) awaited |= set_of(Rank{r});
  }
  return awaited;
}

IpcChannel::Mesh::Successor IpcChannel::Mesh::succeed(const Deadline& deadline, const char* phase) {
  require_not_forked(phase);
  const os::Id proposal = os::random_id();
  if (usable()) supersede(phase);
  Wait wait(*this);
  while (true) {
    RankSet awaited = 0;
    Rank unsent;
    {
      const std::lock_guard lock(state_mutex_);
      thrown_ = true;  // its caller knows of the failure
      report_locked();
      survivors_.propose(proposal);
      awaited = advance_succession_locked(phase);
      for (int r = 0; r < size_; ++r) {
        if (!peers_[static_cast<std::size_t>(r)].unsent.empty()) unsent = Rank{r};
      }
      if (awaited == 0 && survivors_.decision()) break;
    }
    if (deadline.expired()) {
      const Blame blame = wait.blame(Rank{std::countr_zero(awaited)}, phase);
      fail_from(blame.origin, ErrorCode::timeout, "{}: rank {} waited {} ms for {}", phase,
                named(rank_).value, deadline.timeout().count(), blame.awaited);
    }
    throw_if_interrupted(phase);
    wait.look(awaited, deadline);
    wait_for_news(unsent, deadline);
  }

  const std::lock_guard lock(state_mutex_);
  Successor next{.mesh = {}, .ranks = {}, .id = survivors_.decision()->id};
  std::vector<os::UniqueFd> sockets;
  std::vector<os::ProcessWatch> processes;
  std::vector<Rank> names;
  Rank own;
  for (int r = 0; r < size_; ++r) {
    if ((survivors_.decision()->ranks & set_of(Rank{r})) == 0) continue;
    Peer& each = peers_[static_cast<std::size_t>(r)];
    if (r == rank_.value) own = Rank{static_cast<int>(next.ranks.size())};
    next.ranks.emplace_back(r);
    names.push_back(named(Rank{r}));
    processes.push_back(each.process.share());
    if (r >= rank_.value) {
      sockets.push_back(std::move(successor_sockets_[static_cast<std::size_t>(r)]));
    } else if (each.successor.fd) {
      sockets.push_back(std::move(each.successor.fd));
    } else if (each.successor.message.descriptor == DescriptorState::lost) {
      fail(ErrorCode::out_of_resources,
           "{}: a descriptor from rank {} could not be received by rank {}: out of file descriptors (raise "
           "ulimit -n)",
           phase, named(Rank{r}).value, named(rank_).value);
    } else {
      sockets.push_back(os::socket_pair().first);  // it died first: the new group sees it dead
    }
  }
  const int size = static_cast<int>(next.ranks.size());
  next.mesh = std::make_shared<Mesh>(own, size, std::move(sockets), std::move(processes),
                                     Parent{.mesh = {}, .ranks = std::move(names)});
  return next;
}

}  // namespace onehop
