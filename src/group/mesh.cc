// SPDX-License-Identifier: Apache-2.0
#include "group/mesh.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

// Longest sleep between two looks at the group's state. A failure that another thread of this rank noticed
// ends a wait within this time.
constexpr Duration kSlice{20};
// How long a failing or leaving rank tries to reach a peer whose socket is full.
constexpr Duration kFarewell{20};
// How many messages a peer may be ahead by. Collectives keep ranks within a few of each other.
constexpr std::size_t kMaxInbox = 1024;

/// How error messages name what a message belongs to.
std::string_view name_of(std::string_view call, MessageKind kind) {
  if (!call.empty()) return call;
  return kind == MessageKind::descriptor ? "send_fd or recv_fd" : "send or recv";
}

}  // namespace

IpcChannel::Mesh::Mesh(Rank rank, int size, std::vector<os::UniqueFd> sockets,
                       std::vector<os::ProcessWatch> processes, Parent parent)
    : rank_(rank),
      size_(size),
      parent_(std::move(parent)),
      own_numbers_(parent_.ranks.empty()),
      peers_(static_cast<std::size_t>(size)),
      survivors_(rank, size) {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!sockets[r]) continue;
    peers_[r].guard.emplace(sockets[r].get());
    peers_[r].socket = std::move(sockets[r]);
    if (r < processes.size()) peers_[r].process = std::move(processes[r]);
  }
}

IpcChannel::Mesh::~Mesh() {
  leave();
}

Rank IpcChannel::Mesh::named(Rank r) const {
  if (own_numbers_.load(std::memory_order_relaxed)) return r;
  return parent_.ranks[static_cast<std::size_t>(r.value)];
}

IpcChannel::Mesh::Peer& IpcChannel::Mesh::peer(Rank r) {
  require(r.value >= 0 && r.value < size_ && r != rank_, "rank {} is not a peer of rank {} in a group of {}",
          r.value, rank_.value, size_);
  return peers_[static_cast<std::size_t>(r.value)];
}

void IpcChannel::Mesh::require_not_forked(const char* phase) const {
  if (generation_ != os::fork_generation()) {
    fail(ErrorCode::invalid_argument,
         "{}: this process was forked from the rank; its copy of the group is dead; join again", phase);
  }
}

void IpcChannel::Mesh::require_usable(const char* phase) const {
  require_not_forked(phase);
  if (left()) fail(ErrorCode::invalid_argument, "{}: this rank has left the group", phase);
}

Error IpcChannel::Mesh::gone(Rank who, const char* phase) const {
  const bool bye = peers_[static_cast<std::size_t>(who.value)].said_bye;
  return Error(ErrorCode::peer_lost,
               fmt::format("rank {} {} by rank {} during {}", named(who).value,
                           bye ? "has left the group; seen" : "died; noticed", named(rank_).value, phase),
               named(who));
}

/// Moves everything that has arrived from a peer into its inbox.
void IpcChannel::Mesh::pump(Peer& from) {
  while (from.socket && !from.closed && from.inbox.size() < kMaxInbox) {
    os::Message raw;
    if (!os::recv_message(from.socket.get(), raw, Deadline::passed())) return;
    if (raw.closed) {
      from.closed = true;
      return;
    }
    Received received{.message = parse_mesh_message(raw.bytes), .fd = std::move(raw.fd)};
    if (raw.fd_lost) received.message.descriptor = DescriptorState::lost;
    receive(from, std::move(received));
  }
}

