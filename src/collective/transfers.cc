// SPDX-License-Identifier: Apache-2.0
#include "collective/transfers.h"

#include <algorithm>
#include <span>
#include <tuple>

#include "base/check.h"
#include "base/log.h"
#include "kernel/host/copy.h"
#include "kernel/host/pairs.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

/// "1024 f32".
std::string describe(const host::Message& message) {
  return fmt::format("{} {}", message.count, to_string(static_cast<DType>(message.dtype)));
}

host::Message message_of(const Transfer& transfer) {
  return {.count = transfer.count, .dtype = static_cast<std::uint8_t>(transfer.type)};
}

Error disagreement(Rank sender, const host::Message& sent, Rank receiver, const host::Message& expected) {
  return {ErrorCode::mismatch,
          fmt::format("ranks disagree: rank {} sends {} to rank {}, which receives {}", sender.value,
                      describe(sent), receiver.value, describe(expected)),
          sender};
}

const char* name_of(const std::vector<Transfer>& transfers) {
  const auto is = [](CallKind kind) { return [kind](const Transfer& each) { return each.kind == kind; }; };
  if (std::all_of(transfers.begin(), transfers.end(), is(CallKind::send))) return "send";
  if (std::all_of(transfers.begin(), transfers.end(), is(CallKind::recv))) return "recv";
  return "send and recv";
}

/// The transfers with rank `peer`.
std::span<const Transfer> with(const std::vector<Transfer>& sorted, Rank peer) {
  const auto is_with = [&](const Transfer& each) { return each.peer == peer; };
  const auto first = std::find_if(sorted.begin(), sorted.end(), is_with);
  return {first, std::find_if_not(first, sorted.end(), is_with)};
}

/// How many of one peer's transfers are sends; the receives follow.
std::size_t count_sends(std::span<const Transfer> of_peer) {
  return static_cast<std::size_t>(std::count_if(
      of_peer.begin(), of_peer.end(), [](const Transfer& each) { return each.kind == CallKind::send; }));
}

/// What is left to move between this rank and one other, in one direction.
struct Lane {
  std::span<const Transfer> transfers;
  std::size_t done = 0;  ///< bytes of the first of them

  [[nodiscard]] const Transfer& current() const { return transfers.front(); }
  [[nodiscard]] int peer() const { return current().peer.value; }
  [[nodiscard]] bool sends() const { return current().kind == CallKind::send; }
};

/// Transfers on a host rank: chunk by chunk, on whichever lane can move one.
class HostTransfers {
 public:
  HostTransfers(Group::State& group, const std::vector<Transfer>& sorted, os::CallDeadline& deadline,
                const char* phase)
      : group_(group), pairs_(group.pairs()), deadline_(deadline), phase_(phase) {
    for (std::span<const Transfer> rest(sorted); !rest.empty() && rest.front().peer != group.rank();) {
      const Transfer& first = rest.front();
      const auto end = std::find_if(rest.begin(), rest.end(), [&](const Transfer& each) {
        return each.peer != first.peer || each.kind != first.kind;
      });
      const auto length = static_cast<std::size_t>(end - rest.begin());
      lanes_.push_back({.transfers = rest.first(length)});
      rest = rest.subspan(length);
    }
  }

  void run() {
    while (!lanes_.empty()) {
      bool moved = false;
      bool finished = false;
      for (Lane& lane : lanes_) {
        if (!ready(lane)) continue;
        moved = true;
        advance(lane);
        finished = finished || lane.transfers.empty();
      }
      if (finished) std::erase_if(lanes_, [](const Lane& lane) { return lane.transfers.empty(); });
      if (!moved) wait();
    }
  }

 private:
  [[nodiscard]] bool ready(const Lane& lane) const {
    return lane.sends() ? pairs_.has_room(lane.peer()) : pairs_.has_chunk(lane.peer());
  }

  /// Moves one chunk. A message of no bytes is one empty chunk, for it has to be matched, too.
  void advance(Lane& lane) {
    const Transfer& transfer = lane.current();
    const int peer = lane.peer();
    os::fault_point(data_fault_point(transfer.kind), group_.rank().value);
    const std::size_t bytes = transfer.bytes();
    const std::size_t chunk = std::min(pairs_.slot_bytes(), bytes - lane.done);
    if (lane.sends()) {
      pairs_.put(peer, message_of(transfer), transfer.in + lane.done, chunk);
    } else {
      // As long as they agree, both ends count the same chunks.
      const host::Message sent = pairs_.message(peer);
      if (const host::Message expected = message_of(transfer); sent != expected)
        throw disagreement(transfer.peer, sent, group_.rank(), expected);
      pairs_.take(peer, transfer.out + lane.done, chunk);
    }
    lane.done += chunk;
    if (lane.done == bytes) lane = {.transfers = lane.transfers.subspan(1)};
  }

