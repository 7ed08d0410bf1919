// SPDX-License-Identifier: Apache-2.0
#include "collective/host_call.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "os/fault_point.h"

namespace onehop {

HostCall::HostCall(Group::State& group, const CollectiveCall& call, ArgumentError error,
                   os::CallDeadline& deadline)
    : Steps(group.local().step_barrier(), call),
      group_(group),
      deadline_(deadline),
      own_(record_of(call, error)) {}

void HostCall::begin() {
  const char* const phase = call().traits().name;
  os::fault_point(phase, barrier().rank());
  begun_ = true;
  agree_on_call(group_, own_, deadline_, phase, call().refusal);
}

void HostCall::step() {
  if (begun_) {
    barrier().publish();
    group_.local().wait_for_all(deadline_, call().traits().name);
  } else {
    begin();
  }
  os::data_fault_point(call().traits().name, barrier().rank());
}

void HostCall::show(Shown& shown, std::span<const std::byte> data, std::uint64_t& number,
                    std::uint64_t& offset) {
  if (!single_copy().one_process() && !data.empty())
    std::tie(shown.buffer, number) = group_.find_buffer(data.data(), data.size());
  if (shown.buffer == nullptr) {
    if (!goes_by_address() || !single_copy().can_show(data)) return;
    number = kByAddress;
    offset = reinterpret_cast<std::uint64_t>(data.data());
    return;
  }
  offset = static_cast<std::uint64_t>(data.data() -
                                      shown.buffer->data[static_cast<std::size_t>(barrier().rank())]);
}

host::PeerData HostCall::reach(std::uint64_t CallRecord::*buffer, std::uint64_t CallRecord::*offset,
                               Shown& shown) const {
  const std::uint64_t number = own_.*buffer;
  if (number == kByAddress && !goes_by_address()) return {};
  for (int r = 0; r < barrier().size(); ++r) {
    const CallRecord call = barrier().call(r);
    // If the numbers differ, every rank finds one that is not its own.
    if (call.*buffer == 0 || call.*buffer != number) return {};
    const auto i = static_cast<std::size_t>(r);
    const std::uint64_t told = call.*offset;
    if (number == kByAddress) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in the rank's process
      shown.peers[i] = reinterpret_cast<const std::byte*>(told);
    } else {
      const std::size_t whole = shown.buffer->bytes;
      shown.peers[i] = shown.buffer->data[i] + std::min<std::uint64_t>(told, whole);
      shown.bytes[i] = told < whole ? whole - told : 0;
    }
  }
  if (number == kByAddress) return {shown.peers.data(), single_copy()};
  return {shown.peers.data(), shown.bytes.data()};
}

namespace {

/// Ranks have refused the call for reasons that do not fit into their records: all ranks, which have seen the same
/// records, exchange them, and throw the first one. Returns if a rank withholds what it announced.
void hear_refusals(Group::State& group, os::CallDeadline& deadline, const char* phase, const Error* refusal) {
  Status own;
  if (refusal != nullptr) {
    own = {.code = refusal->code(),
           .origin = group.rank(),
           .message =
               fmt::format("{} of rank {} was rejected: {}", phase, group.rank().value, refusal->message())};
  }
  // Not `phase`, since the ranks may have made different calls.
  (void)group.mesh().all_gather("", deadline.arm(), "a refused call", std::move(own));
}

}  // namespace

void agree_on_call(Group::State& group, const CallRecord& own, os::CallDeadline& deadline, const char* phase,
                   const Error* refusal) {
  host::StepBarrier& barrier = group.local().step_barrier();
  barrier.publish(&own);
  group.local().wait_for_all(deadline, phase);
  // The common case costs one comparison per rank, of lines that have just arrived.
  for (int r = 0; r < barrier.size(); ++r) {
    if (own.rejected == 0 && barrier.agrees(r, own)) continue;
    std::vector<CallRecord> calls;
    for (int each = 0; each < barrier.size(); ++each) calls.push_back(barrier.call(each));
    if (std::ranges::any_of(calls, [](const CallRecord& each) {
          return each.rejected == static_cast<std::uint8_t>(ArgumentError::refused_by_caller);
        }))
      hear_refusals(group, deadline, phase, refusal);
    require_same_call(calls);
  }
}

void fail_unreadable(Group::State& group, const host::Unreadable& unreadable, os::CallDeadline& deadline,
                     const char* phase) {
  const Rank peer{unreadable.rank};
  const bool own_fault = unreadable.error == ENOMEM;  // the kernel has no memory for the call
  if (!own_fault) {
    // A process that ends loses its memory first and its sockets soon after. A rank that gave up has told why
    // before it freed its memory.
    constexpr Duration kGrace{2000};
    const Deadline grace = Deadline::after(std::min(kGrace, deadline.arm().left()));
    do {
      group.mesh().check_for(
          peer, [] { return false; }, phase);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    } while (!grace.expired());
  }
  const Rank named = group.mesh().named(peer);
  fail_from(own_fault ? group.own_name() : named, ErrorCode::system,
            "{}: rank {} cannot read the data of rank {}: {} (ONEHOP_SINGLE_COPY=0 copies it through shared "
            "memory)",
            phase, group.own_name().value, named.value, errno_text(unreadable.error));
}

}  // namespace onehop
