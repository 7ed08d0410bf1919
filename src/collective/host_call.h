// SPDX-License-Identifier: Apache-2.0
// One call on one host rank, over the step protocol of host::StepBarrier. It announces the call, checks that all
// ranks make the same one, learns where their data lies, and waits with a deadline. It also passes the points
// at which faults are injected in tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/host/chunk.h"
#include "backend/host/exchange.h"
#include "backend/host/step_barrier.h"
#include "call/check_call.h"
#include "group/host_rank.h"
#include "group/state.h"

namespace onehop {

class HostCall {
 public:
  HostCall(Group::State& group, const CollectiveCall& call, ArgumentError error, os::CallDeadline& deadline);

  [[nodiscard]] const Group::State& group() const { return group_; }
  [[nodiscard]] host::StepBarrier& step_barrier() const { return step_barrier_; }
  [[nodiscard]] const CollectiveCall& call() const { return call_; }

  /// Whether ranks that have this much data for others let them read it in place, if that is possible. To find
  /// out takes one additional step.
  [[nodiscard]] bool shows(std::size_t bytes) {
    moved_ = bytes;
    return bytes >= (single_copy().one_process() ? host::kMinSharedBytes : host::kMinZeroCopyBytes);
  }
  /// Announce where this rank's data lies. Called before the first step.
  void show_input(std::span<const std::byte> data) { show(in_, data, own_.in_buffer, own_.in_offset); }
  void show_output(std::span<const std::byte> data) { show(out_, data, own_.out_buffer, own_.out_offset); }

  /// Performs the first step. Returns when all ranks have made the same call, and throws on all of them
  /// otherwise.
  void begin();
  /// Performs the next step, in which ranks pass data. It is the first one if begin() was not called.
  void step();
  /// Waits for rank r's current step.
  void wait(int r) { group_.local().wait_for(r, deadline_, call_.traits().name); }

  // Valid right after the first step; all ranks get the same answers.
  /// Every rank's data. Empty unless all ranks announced memory of one symmetric buffer, or all announced
  /// private memory.
  [[nodiscard]] host::PeerData inputs() { return reach(&CallRecord::in_buffer, &CallRecord::in_offset, in_); }
  [[nodiscard]] host::PeerData outputs() {
    return reach(&CallRecord::out_buffer, &CallRecord::out_offset, out_);
  }

  /// Called at the end of a call that read peers' data in place. A peer whose call failed in its last step may
  /// have changed that data meanwhile. It reported the failure first.
  void require_no_failure() const { group_.mesh().check(call_.traits().name); }

 private:
  [[nodiscard]] const host::SingleCopy& single_copy() const { return HostRank::of(group_).single_copy(); }
  /// Whether to read data that is not in symmetric memory.
  [[nodiscard]] bool goes_by_address() const {
    return single_copy().one_process() ||
           (single_copy().works() && !call_.traits().reduces && moved_ >= least_pulled());
  }

  [[nodiscard]] std::size_t least_pulled() const {
    const auto readers = static_cast<std::size_t>(call_.ranks - 1);
    return call_.collective == Collective::broadcast && readers > 1 ? readers * host::kMinPulledBytesPerReader
                                                                    : host::kMinPulledBytes;
  }

  struct Shown {
    std::shared_ptr<SymmetricBuffer::State> buffer;     ///< keeps the mapping while the call runs
    std::array<const std::byte*, kMaxHostRanks> peers;  // set by reach()
    std::array<std::size_t, kMaxHostRanks> bytes;  ///< from there to the end of the buffer; set by reach()
  };
  void show(Shown& shown, std::span<const std::byte> data, std::uint64_t& number, std::uint64_t& offset);
  [[nodiscard]] host::PeerData reach(std::uint64_t CallRecord::*buffer, std::uint64_t CallRecord::*offset,
                                     Shown& shown) const;

  Group::State& group_;
  host::StepBarrier& step_barrier_;
  const CollectiveCall& call_;
  os::CallDeadline& deadline_;
  CallRecord own_;
  bool begun_ = false;
  std::size_t moved_ = SIZE_MAX;  ///< see shows(); SIZE_MAX: not known yet
  Shown in_;
  Shown out_;
};

/// The first step of a call. Returns when all ranks are in the same step and make the same call; throws on
/// every rank otherwise. `refusal` is this rank's, if its caller refuses the call.
void agree_on_call(Group::State& group, const CallRecord& own, os::CallDeadline& deadline, const char* phase,
                   const Error* refusal = nullptr);

/// A peer's data could not be read in place. Throws why: usually that the peer has died or has failed.
[[noreturn]] void fail_unreadable(Group::State& group, const host::Unreadable& unreadable,
                                  os::CallDeadline& deadline, const char* phase);

/// Runs an exchange. If `in_peers` is set, the first step has been performed.
void run_exchange(HostCall& call, const host::Exchange& exchange);

/// Runs all_to_all_v.
void all_to_all_v_on_host(HostCall& self);

}  // namespace onehop
