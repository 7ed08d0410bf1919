// SPDX-License-Identifier: Apache-2.0
// One collective call on one host rank: what every collective does around its inner loop (kernel/host). It
// tells the other ranks what was called and finds out whether they call the same, learns where their data
// lies, waits with a deadline, passes the points at which faults are tested, and counts.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "onehop/collectives.h"

#include "base/check.h"
#include "collective/arguments.h"
#include "collective/call_log.h"
#include "group/state.h"
#include "kernel/host/exchange.h"
#include "kernel/host/team.h"

namespace onehop {

class HostCall {
 public:
  HostCall(Group::State& group, const Arguments& arguments, CallDefect defect, os::CallDeadline& deadline);

  [[nodiscard]] Group::State& group() const { return group_; }
  [[nodiscard]] host::Team& team() const { return team_; }
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }

  /// For all_reduce under the legacy policy: this rank's pointers are not what it takes.
  void decline() { own_.declined = 1; }
  /// Before the ranks meet: where this rank's data lies.
  void show_input(const std::byte* data, std::size_t bytes);
  void show_output(std::byte* data, std::size_t bytes);

  /// The first step: returns when all ranks have made the same call, and throws on all of them otherwise.
  void meet();
  /// The next step, in which ranks pass data; the first one if they have not met yet.
  void step();
  /// Waits for rank r's current step.
  void wait(int r) { group_.wait_for(r, deadline_, phase_); }

  // Right after the ranks met, the same answers on all of them.
  [[nodiscard]] bool anyone_declined() const;
  /// What the ranks showed, as this rank reaches it; nullptr unless all showed memory of one symmetric
  /// buffer.
  [[nodiscard]] std::byte* const* inputs() {
    return reach(&host::Call::in_buffer, &host::Call::in_offset, in_);
  }
  [[nodiscard]] std::byte* const* outputs() {
    return reach(&host::Call::out_buffer, &host::Call::out_offset, out_);
  }

  /// At the end of a call that read peers' symmetric memory: a peer whose call failed in its last step may
  /// have changed it meanwhile. It reported the failure first.
  void require_no_failure() const { group_.mesh().check(phase_); }

 private:
  struct Place {
    std::shared_ptr<SymmetricBuffer::State> buffer;  ///< keeps the mapping while the call runs
    std::array<std::byte*, kMaxHostRanks> peers;     // set by reach()
  };
  void show(Place& place, const std::byte* data, std::size_t bytes, std::uint64_t& number,
            std::uint64_t& offset);
  [[nodiscard]] std::byte* const* reach(std::uint64_t host::Call::*buffer, std::uint64_t host::Call::*offset,
                                        Place& place) const;

  Group::State& group_;
  host::Team& team_;
  const Arguments& arguments_;
  const char* phase_;
  os::CallDeadline& deadline_;
  host::Call own_;
  bool met_ = false;
  Place in_;
  Place out_;
};

/// Makes one call on one host rank. `body(call)` returns the algorithm it used. A call with a defect ends
/// before it, with the same Error on all ranks.
template <class Body>
Algorithm make_host_call(Group::State& state, const Arguments& arguments, CallDefect defect, Body&& body) {
  const Duration timeout = arguments.timeout(state.options().timeout);
  return state.call(to_text(arguments.kind), timeout, [&](os::CallDeadline& deadline) {
    HostCall call(state, arguments, defect, deadline);
    if (defect != CallDefect::none) call.meet();  // throws
    const Algorithm used = body(call);
    state.count_usage(used);
    log_call(state, arguments, used);
    return used;
  });
}

/// Runs an exchange that is described in full; its ranks have met if `in_peers` is set.
void pass_data(HostCall& call, const host::Exchange& exchange);
/// The same for one of blocks that are all alike; decides whether data is staged, and sets `in_peers`.
void pass_blocks(HostCall& call, host::Exchange& exchange);

}  // namespace onehop
