// SPDX-License-Identifier: Apache-2.0
// Small pieces of text that both the matrix and the drawing use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/topology.h"

namespace onehop::render {

/// A size rounded for people: "48 KiB", "143.1 GiB".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
/// Ascending numbers as Linux writes them: "0-3,8".
[[nodiscard]] std::string ranges(const std::vector<int>& ascending);
/// "X", "NV18", "PIX" ... as `nvidia-smi topo` prints them; "?" when nothing is known.
[[nodiscard]] std::string link_label(const PairInfo& pair);
/// Its compute capability is known, and below what onehop needs.
[[nodiscard]] bool too_old(const DeviceInfo& device);
/// "2 GPUs", "1 core".
[[nodiscard]] std::string counted(std::size_t count, std::string_view noun);
/// "2 cores, 4 cpus".
[[nodiscard]] std::string processors(const HostInfo& host);

/// NUMA nodes of the devices, ascending, each once; unknown ones (-1) left out.
[[nodiscard]] std::vector<int> device_numa_nodes(const Topology& topology);

}  // namespace onehop::render
