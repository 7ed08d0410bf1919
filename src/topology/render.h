// SPDX-License-Identifier: Apache-2.0
// Text formatting for both the matrix and the drawing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/topology.h"

namespace onehop::render {

/// Formats ascending numbers in Linux's list format: "0-3,8".
[[nodiscard]] std::string ranges(const std::vector<int>& ascending);
/// Formats "X", "NV18", "PIX" ... as `nvidia-smi topo` does; "?" if unknown.
[[nodiscard]] std::string link_label(const PairInfo& pair);
/// Whether the compute capability is known and below onehop's minimum.
[[nodiscard]] bool too_old(const DeviceInfo& device);
/// Formats a count with its noun: "2 GPUs", "1 core".
[[nodiscard]] std::string counted(std::size_t count, std::string_view noun);
/// Formats "2 cores, 4 cpus".
[[nodiscard]] std::string processors(const HostInfo& host);

/// Returns the distinct NUMA nodes of the devices in ascending order, without unknown ones (-1).
[[nodiscard]] std::vector<int> device_numa_nodes(const Topology& topology);

}  // namespace onehop::render