void IpcChannel::Mesh::receive(Peer& from, Received received) {
  switch (received.message.kind) {
    case MessageKind::bye:
      from.said_bye = true;
      return;
    case MessageKind::failure: {
      const Status status = parse_status(received.message.payload);
      if (!failure_ && !status.ok()) {
        failure_.emplace(status.code, status.message, status.origin);
        superseded_ = received.message.call == kSuccession;
        failed_.store(true, std::memory_order_relaxed);
      }
      return;
    }
    case MessageKind::query: {
      const Answer answer{.number = parse_query(received.message.payload).number,
                          .awaited = awaited_locked()};
      const MeshMessage message{.kind = MessageKind::answer, .payload = encode(answer)};
      // If there is no room, the answer is lost, and the peer takes this rank for a silent one.
      (void)os::send_message(from.socket.get(), encode(message), -1, Deadline::passed());
      return;
    }
    case MessageKind::answer: {
      const Answer answer = parse_answer(received.message.payload);
      from.answered = std::max(from.answered, answer.number);
      from.awaits = answer.awaited;
      return;
    }
    case MessageKind::survivors:
      survivors_.hear(Rank{static_cast<int>(&from - peers_.data())},
                      parse_survivors(received.message.payload));
      return;
    case MessageKind::successor:
      from.successor = std::move(received);
      return;
    case MessageKind::bytes:
    case MessageKind::descriptor:
    case MessageKind::refusal:
      from.inbox.push_back(std::move(received));
  }
}

/// Tells every rank of the failure, once, before any call on this rank returns it. After that the memory is
/// the caller's again, and a peer that still reads it must be able to find out. This includes failures that
/// another rank reported, since that rank may not have reached everyone.
void IpcChannel::Mesh::report_locked() {
  if (reported_) return;
  reported_ = true;
  const std::string bytes = failure_message();
  for (const Peer& each : peers_) {
    if (each.socket) (void)os::send_message(each.socket.get(), bytes, -1, Deadline::after(kFarewell));
  }
}

void IpcChannel::Mesh::read_all_locked() {
  for (Peer& each : peers_) {
    const bool died = !each.closed && each.process.has_died();  // checked before its last messages are read
    pump(each);
    if (died) each.closed = true;
  }
}

bool IpcChannel::Mesh::look_locked(const char* phase) {
  require_usable(phase);
  read_all_locked();
  if (failure_) {
    report_locked();
    return true;
  }
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    // A peer that said goodbye may have finished what this rank still works on. A rank that waits for it
    // reports the loss.
    if (!peers_[r].closed || peers_[r].said_bye) continue;
    // Tell all ranks before this rank's caller hears of it. If the caller then leaves, its goodbye must not
    // arrive before the reason.
    failure_ = gone(Rank{static_cast<int>(r)}, phase);
    failed_.store(true, std::memory_order_relaxed);
    report_locked();
    return true;
  }
  return false;
}

void IpcChannel::Mesh::throw_failure_locked() {
  thrown_ = true;
  throw Error(*failure_);
}

void IpcChannel::Mesh::check_locked(const char* phase) {
  if (look_locked(phase)) throw_failure_locked();
}

bool IpcChannel::Mesh::look(const char* phase) {
  require_not_forked(phase);
  const std::lock_guard lock(state_mutex_);
  return look_locked(phase);
}

std::optional<Error> IpcChannel::Mesh::unreported() const {
  if (generation_ != os::fork_generation()) return std::nullopt;
  const std::lock_guard lock(state_mutex_);
  if (thrown_) return std::nullopt;
  return failure_;
}

void IpcChannel::Mesh::check(const char* phase) {
  require_not_forked(phase);
  const std::lock_guard lock(state_mutex_);
  check_locked(phase);
}

void IpcChannel::Mesh::transmit(Rank to, MeshMessage message, int fd, const Deadline& deadline,
                                const char* phase) {
  require_not_forked(phase);
  Peer& target = peer(to);
  Wait wait(*this);
  while (true) {
    {
      const std::lock_guard lock(state_mutex_);
      require_usable(phase);
      // A peer that has not heard of the failure yet must not take this message for a part of its call.
      if (failure_) check_locked(phase);
      // Numbered and sent under one lock: messages of two threads arrive in the order of their numbers, and a
      // message that was not sent leaves no gap.
      message.sequence = target.sent;
      const os::SendStatus status =
          os::send_message(target.socket.get(), encode(message), fd, Deadline::passed());
      if (status == os::SendStatus::sent) {
        ++target.sent;
        return;
      }
      check_locked(phase);  // also empties the sockets of peers that cannot send to this rank either
      if (status == os::SendStatus::closed) throw gone(to, phase);
    }
    if (deadline.expired()) {
      const Blame blame = wait.blame(to, phase);
      fail_from(blame.origin, ErrorCode::timeout, "{}: rank {} waited {} ms to send to {}", phase,
                named(rank_).value, deadline.timeout().count(), blame.awaited);
    }
    throw_if_interrupted(phase);
    wait.look(set_of(to), deadline);
    wait_for_news(to, deadline);
  }
}

