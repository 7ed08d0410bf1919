// SPDX-License-Identifier: Apache-2.0
#include "collective/transfers.h"

#include <algorithm>
#include <tuple>

#include "backend/host/copy.h"
#include "backend/host/point_to_point.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "collective/group_call.h"
#include "collective/host_backend.h"
#include "collective/host_call.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

using Calls = std::span<const CollectiveCall>;

bool is_send(const CollectiveCall& call) {
  return call.collective == Collective::send;
}

/// For example "1024 f32".
std::string describe_message(const host::Message& message) {
  return fmt::format("{} {}", message.count, to_string(static_cast<DType>(message.dtype)));
}

host::Message message_of(const CollectiveCall& transfer) {
  return {.count = transfer.count, .dtype = static_cast<std::uint8_t>(transfer.type)};
}

Error disagreement(Rank sender, const host::Message& sent, Rank receiver, const host::Message& expected) {
  return {ErrorCode::mismatch,
          fmt::format("ranks disagree: rank {} sends {} to rank {}, which receives {}", sender.value,
                      describe_message(sent), receiver.value, describe_message(expected)),
          sender};
}

/// The name of these transfers in errors.
const char* name_of(Calls transfers) {
  const auto sends = std::ranges::count_if(transfers, is_send);
  if (sends == static_cast<std::ptrdiff_t>(transfers.size())) return "send";
  return sends == 0 ? "recv" : "send and recv";
}

/// The transfers with rank `peer`.
Calls with(Calls sorted, Rank peer) {
  const auto is_with = [&](const CollectiveCall& each) { return each.root == peer; };
  const auto first = std::find_if(sorted.begin(), sorted.end(), is_with);
  return {first, std::find_if_not(first, sorted.end(), is_with)};
}

/// A rank's transfers with itself: the k-th send matches the k-th receive.
struct OwnTransfers {
  Calls sends;
  Calls receives;

  OwnTransfers(Calls sorted, Rank rank) {
    const Calls own = with(sorted, rank);
    const auto count = static_cast<std::size_t>(std::ranges::count_if(own, is_send));
    sends = own.first(count);
    receives = own.subspan(count);
  }
};

/// The remaining transfers between this rank and one other, in one direction.
struct Flow {
  Calls transfers;
  std::size_t done = 0;  ///< bytes done of the first of them
  bool shown = false;    ///< the peer reads the first of them in place

  [[nodiscard]] const CollectiveCall& current() const { return transfers.front(); }
  [[nodiscard]] int peer() const { return current().root.value; }
};

/// Transfers on a host rank: moves chunk by chunk, of any flow that can progress.
class HostTransfers {
 public:
  HostTransfers(Group::State& group, Calls sorted, os::CallDeadline& deadline, const char* phase)
      : group_(group),
        pairs_(HostRank::of(group).pairs()),
        single_copy_(HostRank::of(group).single_copy()),
        deadline_(deadline),
        phase_(phase) {
    for (Calls rest = sorted; !rest.empty() && rest.front().root != group.rank();) {
      const CollectiveCall& first = rest.front();
      const auto end = std::ranges::find_if(rest, [&](const CollectiveCall& each) {
        return each.root != first.root || each.collective != first.collective;
      });
      const auto length = static_cast<std::size_t>(end - rest.begin());
      flows_.push_back({.transfers = rest.first(length)});
      rest = rest.subspan(length);
    }
  }

  void run() {
    while (!flows_.empty()) {
      bool moved = false;
      bool finished = false;
      for (Flow& flow : flows_) {
        if (!ready(flow)) continue;
        moved = true;
        advance(flow);
        finished = finished || flow.transfers.empty();
      }
      if (finished) std::erase_if(flows_, [](const Flow& flow) { return flow.transfers.empty(); });
      if (!moved) wait();
    }
  }

 private:
  [[nodiscard]] bool ready(const Flow& flow) const {
    if (flow.shown) return pairs_.all_taken(flow.peer());
    return is_send(flow.current()) ? pairs_.has_room(flow.peer()) : pairs_.has_chunk(flow.peer());
  }

  /// Whether the receiver is to read this message in place.
  [[nodiscard]] bool shows(const CollectiveCall& transfer) const {
    const std::size_t bytes = transfer.block_bytes();
    return bytes > pairs_.ring_bytes() && single_copy_.can_show({transfer.in_at(), bytes});
  }

