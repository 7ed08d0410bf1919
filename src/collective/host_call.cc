// SPDX-License-Identifier: Apache-2.0
#include "collective/host_call.h"

#include <tuple>

#include "os/fault_point.h"

namespace onehop {

HostCall::HostCall(Group::State& group, const CollectiveCall& call, ArgumentError error,
                   os::CallDeadline& deadline)
    : group_(group),
      step_barrier_(group.step_barrier()),
      call_(call),
      deadline_(deadline),
      own_(record_of(call, error)) {}

void HostCall::begin() {
  const char* const phase = call_.traits().name;
  os::fault_point(phase, step_barrier_.rank());
  begun_ = true;
  agree_on_call(group_, own_, deadline_, phase);
}

void HostCall::step() {
  if (begun_) {
    step_barrier_.publish();
    group_.wait_for_all(deadline_, call_.traits().name);
  } else {
    begin();
  }
  os::fault_point(call_.traits().data_fault_point, step_barrier_.rank());
}

void HostCall::show(Shown& shown, std::span<const std::byte> data, std::uint64_t& number,
                    std::uint64_t& offset) {
  std::tie(shown.buffer, number) = group_.find_buffer(data.data(), data.size());
  if (shown.buffer == nullptr) return;
  offset = static_cast<std::uint64_t>(data.data() -
                                      shown.buffer->data[static_cast<std::size_t>(step_barrier_.rank())]);
}

bool HostCall::anyone_declined() const {
  for (int r = 0; r < step_barrier_.size(); ++r) {
    if (step_barrier_.call(r).declined != 0) return true;
  }
  return false;
}

std::byte* const* HostCall::reach(std::uint64_t host::Call::*buffer, std::uint64_t host::Call::*offset,
                                  Shown& shown) const {
  const std::uint64_t number = own_.*buffer;
  for (int r = 0; r < step_barrier_.size(); ++r) {
    const host::Call& call = step_barrier_.call(r);
    // If the numbers differ, every rank finds one that is not its own.
    if (call.*buffer == 0 || call.*buffer != number) return nullptr;
    const auto i = static_cast<std::size_t>(r);
    shown.peers[i] = shown.buffer->data[i] + call.*offset;
  }
  return shown.peers.data();
}

void agree_on_call(Group::State& group, const host::Call& own, os::CallDeadline& deadline,
                   const char* phase) {
  host::StepBarrier& barrier = group.step_barrier();
  barrier.publish(&own);
  group.wait_for_all(deadline, phase);
  // The common case costs one comparison per rank, of lines that have just arrived.
  for (int r = 0; r < barrier.size(); ++r) {
    const host::Call& call = barrier.call(r);
    if (is_same_call(call, own) && call.rejected == 0) continue;
    std::vector<const host::Call*> calls;
    for (int each = 0; each < barrier.size(); ++each) calls.push_back(&barrier.call(each));
    require_same_call(calls);
  }
}

void run_exchange(HostCall& call, const host::Exchange& exchange) {
  host::exchange(
      call.step_barrier(), exchange, [&] { call.step(); }, [&](int r) { call.wait(r); });
  if (exchange.in_peers != nullptr) call.require_no_failure();
}

}  // namespace onehop