void IpcChannel::Mesh::wait_for_news(Rank writable, const Deadline& deadline) {
  std::array<pollfd, std::size_t{2} * kMaxHostRanks> entries;  // one socket and one process per peer
  nfds_t count = 0;
  {
    const std::lock_guard lock(state_mutex_);
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      const Peer& each = peers_[r];
      const bool listening = !each.closed && each.inbox.size() < kMaxInbox;
      const bool sending = static_cast<int>(r) == writable.value;
      if (!each.socket || (!listening && !sending)) continue;
      if (!each.closed && each.process.watches())
        entries[count++] = {.fd = each.process.fd(), .events = POLLIN, .revents = 0};
      const int events = (listening ? POLLIN : 0) | (sending ? POLLOUT : 0);
      entries[count++] = {.fd = each.socket.get(), .events = static_cast<short>(events), .revents = 0};
    }
  }
  // If another thread leaves meanwhile, this polls closed or foreign descriptors and only wakes at a wrong
  // time.
  (void)::poll(entries.data(), count, deadline.poll_ms(kSlice));
}

IpcChannel::Mesh::Received IpcChannel::Mesh::take(Rank from, MessageKind kind, const char* call,
                                                  const Deadline& deadline, const char* phase) {
  require_not_forked(phase);
  Peer& source = peer(from);
  Wait wait(*this);
  while (true) {
    {
      const std::lock_guard lock(state_mutex_);
      pump(source);  // first: what a peer sent before it left still counts
      if (!source.inbox.empty()) {
        Received received = std::move(source.inbox.front());
        source.inbox.pop_front();
        if (received.message.sequence != source.received) {
          fail_from(named(from), ErrorCode::protocol, "{}: rank {} sent message {} where {} was expected",
                    phase, named(from).value, received.message.sequence, source.received);
        }
        ++source.received;
        const bool fits = received.message.kind == kind ||
                          (received.message.kind == MessageKind::refusal && kind == MessageKind::bytes);
        if (!fits || received.message.call != call) {
          fail_from(named(from), ErrorCode::mismatch, "ranks disagree: rank {} calls {}, rank {} calls {}",
                    named(rank_).value, name_of(call, kind), named(from).value,
                    name_of(received.message.call, received.message.kind));
        }
        return received;
      }
      const bool failed = look_locked(phase);
      // It arrived since the first look, perhaps followed by a goodbye, or by a failure.
      if (!source.inbox.empty()) continue;
      if (failed) throw_failure_locked();
      if (source.closed) throw gone(from, phase);
    }
    if (deadline.expired()) wait.throw_timeout(from, deadline.timeout(), phase);
    throw_if_interrupted(phase);
    wait.look(set_of(from), deadline);
    // Wait for news from all peers: another peer's death or failure report ends this wait as well.
    wait_for_news(Rank{}, deadline);
  }
}

void IpcChannel::Mesh::send(Rank to, std::string_view payload, const Deadline& deadline, const char* phase) {
  require(payload.size() <= kMaxPayload, "{}: {} bytes exceed the {} that fit in one message", phase,
          payload.size(), kMaxPayload);
  transmit(to, {.kind = MessageKind::bytes, .payload = std::string(payload)}, -1, deadline, phase);
}

std::string IpcChannel::Mesh::recv(Rank from, const Deadline& deadline, const char* phase) {
  return take(from, MessageKind::bytes, "", deadline, phase).message.payload;
}

void IpcChannel::Mesh::send_fd(Rank to, int fd, const Deadline& deadline, const char* call) {
  const DescriptorState state = fd < 0 ? DescriptorState::none : DescriptorState::attached;
  transmit(to, {.kind = MessageKind::descriptor, .descriptor = state, .payload = {}, .call = call}, fd,
           deadline, "sending a descriptor");
}