  /// Until any lane can move a chunk.
  void wait() {
    const host::Team& team = group_.team();
    IpcChannel::Mesh& mesh = group_.mesh();
    const auto any_ready = [&] {
      return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return ready(lane); });
    };
    RankSet peers = 0;
    for (const Lane& lane : lanes_) peers |= set_of(lane.current().peer);
    IpcChannel::Mesh::Wait wait(mesh);
    const auto look_around = [&] {
      wait.look(peers, deadline_.arm());
      mesh.check(phase_);
      for (const Lane& lane : lanes_) {
        const Rank peer = lane.current().peer;
        if (mesh.has_left(peer))
          mesh.check_for(
              peer, [&] { return ready(lane); }, phase_);
      }
    };
    if (os::wait_on(team.bell(team.rank()), team.spin(), deadline_, any_ready, look_around)) return;
    const Transfer& awaited = lanes_.front().current();
    const IpcChannel::Mesh::Blame blame = wait.blame(awaited.peer, phase_);
    fail_from(blame.origin, ErrorCode::timeout, "{}: rank {} waited {} ms for {} to {} {}", phase_,
              team.rank(), deadline_.timeout().count(), blame.awaited,
              awaited.kind == CallKind::send ? "receive" : "send", describe(message_of(awaited)));
  }

  Group::State& group_;
  host::Pairs& pairs_;
  os::CallDeadline& deadline_;
  const char* phase_;
  std::vector<Lane> lanes_;
};

void copy_own(const std::vector<Transfer>& sorted, Rank rank) {
  const std::span<const Transfer> own = with(sorted, rank);
  const std::size_t sends = count_sends(own);
  for (std::size_t i = 0; i < sends; ++i) host::copy(own[sends + i].out, own[i].in, own[i].bytes());
}

}  // namespace

void sort_by_pair(std::vector<Transfer>& transfers, int rank, int ranks) {
  const auto place = [&](const Transfer& each) {
    return std::tuple((each.peer.value - rank - 1 + ranks) % ranks, each.kind);
  };
  std::stable_sort(transfers.begin(), transfers.end(),
                   [&](const Transfer& a, const Transfer& b) { return place(a) < place(b); });
}

void require_own_match(const std::vector<Transfer>& transfers, Rank rank) {
  const std::span<const Transfer> own = with(transfers, rank);
  const std::size_t sends = count_sends(own);
  if (own.size() != 2 * sends) {
    fail_from(rank, ErrorCode::mismatch,
              "rank {} sends itself {} times and receives from itself {} times in one GroupCall", rank.value,
              sends, own.size() - sends);
  }
  for (std::size_t i = 0; i < sends; ++i) {
    const host::Message sent = message_of(own[i]);
    const host::Message expected = message_of(own[sends + i]);
    if (sent != expected) throw disagreement(rank, sent, rank, expected);
  }
}

std::vector<DeviceExchange> to_exchanges(const std::vector<Transfer>& transfers) {
  std::vector<DeviceExchange> calls;
  std::size_t place = 0;
  const Transfer* last = nullptr;
  for (const Transfer& each : transfers) {
    if (last == nullptr || last->peer != each.peer || last->kind != each.kind) place = 0;
    last = &each;
    if (each.count == 0) continue;
    if (place == calls.size()) calls.push_back({.phase = DeviceFault::send_recv});
    DeviceExchange::Transfer& moved = calls[place++].transfers[static_cast<std::size_t>(each.peer.value)];
    if (each.kind == CallKind::send) {
      moved.in = each.in;
      moved.sent = each.bytes();
    } else {
      moved.out = each.out;
      moved.received = each.bytes();
    }
  }
  return calls;
}

void make_transfers(Group::State& group, std::vector<Transfer> transfers, Duration timeout, Stream stream) {
  const char* const phase = name_of(transfers);
  const Rank rank = group.rank();
  sort_by_pair(transfers, rank.value, group.size());
  group.call(phase, timeout, [&](os::CallDeadline& deadline) {
    try {
      for (const CallKind kind : {CallKind::send, CallKind::recv}) {
        if (std::any_of(transfers.begin(), transfers.end(),
                        [&](const Transfer& each) { return each.kind == kind; }))
          os::fault_point(to_text(kind), rank.value);
      }
      require_own_match(transfers, rank);
      if (group.device() != nullptr) {
        group.device()->begin_call(timeout);
        for (const DeviceExchange& each : to_exchanges(transfers)) group.device()->exchange(each, stream);
      } else {
        HostTransfers(group, transfers, deadline, phase).run();
        copy_own(transfers, rank);
      }
    } catch (const Error& error) {
      // Of a call that concerns two ranks nobody else finds out by itself, whatever went wrong.
      group.fail_call(error, phase);
    }
    for (const Transfer& each : transfers) {
      group.count_usage(Algorithm::one_shot);
      log::debug("rank {} of '{}': {}(count {}, {}) {} rank {}: {}, {} bytes", rank.value,
                 group.options().name, to_text(each.kind), each.count, to_string(each.type),
                 each.kind == CallKind::send ? "to" : "from", each.peer.value, to_string(Algorithm::one_shot),
                 each.bytes());
    }
  });
}

}  // namespace onehop
