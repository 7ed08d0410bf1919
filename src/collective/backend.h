// SPDX-License-Identifier: Apache-2.0
// What differs between collectives on the host and on GPUs. Nothing above it asks which of them a group uses.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collective/check_call.h"
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
    std::string_view detail{};  ///< for the log: how the data travels
  };

  /// The group's.
  [[nodiscard]] static const CollectiveBackend& of(const Group::State& group);

  /// Whether a call waits on the host for the calls of other ranks.
  [[nodiscard]] virtual bool waits_on_host(const Group::State& group) const = 0;

  /// Makes a collective, within Group::State::call. If `error` is not none, or is found now, all ranks hear
  /// of it and this one throws. GPUs: returns when it is queued.
  virtual Outcome run(Group::State& group, const CollectiveCall& call, ArgumentError error,
                      os::CallDeadline& deadline) const = 0;

  /// How many of `calls`, all-reduces without errors, are made by one run_fused(); 1: the first goes by
  /// itself.
  [[nodiscard]] virtual std::size_t count_fused(Group::State& group,
                                                std::span<const CollectiveCall> calls) const = 0;
  /// Makes them, within Group::State::call. Their errors as for run().
  virtual Outcome run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                            std::span<const ArgumentError> errors, os::CallDeadline& deadline) const = 0;

  /// For a send or recv without other errors: whether this rank's memory is usable.
  [[nodiscard]] virtual ArgumentError find_memory_error(const Group::State& group,
                                                        const CollectiveCall& call) const = 0;
  /// Whether sends and receives that are made together may be on different streams.
  [[nodiscard]] virtual bool mixes_streams() const = 0;
  /// Makes sends and receives, within Group::State::call. They are sorted (sort_by_pair).
  virtual void run_transfers(Group::State& group, std::span<const CollectiveCall> sorted, const char* phase,
                             os::CallDeadline& deadline) const = 0;
};

}  // namespace onehop
