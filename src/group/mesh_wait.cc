// SPDX-License-Identifier: Apache-2.0
// Finds the rank to blame when a wait times out.
//
// Ranks wait for each other in chains: rank 1 for rank 0, which waits for rank 3, which is stopped. All have
// about the same deadline, and the first to reach it names one rank to all. So shortly before its deadline, a
// rank asks all others which rank they wait for. Every rank that reads its sockets answers at once: ranks
// that wait, and the watch thread of ranks with a GPU. A stopped rank does not.
#include <bit>

#include "base/check.h"
#include "group/mesh.h"

namespace onehop {
namespace {

/// Visits the lowest rank first.
template <class F>
void for_each(RankSet ranks, F&& body) {
  for (; ranks != 0; ranks &= ranks - 1) body(Rank{std::countr_zero(ranks)});
}

}  // namespace

RankSet IpcChannel::Mesh::awaited_locked() const {
  RankSet awaited = 0;
  for (const Wait* each : waits_) awaited |= each->awaited();
  return awaited;
}

IpcChannel::Mesh::Question IpcChannel::Mesh::ask() {
  Question question;
  if (const std::shared_ptr<Mesh> parent = parent_.mesh.lock()) question.in_parent = parent->ask().number;
  const std::lock_guard lock(state_mutex_);
  question.number = ++last_query_;
  const std::string bytes =
      encode(MeshMessage{.kind = MessageKind::query, .payload = encode(Query{.number = question.number})});
  for (const Peer& each : peers_) {
    if (each.socket) (void)os::send_message(each.socket.get(), bytes, -1, Deadline::after(Duration{0}));
  }
  return question;
}

RankSet IpcChannel::Mesh::silent(const Question& question) {
  const std::lock_guard lock(state_mutex_);
  RankSet silent = 0;
  for (int r = 0; r < size_; ++r) {
    Peer& each = peers_[static_cast<std::size_t>(r)];
    pump(each);
    if (r != rank_.value && each.answered < question.number) silent |= set_of(Rank{r});
  }
  return silent;
}

Rank IpcChannel::Mesh::holds_up(RankSet awaited, std::uint64_t query) {
  const std::lock_guard lock(state_mutex_);
  for (Peer& each : peers_) pump(each);
  RankSet seen = awaited;
  Rank idle;
  Rank silent;
  while (awaited != 0 && silent.none()) {
    RankSet next = 0;
    for_each(awaited, [&](Rank r) {
      if (r == rank_) return;
      const Peer& each = peers_[static_cast<std::size_t>(r.value)];
      if (each.answered < query) {
        if (silent.none()) silent = r;
      } else if (each.awaits == 0) {
        if (idle.none()) idle = r;
      } else {
        next |= each.awaits;
      }
    });
    awaited = next & ~seen & all_ranks(size_);
    seen |= awaited;
  }
  return silent.none() ? idle : silent;
}

Rank IpcChannel::Mesh::awaited_in_split(Rank held_up, const Question& question) {
  const std::shared_ptr<Mesh> parent = parent_.mesh.lock();
  if (!parent || question.number == 0 || (silent(question) & set_of(held_up)) == 0) return {};
  const Rank there = parent_.ranks[static_cast<std::size_t>(held_up.value)];
  const Rank found = parent->holds_up(set_of(there), question.in_parent);
  return found == there ? Rank{} : found;
}

IpcChannel::Mesh::Blame IpcChannel::Mesh::blame(Rank awaited, const Question& question, const char* phase) {
  Rank found = question.number == 0 ? awaited : holds_up(set_of(awaited), question.number);
  if (found.none()) found = awaited;
  if (const Rank outside = awaited_in_split(found, question); !outside.none()) {
    const Rank there = parent_.ranks[static_cast<std::size_t>(found.value)];
    if (!own_numbers_.load(std::memory_order_relaxed)) {
      return {.origin = outside,
              .awaited = fmt::format("rank {}, which waits for rank {}", there.value, outside.value)};
    }
    fail_with_parent(Error(ErrorCode::timeout,
                           fmt::format("rank {} waits for rank {}", there.value, outside.value), outside));
    check(phase);
  }
  std::string text = fmt::format("rank {}", named(awaited).value);
  if (found != awaited) text += fmt::format(", which waits for rank {}", named(found).value);
  return {.origin = named(found), .awaited = std::move(text)};
}

Error IpcChannel::Mesh::out_of_turn(Duration timeout, const char* phase) {
  RankSet awaited = 0;
  {
    const std::lock_guard lock(state_mutex_);
    awaited = awaited_locked();
  }
  const std::string text =
      fmt::format("{}: rank {} waited {} ms for a call that another of its threads makes on this group",
                  phase, named(rank_).value, timeout.count());
  if (awaited == 0) return {ErrorCode::timeout, text, named(rank_)};
  const Rank first{std::countr_zero(awaited)};
  return {ErrorCode::timeout, fmt::format("{}, and that waits for rank {}", text, named(first).value),
          named(first)};
}

void IpcChannel::Mesh::Wait::look(RankSet awaited, const Deadline& deadline) {
  if (awaited != awaited_) {
    const std::lock_guard lock(mesh_.state_mutex_);
    if (awaited_ == 0) mesh_.waits_.push_back(this);
    awaited_ = awaited;
  }
  if (question_.number == 0 && deadline.with_time_to_ask().expired()) question_ = mesh_.ask();
}

void IpcChannel::Mesh::Wait::throw_timeout(Rank awaited, Duration timeout, const char* phase) {
  const Blame found = blame(awaited, phase);
  fail_from(found.origin, ErrorCode::timeout, "{}: rank {} waited {} ms for {}", phase,
            mesh_.named(mesh_.rank()).value, timeout.count(), found.awaited);
}

void IpcChannel::Mesh::Wait::end() {
  const std::lock_guard lock(mesh_.state_mutex_);
  std::erase(mesh_.waits_, this);
}

}  // namespace onehop
