// SPDX-License-Identifier: Apache-2.0
// What decides whether ranks get an IntraNodeComm: what each says of itself, and the decision, which is the
// same on all ranks since it is a pure function of what all of them said.
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
  bool forced = false;          ///< vouches for the links from its device (ONEHOP_FORCE_FULLY_CONNECTED)
  bool allows_overlap = false;  ///< several ranks on one device
  std::uint64_t buffer_bytes = 0;
  DeviceId device;  ///< as this rank numbers it
  // Of GPUs:
  std::string uuid{};
  std::string name{};
  std::string pci_bus_id{};
  int compute_capability = 0;  ///< 90 for 9.0
  std::vector<int> nvlinks{};  ///< to each rank's GPU; empty: not known yet

  bool operator==(const IntraNodeRank&) const = default;
};

/// Takes over what a topology says of this rank's device. Error{invalid_argument} when it has no such device.
void describe_device(const Topology& topology, IntraNodeRank& own);
/// NVLinks from this rank's device to each rank's, found in a topology by UUID; 0 for those it does not have.
[[nodiscard]] std::vector<int> nvlinks_to(const std::vector<IntraNodeRank>& ranks, const IntraNodeRank& own,
                                          const Topology& topology);

/// Why these ranks get no communicator, one line in their numbers, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> intra_node_refusal(const std::vector<IntraNodeRank>& ranks);

/// The part of it that depends on their number alone.
[[nodiscard]] std::optional<std::string> intra_node_size_refusal(std::size_t ranks);

/// For the other ranks (docs/wire-formats.md). The parser is pure and throws Error{protocol}.
[[nodiscard]] std::string encode(const IntraNodeRank& rank);
[[nodiscard]] IntraNodeRank parse_intra_node_rank(std::string_view bytes);

}  // namespace onehop
