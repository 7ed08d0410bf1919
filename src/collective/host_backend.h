// SPDX-License-Identifier: Apache-2.0
// Collectives of host ranks, over shared memory.
#pragma once

#include "collective/backend.h"

namespace onehop {

class HostBackend final : public CollectiveBackend {
 public:
  [[nodiscard]] bool waits_on_host(const Group::State& /*group*/) const override { return true; }
  [[nodiscard]] bool reads_own_factor(const CallOptions& options) const override {
    return !is_gpu_memory(options.own_factor);
  }
  [[nodiscard]] ArgumentError find_memory_error(const Group::State& /*group*/,
                                                const CollectiveCall& call) const override {
    return find_host_memory_error(call);
  }
  Outcome run(Group::State& group, const CollectiveCall& call, ArgumentError error,
              os::CallDeadline& deadline) const override;
  /// In transfers.cc.
  void run_transfers(Group::State& group, std::span<const CollectiveCall> sorted, const char* phase,
                     os::CallDeadline& deadline) const override;
};

}  // namespace onehop
