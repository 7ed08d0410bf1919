// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <span>

#include "onehop/collectives.h"

#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"

namespace onehop {
namespace {

/// Throws, on all ranks alike, unless rank r expects from rank s what that sends.
void require_same_count(std::size_t s, std::uint64_t sent, std::size_t r, std::uint64_t expected) {
  if (sent == expected) return;
  fail_from(Rank{static_cast<int>(s)}, ErrorCode::mismatch,
            "ranks disagree in all_to_all_v: rank {} sends {} elements to rank {}, which expects {}", s, sent,
            r, expected);
}

/// From the first byte of any block to behind the last one.
struct Extent {
  std::size_t first = 0;
  std::size_t last = 0;

  Extent(const Blocks& blocks, std::size_t element) {
    bool any = false;
    for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
      if (blocks.counts[r] == 0) continue;
      const std::size_t begin = blocks.offsets[r] * element;
      const std::size_t end = begin + blocks.counts[r] * element;
      first = any ? std::min(first, begin) : begin;
      last = std::max(last, end);
      any = true;
    }
  }
  [[nodiscard]] std::size_t bytes() const { return last - first; }
  /// Of an array; it may be null if there are no bytes.
  [[nodiscard]] std::span<const std::byte> of(const std::byte* data) const {
    return bytes() == 0 ? std::span<const std::byte>{} : std::span(data + first, bytes());
  }
};

bool has_one_per_rank(const Blocks& blocks, std::size_t ranks) {
  return blocks.counts.size() == ranks && blocks.offsets.size() == ranks;
}

bool too_large(const Blocks& blocks, std::size_t limit) {
  std::size_t total = 0;
  for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
    if (blocks.counts[r] == 0) continue;
    if (blocks.counts[r] > limit - total || blocks.offsets[r] > limit - blocks.counts[r]) return true;
    total += blocks.counts[r];
  }
  return false;
}

bool overlap(const std::byte* in, const Blocks& in_blocks, const std::byte* out, const Blocks& out_blocks,
             std::size_t element) {
  for (std::size_t s = 0; s < in_blocks.counts.size(); ++s) {
    const auto in_begin = reinterpret_cast<std::uintptr_t>(in) + in_blocks.offsets[s] * element;
    const auto in_end = in_begin + in_blocks.counts[s] * element;
    for (std::size_t r = 0; r < out_blocks.counts.size(); ++r) {
      const auto out_begin = reinterpret_cast<std::uintptr_t>(out) + out_blocks.offsets[r] * element;
      const auto out_end = out_begin + out_blocks.counts[r] * element;
      if (std::max(in_begin, out_begin) < std::min(in_end, out_end)) return true;
    }
  }
  return false;
}

CallDefect find_block_defect(const Arguments& call, const Blocks& in, const Blocks& out, int ranks) {
  if (const CallDefect defect = find_defect(call, ranks); defect != CallDefect::none) return defect;
  const auto n = static_cast<std::size_t>(ranks);
  if (!has_one_per_rank(in, n) || !has_one_per_rank(out, n)) return CallDefect::not_one_per_rank;
  const std::size_t limit = max_elements(call.type);
  if (too_large(in, limit) || too_large(out, limit)) return CallDefect::too_large;
  const std::size_t element = size_of(call.type);
  const bool reads = Extent(in, element).bytes() > 0;
  const bool writes = Extent(out, element).bytes() > 0;
  if (reads && call.in == nullptr) return CallDefect::null_input;
  if (writes && call.out == nullptr) return CallDefect::null_output;
  const auto misaligned = [&](const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data) % element != 0;
  };
  if ((reads && misaligned(call.in)) || (writes && misaligned(call.out))) return CallDefect::misaligned;
  return overlap(call.in, in, call.out, out, element) ? CallDefect::in_place : CallDefect::none;
}

/// What the ranks tell each other of their blocks, through their staging areas, in the step in which they
/// meet. In bytes.
class Ledger {
 public:
  struct Entry {
    std::uint64_t sent;      ///< to that rank
    std::uint64_t from;      ///< where that lies, counted from the first byte that is sent to anyone
    std::uint64_t received;  ///< from that rank
  };

  /// Before the meeting: stages this rank's page, one entry per rank.
  Ledger(const host::Team& team, const Blocks& in, const Blocks& out, std::size_t element)
      : team_(team), slot_(host::StagingLayout(team.staging_bytes()).input_offset(team.next_parity())) {
    const std::size_t base = Extent(in, element).first;
    for (std::size_t r = 0; r < in.counts.size(); ++r) {
      const Entry entry{.sent = in.counts[r] * element,
                        .from = in.counts[r] == 0 ? 0 : in.offsets[r] * element - base,
                        .received = out.counts[r] * element};
      std::memcpy(team.staging(team.rank()) + slot_ + r * sizeof entry, &entry, sizeof entry);
    }
  }

  /// After the meeting, before the next step: rank `rank`'s entry for rank `other`.
  [[nodiscard]] Entry entry(int rank, int other) const {
    Entry entry;
    std::memcpy(&entry, team_.staging(rank) + slot_ + static_cast<std::size_t>(other) * sizeof entry,
                sizeof entry);
    return entry;
  }

  /// Throws, on all ranks alike, if one does not send what another expects.
  void require_agreement(std::size_t element) const {
    for (int s = 0; s < team_.size(); ++s) {
      for (int r = 0; r < team_.size(); ++r) {
        const std::uint64_t sent = entry(s, r).sent;
        const std::uint64_t expected = entry(r, s).received;
        require_same_count(static_cast<std::size_t>(s), sent / element, static_cast<std::size_t>(r),
                           expected / element);
      }
    }
  }

