// SPDX-License-Identifier: Apache-2.0
#include "collective/host_call.h"

#include <tuple>

#include "collective/first_step.h"
#include "collective/plan.h"
#include "os/fault_point.h"

namespace onehop {

HostCall::HostCall(Group::State& group, const Arguments& arguments, CallDefect defect,
                   os::CallDeadline& deadline)
    : group_(group),
      team_(group.team()),
      arguments_(arguments),
      phase_(to_text(arguments.kind)),
      deadline_(deadline),
      own_(describe_call(arguments, defect)) {}

void HostCall::meet() {
  os::fault_point(phase_, team_.rank());
  met_ = true;
  first_step(group_, own_, deadline_, phase_);
}

void HostCall::step() {
  if (met_) {
    team_.publish();
    group_.wait_for_all(deadline_, phase_);
  } else {
    meet();
  }
  os::fault_point(data_fault_point(arguments_.kind), team_.rank());
}

void HostCall::show_input(const std::byte* data, std::size_t bytes) {
  show(in_, data, bytes, own_.in_buffer, own_.in_offset);
}

void HostCall::show_output(std::byte* data, std::size_t bytes) {
  show(out_, data, bytes, own_.out_buffer, own_.out_offset);
}

void HostCall::show(Place& place, const std::byte* data, std::size_t bytes, std::uint64_t& number,
                    std::uint64_t& offset) {
  std::tie(place.buffer, number) = group_.find_buffer(data, bytes);
  if (place.buffer == nullptr) return;
  offset = static_cast<std::uint64_t>(data - place.buffer->data[static_cast<std::size_t>(team_.rank())]);
}

bool HostCall::anyone_declined() const {
  for (int r = 0; r < team_.size(); ++r) {
    if (team_.call(r).declined != 0) return true;
  }
  return false;
}

std::byte* const* HostCall::reach(std::uint64_t host::Call::*buffer, std::uint64_t host::Call::*offset,
                                  Place& place) const {
  const std::uint64_t number = own_.*buffer;
  for (int r = 0; r < team_.size(); ++r) {
    const host::Call& call = team_.call(r);
    // Where numbers differ every rank finds some rank's that is not its own.
    if (call.*buffer == 0 || call.*buffer != number) return nullptr;
    const auto i = static_cast<std::size_t>(r);
    place.peers[i] = place.buffer->data[i] + call.*offset;
  }
  return place.peers.data();
}

void pass_data(HostCall& call, const host::Exchange& exchange) {
  host::exchange(
      call.team(), exchange, [&] { call.step(); }, [&](int r) { call.wait(r); });
  if (exchange.in_peers != nullptr) call.require_no_failure();
}

void pass_blocks(HostCall& call, host::Exchange& exchange) {
  if (exchange.longest >= kMinZeroCopyBytes) {
    // A rank that sends nothing shows where it receives: what counts is whether it can reach the buffer.
    const Arguments& arguments = call.arguments();
    const std::size_t block = arguments.block_bytes();
    if (arguments.in_blocks > 0) {
      call.show_input(arguments.in, static_cast<std::size_t>(arguments.in_blocks) * block);
    } else {
      call.show_input(arguments.out, static_cast<std::size_t>(arguments.out_blocks) * block);
    }
    call.meet();
    exchange.in_peers = call.inputs();
  }
  pass_data(call, exchange);
}

}  // namespace onehop
