// SPDX-License-Identifier: Apache-2.0
// Collectives of GPU ranks. Each rank queues them on a stream; ranks compare their calls but do not wait for each
// other on the host, unless ONEHOP_CHECK is set.
#pragma once

#include <cstdint>

#include "collective/backend.h"
#include "group/device_rank.h"

namespace onehop {

class CudaBackend final : public CollectiveBackend {
 public:
  [[nodiscard]] bool waits_on_host(const Group::State& group) const override { return group.checks_calls(); }
  [[nodiscard]] bool reads_own_factor(const CallOptions& options) const override {
    return options.own_factor_on_host;
  }
  Outcome run(Group::State& group, const CollectiveCall& call, ArgumentError error,
              os::CallDeadline& deadline) const override;
  [[nodiscard]] bool fuses() const override { return true; }
  Outcome run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                    std::span<const ArgumentError> errors, os::CallDeadline& deadline) const override;
  [[nodiscard]] ArgumentError find_memory_error(const Group::State& group,
                                                const CollectiveCall& call) const override {
    return onehop::find_memory_error(call, group.options().device);
  }
  /// cudaStreamPerThread and cudaStreamLegacy, which wait for each other.
  [[nodiscard]] Stream for_other_threads(Stream stream) const override {
    constexpr std::uintptr_t kLegacy = 1;
    constexpr std::uintptr_t kPerThread = 2;
    if (reinterpret_cast<std::uintptr_t>(stream.handle) != kPerThread) return stream;
    return {reinterpret_cast<void*>(kLegacy)};  // NOLINT(performance-no-int-to-ptr): a handle
  }
  void order_streams(Group::State& group, Stream before, Stream after) const override {
    DeviceRank::of(group).communicator().order_streams(before, after);
  }
  void run_transfers(Group::State& group, std::span<const CollectiveCall> sorted, const char* phase,
                     os::CallDeadline& deadline) const override;
};

}  // namespace onehop
