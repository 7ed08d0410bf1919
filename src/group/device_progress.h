// SPDX-License-Identifier: Apache-2.0
// Tracks the progress of a GPU group's ranks, which queue collectives without waiting for each other on the
// host. It identifies ranks that are behind, and ranks that make different calls. It also shows whether all
// ranks refused a collective that one rank refused.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "onehop/error.h"

#include "backend/host/step_barrier.h"
#include "base/deadline.h"
#include "group/mesh.h"
#include "os/doorbell.h"

namespace onehop {

/// Different calls. Each rank leaves a record of every collective in shared memory before it queues it, and then
/// looks for the records of the same number. The store comes before the looks, in one order for all ranks, so
/// at least one of two ranks whose calls differ sees the other's, and fails the group without queueing its own:
/// their kernels never meet. A rank that is more than kKeptCalls behind finds no record; the history in later
/// records shows the difference as soon as the ranks are close again.
///
/// Refusals. A rank that refuses a collective throws at once, because one thread may drive several ranks. But ranks
/// that did not refuse must not match its next collective with the refused one. So its next collective begins
/// only when every other rank has refused the same one. If a rank has queued it, the group fails with the
/// refusal.
class DeviceProgress {
 public:
  /// `ranks`: the Progress of every rank, in shared memory that is initially zero.
  DeviceProgress(Rank rank, std::vector<host::Progress*> ranks) : rank_(rank), ranks_(std::move(ranks)) {}

  /// Counts a collective that is about to be queued. Throws this rank's refusal of an earlier one, unless all
  /// ranks have refused that one by the deadline, and Error{mismatch} when another rank is known to call
  /// something else; both fail the group. Called by one thread at a time.
  void begin(const CallRecord& call, IpcChannel::Mesh& mesh, os::CallDeadline& deadline, const char* phase) {
    if (refused_.load(std::memory_order_relaxed)) settle(mesh, deadline.arm(), phase);
    const std::uint64_t number = count();
    record(number, call);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (differs(r, number)) [[unlikely]]
        mesh.fail_call(mismatch(r, number), phase);
    }
    // The others have read the next record long ago. To fetch its line for writing takes as long as a miss, and
    // the exchange in record() would wait for it.
    __builtin_prefetch(&entry(static_cast<std::size_t>(rank_.value), number + 1), 1);
  }
  /// Counts a collective that this rank refuses, and throws the refusal. Otherwise like `begin`.
  [[noreturn]] void refuse(const Error& error, IpcChannel::Mesh& mesh, os::CallDeadline& deadline,
                           const char* phase);

  /// Returns this rank's refusal of a collective that another rank has queued, if any. Thread-safe.
  [[nodiscard]] std::optional<Error> contradicted_refusal();
  /// Returns this rank's refusal of a collective that not all ranks are known to have refused. Used when this
  /// rank leaves; otherwise the others would report its leaving as the reason. Thread-safe.
  [[nodiscard]] std::optional<Error> open_refusal();
  /// The error if the calls of another rank differ from this rank's, as far as the records tell. Thread-safe.
  [[nodiscard]] std::optional<Error> find_mismatch() const;
  /// Ranks that have begun fewer collectives than this rank. Thread-safe.
  [[nodiscard]] RankSet behind() const;

 private:
  struct Refusal {
    std::uint64_t number;
    Error error;
  };
  enum class Verdict { unknown, shared, contradicted };

  /// Returns the number of the collective that begins.
  std::uint64_t count() {
    std::atomic<std::uint64_t>& begun = ranks_[static_cast<std::size_t>(rank_.value)]->begun;
    const std::uint64_t number = begun.load(std::memory_order_relaxed) + 1;
    // release: pairs with the load in judge(); publishes an entry in `refused`.
    begun.store(number, std::memory_order_release);
    return number;
  }
  void record(std::uint64_t number, const CallRecord& call);
  [[nodiscard]] const host::BegunCall& entry(std::size_t rank, std::uint64_t number) const {
    return ranks_[rank]->calls[number % host::Progress::kKeptCalls];
  }
  /// Whether rank r has recorded another history than this rank up to this collective. False if either keeps
  /// no record of it.
  [[nodiscard]] bool differs(std::size_t r, std::uint64_t number) const {
    const host::BegunCall& theirs = entry(r, number);
    // seq_cst: comes after the exchange in record(), in one order for all ranks. acquire: pairs with it, on the
    // other rank.
    if (theirs.number.load(std::memory_order_seq_cst) != number) return false;
    return is_other_history(theirs, number);
  }
  [[nodiscard]] bool is_other_history(const host::BegunCall& theirs, std::uint64_t number) const;
  /// The record of a collective, if rank r still keeps it.
  [[nodiscard]] std::optional<CallRecord> recorded(std::size_t r, std::uint64_t number) const;
  /// Describes how the calls of rank r differ. `number`: a collective for which differs() holds.
  [[nodiscard]] Error mismatch(std::size_t r, std::uint64_t number) const;
  void settle(IpcChannel::Mesh& mesh, const Deadline& deadline, const char* phase);
  [[nodiscard]] Verdict judge(std::uint64_t number) const;

  const Rank rank_;
  const std::vector<host::Progress*> ranks_;
  std::uint64_t history_ = 0;         ///< of the collective begun last
  std::atomic<bool> refused_{false};  ///< whether refusal_ is set
  std::uint64_t refusals_ = 0;        ///< number of refusals so far; all ranks count the same ones
  std::mutex mutex_;                  ///< guards refusal_
  std::optional<Refusal> refusal_;    ///< the unsettled refusal
};

}  // namespace onehop