 private:
  const host::Team& team_;
  std::size_t slot_;
};
static_assert(kMaxHostRanks * sizeof(Ledger::Entry) <= 2048, "fits the slots of any staging area");

Algorithm move_blocks(HostCall& call, const Blocks& in, const Blocks& out) {
  const Arguments& arguments = call.arguments();
  host::Team& team = call.team();
  const std::size_t element = size_of(arguments.type);
  const int ranks = team.size();
  const int me = team.rank();

  const Ledger ledger(team, in, out, element);
  const Extent sent(in, element);
  const Extent received(out, element);
  host::Exchange exchange;
  // A rank that sends nothing shows where it receives: what counts is whether it can reach the buffer.
  if (sent.bytes() > 0) {
    exchange.in = arguments.in + sent.first;
    call.show_input(exchange.in, sent.bytes());
  } else if (received.bytes() > 0) {
    call.show_input(arguments.out + received.first, received.bytes());
  }
  call.meet();
  ledger.require_agreement(element);

  exchange.out = arguments.out;
  for (int i = 1; i < ranks; ++i) {
    const Ledger::Entry entry = ledger.entry(me, (me + i) % ranks);
    if (entry.sent != 0) exchange.send(entry.from, entry.sent);
  }
  for (int s = 0; s < ranks; ++s) {
    std::size_t stream = 0;
    for (int i = 1; i < ranks; ++i) {
      const int r = (s + i) % ranks;
      if (r == me) exchange.arrival(s).at = stream;
      stream += ledger.entry(s, r).sent;
    }
    exchange.longest = std::max(exchange.longest, stream);
    const Ledger::Entry entry = ledger.entry(s, me);
    host::Exchange::Arrival& arrival = exchange.arrival(s);
    arrival.from = entry.from;
    arrival.bytes = entry.sent;
    arrival.to = entry.sent == 0 ? 0 : out.offsets[static_cast<std::size_t>(s)] * element;
  }
  if (exchange.longest >= kMinZeroCopyBytes) exchange.in_peers = call.inputs();
  pass_data(call, exchange);
  return Algorithm::one_shot;
}

DeviceExchange describe_device_exchange(const Arguments& arguments, const Blocks& in, const Blocks& out) {
  const std::size_t element = size_of(arguments.type);
  DeviceExchange exchange{.phase = DeviceFault::all_to_all_v};
  for (std::size_t r = 0; r < in.counts.size(); ++r) {
    DeviceExchange::Transfer& transfer = exchange.transfers[r];
    if (in.counts[r] != 0) {
      transfer.in = arguments.in + in.offsets[r] * element;
      transfer.sent = in.counts[r] * element;
    }
    if (out.counts[r] != 0) {
      transfer.out = arguments.out + out.offsets[r] * element;
      transfer.received = out.counts[r] * element;
    }
  }
  return exchange;
}

/// Ranks on GPUs, where calls are checked: throws, on all ranks alike, if one does not send what another
/// expects.
void compare_counts(const Group::State& group, const Blocks& in, const Blocks& out,
                    const Deadline& deadline) {
  std::vector<std::uint64_t> own(in.counts.begin(), in.counts.end());
  own.insert(own.end(), out.counts.begin(), out.counts.end());
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::vector<std::string> all = group.mesh().all_gather(
      {reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]}, deadline, "all_to_all_v");
  const auto count = [&](std::size_t rank, std::size_t index) {
    std::uint64_t value = 0;
    if (all[rank].size() != own.size() * sizeof value)
      fail(ErrorCode::protocol, "all_to_all_v: a rank sent {} bytes", all[rank].size());
    std::memcpy(&value, all[rank].data() + index * sizeof value, sizeof value);
    return value;
  };
  for (std::size_t s = 0; s < ranks; ++s) {
    for (std::size_t r = 0; r < ranks; ++r) require_same_count(s, count(s, r), r, count(r, ranks + s));
  }
}

std::size_t sent_bytes_to_log(const Blocks& in, DType type) {
  if (!log::enabled(log::Level::debug)) return 0;
  std::size_t elements = 0;
  for (const std::size_t count : in.counts) elements += count;
  return elements * size_of(type);
}

}  // namespace

Algorithm all_to_all_v(Group& group, const void* in, const Blocks& in_blocks, void* out,
                       const Blocks& out_blocks, DType type, Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group, [=, &group] {
      (void)all_to_all_v(group, in, in_blocks, out, out_blocks, type, stream, options);
    });
  }
  Group::State& state = group.state();
  // Its blocks are not Arguments' blocks of one size: no counts to check there.
  Arguments arguments{.kind = CallKind::all_to_all_v,
                      .in = as_bytes(in),
                      .out = as_bytes(out),
                      .type = type,
                      .in_blocks = 0,
                      .out_blocks = 0,
                      .sent_bytes = sent_bytes_to_log(in_blocks, type),
                      .stream = stream,
                      .options = options};
  const CallDefect defect = find_block_defect(arguments, in_blocks, out_blocks, state.size());
  if (defect == CallDefect::none) {
    arguments.read = Extent(in_blocks, size_of(type)).of(arguments.in);
    arguments.written = Extent(out_blocks, size_of(type)).of(arguments.out);
  }
  if (state.device() != nullptr) {
    return make_device_call(state, arguments, defect, [&](os::CallDeadline& deadline) {
      if (state.checks_calls() || state.size() == 1)
        compare_counts(state, in_blocks, out_blocks, deadline.arm());
      state.device()->exchange(describe_device_exchange(arguments, in_blocks, out_blocks), stream);
      return Algorithm::one_shot;
    });
  }
  return make_host_call(state, arguments, defect,
                        [&](HostCall& call) { return move_blocks(call, in_blocks, out_blocks); });
}

}  // namespace onehop