os::UniqueFd IpcChannel::Mesh::recv_fd(Rank from, const Deadline& deadline, const char* call) {
  Received received = take(from, MessageKind::descriptor, call, deadline, "receiving a descriptor");
  const DescriptorState state = received.message.descriptor;
  if (state == DescriptorState::lost || (state == DescriptorState::attached && !received.fd)) {
    fail(ErrorCode::out_of_resources,
         "a descriptor from rank {} could not be received by rank {}: out of file descriptors (raise ulimit "
         "-n)",
         named(from).value, named(rank_).value);
  }
  return std::move(received.fd);
}

template <class F>
auto IpcChannel::Mesh::collective(const Deadline& deadline, const char* phase, F&& body) {
  require_not_forked(phase);
  try {
    if (!call_mutex_.try_lock() &&
        !call_mutex_.try_lock_until(deadline, [&] { throw_if_interrupted(phase); }))
      throw out_of_turn(deadline.timeout(), phase);
    const std::lock_guard turn(call_mutex_, std::adopt_lock);
    return body();
  } catch (const Error& error) {
    fail_call(error, phase);
  }
}

std::vector<std::string> IpcChannel::Mesh::all_gather(std::string_view payload, const Deadline& deadline,
                                                      const char* phase, Status refusal) {
  if (refusal.ok() && payload.size() > kMaxPayload) {
    refusal = {.code = ErrorCode::invalid_argument,
               .origin = named(rank_),
               .message = fmt::format("{}: {} bytes of rank {} exceed the {} that fit in one message", phase,
                                      payload.size(), named(rank_).value, kMaxPayload)};
  }
  std::vector<std::string> all(static_cast<std::size_t>(size_));
  Status first_refusal;
  collective(deadline, phase, [&] {
    const MeshMessage message{.kind = refusal.ok() ? MessageKind::bytes : MessageKind::refusal,
                              .payload = refusal.ok() ? std::string(payload) : encode(refusal),
                              .call = phase};
    for (int step = 1; step < size_; ++step) {
      os::fault_point("all_gather.send", rank_.value);
      transmit(Rank{(rank_.value + step) % size_}, message, -1, deadline, phase);
    }
    // Receive from all ranks, even if one refuses: no message may be left for the next call.
    for (int r = 0; r < size_; ++r) {
      Status refused;
      if (r == rank_.value) {
        refused = refusal;
        if (refusal.ok()) all[static_cast<std::size_t>(r)] = payload;
      } else {
        Received received = take(Rank{r}, MessageKind::bytes, phase, deadline, phase);
        if (received.message.kind == MessageKind::refusal) refused = parse_status(received.message.payload);
        all[static_cast<std::size_t>(r)] = std::move(received.message.payload);
      }
      if (first_refusal.ok()) first_refusal = std::move(refused);
    }
  });
  first_refusal.throw_if_failed();
  return all;
}

std::vector<os::UniqueFd> IpcChannel::Mesh::all_gather_fds(int fd, const Deadline& deadline) {
  constexpr const char* kCall = "all_gather_fds";
  return collective(deadline, kCall, [&] {
    std::vector<os::UniqueFd> all(static_cast<std::size_t>(size_));
    const Rank right{(rank_.value + 1) % size_};
    const Rank left{(rank_.value + size_ - 1) % size_};
    // Step s passes on the descriptor of the rank s to the left.
    for (int step = 0; step + 1 < size_; ++step) {
      const auto outgoing = static_cast<std::size_t>((rank_.value + size_ - step) % size_);
      const auto incoming = static_cast<std::size_t>((rank_.value + size_ - step - 1) % size_);
      send_fd(right, step == 0 ? fd : all[outgoing].get(), deadline, kCall);
      all[incoming] = recv_fd(left, deadline, kCall);
    }
    return all;
  });
}

