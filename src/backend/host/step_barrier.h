// SPDX-License-Identifier: Apache-2.0
// The host ranks of one group as the inner loops see them. Each rank has a line on which it announces steps,
// a staging area through which it passes data, and a bell (futex) on which it sleeps. All of this lives in
// shared memory that is zero when the group starts.
//
// Protocol. A call is a sequence of steps, the same on all ranks. In step s a rank first publishes: it stores
// s into its line of parity s % 2, which releases everything it wrote before. Then it waits until every other
// rank has published s. Every pair of ranks synchronizes in every step, so no rank is ever more than one step
// ahead. Therefore
//   - a rank that reads a line or staging slot of parity s % 2 in step s is done before its owner publishes
//     s + 2, since the owner does that only after it has seen the reader publish s + 1;
//   - a rank writes only to its own line and staging area, never to a peer's: a rank that was stopped and
//     left behind cannot damage the others when it wakes.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/host/peer_memory.h"
#include "call/call_record.h"
#include "os/doorbell.h"
#include "os/processors.h"
#include "os/untrusted.h"

namespace onehop::host {

/// 128 bytes apart, because CPUs prefetch neighboring lines in pairs.
struct alignas(128) Line {
  std::atomic<std::uint64_t> step{0};
  os::Untrusted<CallRecord> call;
};
static_assert(sizeof(CallRecord) + sizeof(std::uint64_t) <= 64, "step and call share one cache line");

/// A collective that a GPU rank has begun: what the others compare with theirs (group/device_progress.h).
struct alignas(64) BegunCall {
  std::atomic<std::uint64_t> number{0};   ///< counted from 1; 0 while the owner writes
  std::atomic<std::uint64_t> history{0};  ///< a hash of this call and all before it
  // The fields of CallRecord that must be the same on all ranks.
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> kind{0};  ///< the bytes `collective` to `root`
  std::atomic<std::uint64_t> factor{0};
};

/// Progress of a GPU rank, whose collectives do not wait for the other ranks on the host. Only its owner
/// writes it (group/device_progress.h).
struct alignas(64) Progress {
  static constexpr std::size_t kKeptCalls = 256;

  std::atomic<std::uint64_t> begun{0};  ///< number of collectives begun
  /// Numbers of the last two collectives that it refused, by parity of the refusal.
  std::atomic<std::uint64_t> refused[2]{};
  /// The last ones begun, by number % kKeptCalls. Refused ones are not among them.
  BegunCall calls[kKeptCalls];
};

/// Start of every rank's communicator segment. The memory of PointToPoint (point_to_point.h) and the staging
/// area follow. `processors` and `process` are written before another rank maps the segment.
struct SegmentHeader {
  os::Doorbell bell;
  Line lines[2];
  Progress progress;
  os::Untrusted<os::Processors> processors;  ///< on which the owner may run
  os::Untrusted<ProcessNotice> process;
  ReadMarks read_marks;
};

class StepBarrier {
 public:
  struct Member {
    SegmentHeader* header = nullptr;
    std::byte* staging = nullptr;
  };

  StepBarrier() = default;
  StepBarrier(int rank, std::vector<Member> members, std::size_t staging_bytes, os::SpinPolicy spin)
      : rank_(rank),
        size_(static_cast<int>(members.size())),
        staging_bytes_(staging_bytes),
        spin_(spin),
        members_(std::move(members)) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::size_t staging_bytes() const { return staging_bytes_; }
  [[nodiscard]] std::byte* staging(int r) const { return members_[static_cast<std::size_t>(r)].staging; }
  [[nodiscard]] os::Doorbell& bell(int r) const { return members_[static_cast<std::size_t>(r)].header->bell; }
  [[nodiscard]] const os::SpinPolicy& spin() const { return spin_; }
  /// The step published last; its parity selects the slots that may be used.
  [[nodiscard]] std::uint64_t step() const { return step_; }
  /// The step that `publish` will begin.
  [[nodiscard]] std::uint64_t next_step() const { return step_ + 1; }

  /// Begins the next step. `call` is passed in the first step of a call.
  void publish(const CallRecord* call = nullptr) {
    ++step_;
    Line& line = members_[static_cast<std::size_t>(rank_)].header->lines[step_ & 1];
    if (call != nullptr) line.call.write(*call);
    // release: pairs with the load in arrived(); publishes the call and everything staged before. seq_cst and
    // a read-modify-write because ring() needs it.
    line.step.exchange(step_, std::memory_order_seq_cst);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) os::ring(bell(r));
    }
  }

  [[nodiscard]] bool arrived(int r) const {
    // acquire: pairs with the exchange in publish(). seq_cst for wait_on().
    return line(r).step.load(std::memory_order_seq_cst) >= step_;
  }
  /// Says that this rank reports its current call, or one that it has not published, as failed. A rank that comes
  /// late would otherwise find the step of a rank that waited in vain, and report success.
  void give_up() {
    // relaxed: carries no data. Pairs with the load in gave_up(). Whoever returns from this rank's call and then
    // lets another rank begin its own orders the two.
    members_[static_cast<std::size_t>(rank_)].header->lines[step_ & 1].step.fetch_or(
        kGivenUp, std::memory_order_relaxed);
  }
  /// Whether rank r has given up the current step; valid only after r has arrived.
  [[nodiscard]] bool gave_up(int r) const {
    return (line(r).step.load(std::memory_order_relaxed) & kGivenUp) != 0;
  }
  /// The call that rank r announced in the current step; valid only after r has arrived.
  [[nodiscard]] CallRecord call(int r) const { return line(r).call.read(); }
  /// Whether rank r announced this call, which it rejects if and only if `own` is rejected; valid like call(r).
  [[nodiscard]] bool agrees(int r, const CallRecord& own) const {
    return line(r).call.equals<kAgreed.words()>(own);
  }

  /// Waits until rank r has published the current step; returns false at the deadline.
  template <class Interrupt>
  [[nodiscard]] bool wait(int r, os::CallDeadline& deadline, Interrupt&& interrupt) const {
    return os::wait_on(
        bell(rank_), spin_, deadline, [&] { return arrived(r); }, interrupt);
  }

 private:
  /// Above all numbers of steps, so that the rank counts as arrived.
  static constexpr std::uint64_t kGivenUp = std::uint64_t{1} << 63;

  [[nodiscard]] const Line& line(int r) const {
    return members_[static_cast<std::size_t>(r)].header->lines[step_ & 1];
  }

  int rank_ = 0;
  int size_ = 0;
  std::size_t staging_bytes_ = 0;
  std::uint64_t step_ = 0;
  os::SpinPolicy spin_;
  std::vector<Member> members_;
};

}  // namespace onehop::host