  /// Moves one chunk. An empty message is one empty chunk, since it has to be matched, too.
  void advance(Flow& flow) {
    const CollectiveCall& transfer = flow.current();
    const int peer = flow.peer();
    os::data_fault_point(transfer.traits().name, group_.rank().value);
    const std::size_t bytes = transfer.block_bytes();
    std::size_t chunk = std::min(pairs_.slot_bytes(), bytes - flow.done);
    if (flow.shown) {
      chunk = bytes;
    } else if (is_send(transfer) && flow.done == 0 && shows(transfer)) {
      pairs_.show(peer, message_of(transfer), transfer.in_at());
      flow.shown = true;
      return;
    } else if (is_send(transfer)) {
      pairs_.put(peer, message_of(transfer), transfer.in_at(flow.done), chunk);
    } else {
      // As long as both ends agree, they count the same chunks.
      const host::Message sent = pairs_.message(peer);
      if (const host::Message expected = message_of(transfer); sent != expected)
        throw disagreement(transfer.root, sent, group_.rank(), expected);
      if (const std::byte* const data = pairs_.shown(peer); data != nullptr) {
        // The address is in the sender's process. Without single copies this rank does not know that process.
        if (!single_copy_.works()) {
          fail_from(transfer.root, ErrorCode::protocol,
                    "rank {} shows data in its memory, which the ranks of this group do not read", peer);
        }
        chunk = std::min(host::kReadPiece, bytes - flow.done);
        single_copy_.read(peer, data + flow.done, transfer.out_at(flow.done), chunk);
        if (flow.done + chunk == bytes) {
          // A sender whose call failed may have changed its data meanwhile. It reported the failure first.
          group_.mesh().check(phase_);
          pairs_.take(peer, nullptr, 0);
        }
      } else {
        pairs_.take(peer, transfer.out_at(flow.done), chunk);
      }
    }
    flow.done += chunk;
    if (flow.done == bytes) flow = {.transfers = flow.transfers.subspan(1)};
  }

  /// Waits until any flow can move a chunk.
  void wait() {
    const host::StepBarrier& barrier = group_.local().step_barrier();
    IpcChannel::Mesh& mesh = group_.mesh();
    const auto any_ready = [&] {
      return std::ranges::any_of(flows_, [&](const Flow& flow) { return ready(flow); });
    };
    RankSet peers = 0;
    for (const Flow& flow : flows_) peers |= set_of(flow.current().root);
    IpcChannel::Mesh::Wait wait(mesh);
    const auto look_around = [&] {
      wait.look(peers, deadline_.arm());
      throw_if_interrupted(phase_);
      const bool failed = mesh.look(phase_);
      if (any_ready()) return;  // what a rank did before it failed counts
      if (failed) mesh.check(phase_);
      for (const Flow& flow : flows_) {
        const Rank peer = flow.current().root;
        if (mesh.has_left(peer))
          mesh.check_for(
              peer, [&] { return ready(flow); }, phase_);
      }
    };
    if (os::wait_on(barrier.bell(barrier.rank()), barrier.spin(), deadline_, any_ready, look_around)) return;
    const CollectiveCall& awaited = flows_.front().current();
    const IpcChannel::Mesh::Blame blame = wait.blame(awaited.root, phase_);
    fail_from(blame.origin, ErrorCode::timeout, "{}: rank {} waited {} ms for {} to {} {}", phase_,
              barrier.rank(), deadline_.timeout().count(), blame.awaited,
              is_send(awaited) ? "receive" : "send", describe_message(message_of(awaited)));
  }

  Group::State& group_;
  host::PointToPoint& pairs_;
  const host::SingleCopy& single_copy_;
  os::CallDeadline& deadline_;
  const char* phase_;
  std::vector<Flow> flows_;
};

/// Throws the error of an invalid transfer.
void require_usable(const Group::State& group, const CollectiveCall& call) {
  const char* const name = call.traits().name;
  require(call.root.value >= 0 && call.root.value < call.ranks, "{}: rank {} is not in a group of {}", name,
          call.root.value, call.ranks);
  ArgumentError error = find_argument_error(call);
  if (error == ArgumentError::none) error = CollectiveBackend::of(group).find_memory_error(group, call);
  if (error != ArgumentError::none) {
    fail(ErrorCode::invalid_argument, "{} of rank {} was rejected: {}", describe(record_of(call)), call.rank,
         explain(call, error, group.options().device));
  }
  require(call.root.value != call.rank || GroupCall::Queue::open() != nullptr,
          "{}: rank {} reaches itself only in a GroupCall, where it both sends and receives", name,
          call.root.value);
}

