// SPDX-License-Identifier: Apache-2.0
// Selects the backend of a benchmark, and the GPU of each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onehop/types.h"

namespace onehop::cli {

enum class DeviceChoice : std::uint8_t { automatic, host, cuda };

struct GpuCount {
  int count = 0;
  std::string why;  ///< the reason when there are none
};

/// The number of GPUs visible to this process. Initializes the driver: a child forked afterwards cannot use it.
[[nodiscard]] GpuCount count_gpus();
/// count_gpus() in a child process, so that this process can still fork.
[[nodiscard]] GpuCount count_gpus_in_child();

/// Whether `ranks` ranks (empty: one per GPU) use GPUs. Pure. Error{unsupported} and Error{invalid_argument}
/// say why cuda is not possible.
[[nodiscard]] bool use_gpus(DeviceChoice choice, const GpuCount& gpus, std::optional<int> ranks,
                            bool may_share);
/// The number of ranks without --ranks. Pure.
[[nodiscard]] int default_ranks(bool cuda, const GpuCount& gpus);
/// The GPU with the number of the local rank, or the only GPU where a launcher shows each rank its own. Pure.
[[nodiscard]] DeviceId device_of(int local_rank, int gpus, bool may_share);

}  // namespace onehop::cli
