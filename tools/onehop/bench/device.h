// SPDX-License-Identifier: Apache-2.0
// Which backend a benchmark uses, and which GPU a rank.
#pragma once

#include <optional>
#include <string>

#include "onehop/types.h"

#include "bench/gpu.h"

namespace onehop::cli {

enum class DeviceChoice : std::uint8_t { automatic, host, cuda };

/// count_gpus() in a process of its own, so that this one can still start others.
[[nodiscard]] GpuCount count_gpus_apart();

/// Whether `ranks` ranks (empty: as many as there are GPUs) are GPUs. Pure. Error{unsupported} and
/// Error{invalid_argument} say why cuda cannot be had.
[[nodiscard]] bool use_gpus(DeviceChoice choice, const GpuCount& gpus, std::optional<int> ranks,
                            bool may_share);
/// How many ranks to start when nobody said. Pure.
[[nodiscard]] int default_ranks(bool cuda, const GpuCount& gpus);
/// Pure: the rank's own number among those of this machine, or the only GPU where a launcher shows each rank
/// its own.
[[nodiscard]] DeviceId device_of(int local_rank, int gpus, bool may_share);

}  // namespace onehop::cli