os::UniqueFd IpcChannel::Mesh::broadcast_fds(int fd, Rank root, const Deadline& deadline) {
  constexpr const char* kCall = "broadcast_fds";
  return collective(deadline, kCall, [&]() -> os::UniqueFd {
    require(root.value >= 0 && root.value < size_, "root {} is not a rank of a group of {}", root.value,
            size_);
    if (rank_ != root) return recv_fd(root, deadline, kCall);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_.value) send_fd(Rank{r}, fd, deadline, kCall);
    }
    return {};
  });
}

std::string IpcChannel::Mesh::failure_message() const {
  const Status status{.code = failure_->code(), .origin = failure_->origin(), .message = failure_->message()};
  return encode(MeshMessage{
      .kind = MessageKind::failure, .payload = encode(status), .call = superseded_ ? kSuccession : ""});
}

void IpcChannel::Mesh::fail_group(const Error& error) noexcept {
  record_failure(error, error.origin().none() ? named(rank_) : error.origin(), false);
}

void IpcChannel::Mesh::supersede(const char* phase) noexcept {
  const Rank own = named(rank_);
  record_failure(Error(ErrorCode::aborted,
                       fmt::format("{}: rank {} makes a group of the ranks that are left", phase, own.value)),
                 own, true);
}

bool IpcChannel::Mesh::superseded() const {
  const std::lock_guard lock(state_mutex_);
  return superseded_;
}

void IpcChannel::Mesh::fail_with_parent(const Error& error) noexcept {
  const auto member = std::find(parent_.ranks.begin(), parent_.ranks.end(), error.origin());
  const Rank origin =
      member == parent_.ranks.end() ? Rank{} : Rank{static_cast<int>(member - parent_.ranks.begin())};
  try {
    record_failure(
        Error(error.code(), "in the split that made this group, in its parent's numbers: " + error.message()),
        origin, false);
  } catch (const std::exception&) {
    // Out of memory: the other members see this rank leave.
  }
}

void IpcChannel::Mesh::record_failure(const Error& error, Rank origin, bool superseded) noexcept {
  try {
    if (generation_ != os::fork_generation()) return;
    const std::lock_guard lock(state_mutex_);
    if (left()) return;
    if (!failure_) {
      failure_.emplace(error.code(), error.message(), origin);
      superseded_ = superseded;
    }
    failed_.store(true, std::memory_order_relaxed);
    report_locked();
  } catch (const std::exception& e) {
    // The peers still see this rank's sockets close when it leaves.
    log::warn("telling the group of a failure: {}", e.what());
  }
}

void IpcChannel::Mesh::fail_call(const Error& error, const char* phase) {
  const Rank own = named(rank_);
  const Error told =
      error.origin().none()
          ? Error(error.code(), fmt::format("{}: rank {}: {}", phase, own.value, error.message()), own)
          : error;
  fail_group(told);
  if (generation_ == os::fork_generation()) {
    const std::lock_guard lock(state_mutex_);
    if (failure_)
      throw_failure_locked();  // the error that the other ranks see, which may be another rank's earlier one
  }
  throw told;
}

void IpcChannel::Mesh::leave() noexcept {
  if (left_.exchange(true)) return;
  try {
    // The child of a fork has no other threads, and one that stayed in the parent may hold the mutex.
    const bool forked = generation_ != os::fork_generation();
    std::unique_lock lock(state_mutex_, std::defer_lock);
    if (!forked) lock.lock();
    std::vector<std::string> last_words;
    // A peer that has not heard of the failure yet would take this rank's leaving for the cause.
    if (failure_ && !reported_) last_words.push_back(failure_message());
    last_words.push_back(encode(MeshMessage{.kind = MessageKind::bye, .payload = {}}));
    for (Peer& each : peers_) {
      // A goodbye that does not fit is no loss: the closed socket then reads as a death, which ends waits as
      // well.
      for (const std::string& bytes : last_words) {
        if (each.socket && !forked)
          (void)os::send_message(each.socket.get(), bytes, -1, Deadline::after(kFarewell));
      }
      each.guard.reset();
      each.socket.reset();
      each.inbox.clear();
    }
  } catch (const std::exception& e) {
    log::warn("leaving a group: {}", e.what());
  }
}

}  // namespace onehop
