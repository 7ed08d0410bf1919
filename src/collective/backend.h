// SPDX-License-Identifier: Apache-2.0
// The differences between collectives on the host and on GPUs. Layers above do not ask which of the two a
// group uses.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "call/check_call.h"
#include "group/state.h"

namespace onehop {

class CollectiveBackend {
 public:
  CollectiveBackend() = default;
  CollectiveBackend(const CollectiveBackend&) = delete;
  CollectiveBackend& operator=(const CollectiveBackend&) = delete;
  virtual ~CollectiveBackend() = default;

  struct Outcome {
    Algorithm algorithm = Algorithm::one_shot;
    std::string_view detail{};  ///< how the data travels, for the log
  };

  /// The backend of the group.
  [[nodiscard]] static const CollectiveBackend& of(const Group::State& group);

  /// Whether a call waits on the host for the other ranks' calls.
  [[nodiscard]] virtual bool waits_on_host(const Group::State& group) const = 0;

  /// Whether the caller's own factor is read from memory of the host when the call is made, and not by kernels.
  [[nodiscard]] virtual bool reads_own_factor(const CallOptions& options) const = 0;

  /// Runs a collective, within Group::State::call. If `error` is not none, or run() finds an error, all ranks
  /// learn of it and this one throws. GPUs: returns when the call is queued.
  virtual Outcome run(Group::State& group, const CollectiveCall& call, ArgumentError error,
                      os::CallDeadline& deadline) const = 0;

  /// Whether several calls can share a launch (fusion.h).
  [[nodiscard]] virtual bool fuses() const { return false; }
  /// Runs such calls, within Group::State::call. Errors are as for run().
  virtual Outcome run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                            std::span<const ArgumentError> errors, os::CallDeadline& deadline) const {
    Outcome outcome;
    for (std::size_t i = 0; i < calls.size(); ++i) outcome = run(group, calls[i], errors[i], deadline);
    return outcome;
  }

  /// For a send or recv without other errors: checks that this rank's memory is usable.
  [[nodiscard]] virtual ArgumentError find_memory_error(const Group::State& group,
                                                        const CollectiveCall& call) const = 0;
  /// Makes later work on `after` wait for the work that is on `before` now. On the host there are no streams.
  virtual void order_streams(Group::State& /*group*/, Stream /*before*/, Stream /*after*/) const {}
  /// For a handle that means another stream on each thread: a stream that is in order with the calling thread's and that other
  /// threads can use. Returns any other handle as it is.
  [[nodiscard]] virtual Stream for_other_threads(Stream stream) const { return stream; }
  /// Runs sends and receives, within Group::State::call. They are sorted (sort_by_pair).
  virtual void run_transfers(Group::State& group, std::span<const CollectiveCall> sorted, const char* phase,
                             os::CallDeadline& deadline) const = 0;
};

}  // namespace onehop
