// SPDX-License-Identifier: Apache-2.0
// Whom a rank waits for, and who is to blame when it waits in vain.
//
// Ranks wait for each other in chains: rank 1 for rank 0, which waits for rank 3, which is stopped. All have
// about the same deadline, and whoever reaches it first names one rank to all. So shortly before, it asks
// everyone whom they wait for. Whoever reads its sockets answers at once: a rank that waits, and the watch
// thread of one that has a GPU. A stopped rank does not.
#include <bit>
#include <thread>

#include "base/check.h"
#include "group/mesh.h"

namespace onehop {
namespace {

/// How much later than its deadline a rank of a sub-group may name one that does not answer. A fifth of the
/// 100 ms by which any call may exceed its deadline (docs/reliability.md).
constexpr Duration kTimeToHear{20};

/// Lowest first.
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

std::uint64_t IpcChannel::Mesh::ask() {
  const std::lock_guard lock(state_mutex_);
  const std::uint64_t number = ++last_query_;
  const std::string bytes =
      encode(MeshMessage{.kind = MessageKind::query, .payload = encode(Query{.number = number})});
  for (const Peer& each : peers_) {
    if (each.socket) (void)os::send_message(each.socket.get(), bytes, -1, Deadline::after(Duration{0}));
  }
  return number;
}

Rank IpcChannel::Mesh::silent(std::uint64_t query) {
  const std::lock_guard lock(state_mutex_);
  for (int r = 0; r < size_; ++r) {
    Peer& each = peers_[static_cast<std::size_t>(r)];
    pump(each);
    if (r != rank_.value && each.answered < query) return Rank{r};
  }
  return {};
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
    awaited = next & ~seen & (size_ == 64 ? ~RankSet{0} : (RankSet{1} << size_) - 1);
    seen |= awaited;
  }
  return silent.none() ? idle : silent;
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
  if (query_ == 0 && deadline.with_time_to_ask().expired()) query_ = mesh_.ask();
}

void IpcChannel::Mesh::Wait::end() {
  const std::lock_guard lock(mesh_.state_mutex_);
  std::erase(mesh_.waits_, this);
}

Rank IpcChannel::Mesh::Wait::blame(Rank awaited, const char* phase) {
  if (query_ == 0) return awaited;
  Rank found = mesh_.holds_up(set_of(awaited), query_);
  // A rank that does not answer may be waiting in the split that made this group, for a rank outside of it.
  // Its deadline is earlier than ours, and it is about to say whom it waited for.
  const Duration time_to_hear = mesh_.parent_ranks_.empty() ? Duration{0} : kTimeToHear;
  for (const Deadline end = Deadline::after(time_to_hear); !mesh_.silent(query_).none() && !end.expired();
       found = mesh_.holds_up(set_of(awaited), query_)) {
    mesh_.check(phase);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return found.none() ? awaited : found;
}

std::string awaited_text(const IpcChannel::Mesh& mesh, Rank awaited, Rank blamed) {
  if (awaited == blamed) return fmt::format("rank {}", mesh.named(awaited).value);
  return fmt::format("rank {}, which waits for rank {}", mesh.named(awaited).value, mesh.named(blamed).value);
}

}  // namespace onehop