void log_transfer(const Group::State& group, const CollectiveCall& call) {
  log::debug("rank {} of '{}': {}(count {}, {}) {} rank {}: {}, {} bytes", call.rank, group.options().name,
             call.traits().name, call.count, to_string(call.type), is_send(call) ? "to" : "from",
             call.root.value, to_string(Algorithm::one_shot), call.block_bytes());
}

}  // namespace

void sort_by_pair(std::vector<CollectiveCall>& transfers, int rank, int ranks) {
  const auto position = [&](const CollectiveCall& each) {
    return std::tuple((each.root.value - rank - 1 + ranks) % ranks, each.collective);
  };
  // Most are in order already, a send and then a recv, and stable_sort allocates memory.
  if (!std::ranges::is_sorted(transfers, {}, position)) std::ranges::stable_sort(transfers, {}, position);
}

void require_own_match(Calls transfers, Rank rank) {
  const OwnTransfers own(transfers, rank);
  if (own.sends.size() != own.receives.size()) {
    fail_from(rank, ErrorCode::mismatch,
              "rank {} sends itself {} times and receives from itself {} times in one GroupCall", rank.value,
              own.sends.size(), own.receives.size());
  }
  for (std::size_t i = 0; i < own.sends.size(); ++i) {
    const host::Message sent = message_of(own.sends[i]);
    const host::Message expected = message_of(own.receives[i]);
    if (sent != expected) throw disagreement(rank, sent, rank, expected);
  }
}

std::vector<Transfers> to_rounds(Calls transfers) {
  std::vector<Transfers> rounds;
  std::size_t round = 0;
  const CollectiveCall* last = nullptr;
  for (const CollectiveCall& each : transfers) {
    if (last == nullptr || last->root != each.root || last->collective != each.collective) round = 0;
    last = &each;
    if (each.count == 0) continue;
    if (round == rounds.size()) rounds.emplace_back();
    Transfer& moved = rounds[round++][static_cast<std::size_t>(each.root.value)];
    if (is_send(each)) {
      moved.in = each.in_at();
      moved.sent = each.block_bytes();
    } else {
      moved.out = each.out_at();
      moved.received = each.block_bytes();
      moved.type = each.type;
    }
  }
  return rounds;
}

void HostBackend::run_transfers(Group::State& group, Calls sorted, const char* phase,
                                os::CallDeadline& deadline) const {
  try {
    HostTransfers(group, sorted, deadline, phase).run();
  } catch (const host::Unreadable& unreadable) {
    fail_unreadable(group, unreadable, deadline, phase);
  }
  const OwnTransfers own(sorted, group.rank());
  for (std::size_t i = 0; i < own.sends.size(); ++i)
    host::copy(own.receives[i].out, own.sends[i].in, own.sends[i].block_bytes());
}

void run_transfers(Group::State& group, std::vector<CollectiveCall> transfers) {
  const char* const phase = name_of(transfers);
  const Rank rank = group.rank();
  sort_by_pair(transfers, rank.value, group.size());
  Duration timeout{0};  // the longest one, because the transfers wait together
  for (const CollectiveCall& each : transfers)
    timeout = std::max(timeout, each.options.timeout.value_or(group.options().timeout));
  group.call(phase, timeout, [&](os::CallDeadline& deadline) {
    try {
      for (const Collective each : {Collective::send, Collective::recv}) {
        if (std::ranges::find(transfers, each, &CollectiveCall::collective) != transfers.end())
          os::fault_point(traits_of(each).name, rank.value);
      }
      require_own_match(transfers, rank);
      CollectiveBackend::of(group).run_transfers(group, transfers, phase, deadline);
    } catch (const Error& error) {
      // Other ranks cannot notice the failure of a call between two ranks, whatever its cause.
      group.fail_call(error, phase);
    }
    for (const CollectiveCall& each : transfers) {
      group.count_usage(Algorithm::one_shot);
      log_transfer(group, each);
    }
  });
}

Algorithm run_transfer(Group& group, const CollectiveCall& call) {
  Group::State& state = group.state();
  try {
    require_usable(state, call);
    if (auto* const queue = GroupCall::Queue::open()) return queue->add(group, call);
  } catch (const Error& error) {
    state.fail_call(error, call.traits().name);
  }
  run_transfers(state, {call});
  return Algorithm::one_shot;
}

}  // namespace onehop
