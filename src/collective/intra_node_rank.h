// SPDX-License-Identifier: Apache-2.0
// Decides whether ranks get an IntraNodeComm. Each rank describes itself; the decision is a pure function of
// all descriptions and therefore the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/topology.h"
#include "onehop/types.h"

namespace onehop {

struct IntraNodeRank {
  bool enabled = false;         ///< ENABLE_INTRA_NODE_COMM
  bool forced = false;          ///< asserts full connectivity of its device (ONEHOP_FORCE_FULLY_CONNECTED)
  bool allows_overlap = false;  ///< several ranks on one device
  std::uint64_t buffer_bytes = 0;
  DeviceId device;  ///< numbered as on this rank
  // GPUs only:
  std::string uuid{};
  std::string name{};
  std::string pci_bus_id{};
  int compute_capability = 0;  ///< 90 for 9.0
  std::vector<int> nvlinks{};  ///< number of links to each rank's GPU; empty: not known yet

  bool operator==(const IntraNodeRank&) const = default;
};

/// Copies the properties of this rank's device from a topology. Error{invalid_argument} if the topology has
/// no such device.
void describe_device(const Topology& topology, IntraNodeRank& own);
/// Number of NVLinks from this rank's device to each rank's, found in a topology by UUID; 0 for devices that
/// it lacks.
[[nodiscard]] std::vector<int> nvlinks_to(const std::vector<IntraNodeRank>& ranks, const IntraNodeRank& own,
                                          const Topology& topology);

/// Why these ranks get no communicator, as one line that uses their rank numbers, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> intra_node_refusal(const std::vector<IntraNodeRank>& ranks);

/// The part of this decision that depends only on the number of ranks.
[[nodiscard]] std::optional<std::string> intra_node_size_refusal(std::size_t ranks);

/// Serializes for the other ranks (docs/wire-formats.md). The parser is pure and throws Error{protocol}.
[[nodiscard]] std::string encode(const IntraNodeRank& rank);
[[nodiscard]] IntraNodeRank parse_intra_node_rank(std::string_view bytes);

}  // namespace onehop
