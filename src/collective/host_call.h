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

#include "backend/host/algorithm.h"
#include "backend/host/chunk.h"
#include "call/check_call.h"
#include "group/host_rank.h"
#include "group/state.h"

namespace onehop {

class HostCall final : public host::Steps {
 public:
  HostCall(Group::State& group, const CollectiveCall& call, ArgumentError error, os::CallDeadline& deadline);

  [[nodiscard]] bool shows(std::size_t bytes) override {
    moved_ = bytes;
    return bytes >= (single_copy().one_process() ? host::kMinSharedBytes : host::kMinZeroCopyBytes);
  }
  void show_input(std::span<const std::byte> data) override {
    show(in_, data, own_.in_buffer, own_.in_offset);
  }
  void show_output(std::span<const std::byte> data) override {
    show(out_, data, own_.out_buffer, own_.out_offset);
  }
  void begin() override;
  void step() override;
  void wait(int r) override { group_.local().wait_for(r, deadline_, call().traits().name); }
  [[nodiscard]] host::PeerData inputs() override {
    return reach(&CallRecord::in_buffer, &CallRecord::in_offset, in_);
  }
  [[nodiscard]] host::PeerData outputs() override {
    return reach(&CallRecord::out_buffer, &CallRecord::out_offset, out_);
  }
  void require_no_failure() const override { group_.mesh().check(call().traits().name); }

 private:
  [[nodiscard]] const host::SingleCopy& single_copy() const { return HostRank::of(group_).single_copy(); }
  /// Whether to read data that is not in symmetric memory.
  [[nodiscard]] bool goes_by_address() const {
    return single_copy().one_process() ||
           (single_copy().works() && !call().traits().reduces && moved_ >= least_pulled());
  }

  [[nodiscard]] std::size_t least_pulled() const {
    const auto readers = static_cast<std::size_t>(call().ranks - 1);
    return call().collective == Collective::broadcast && readers > 1
               ? readers * host::kMinPulledBytesPerReader
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

}  // namespace onehop
