// SPDX-License-Identifier: Apache-2.0
#include "topology/nvlink.h"

#include <algorithm>

#include "base/check.h"
#include "driver/device.h"

namespace onehop {
namespace {

/// More than any device has (18 today). Bounds the loop if NVML never reports the end of the links.
constexpr unsigned kMaxLinks = 64;

/// The links of one device.
struct Ends {
  std::vector<int> direct;  ///< links to each device
  int into_switches = 0;
  bool partial = false;  ///< there may be further links
};

void count_end(const Nvml& nvml, NvmlDevice device, unsigned link, const std::vector<std::string>& bus_ids,
               Ends& ends) {
  NvmlLinkEnd end = kNvmlLinkEndUnknown;
  if (nvml.DeviceGetNvLinkRemoteDeviceType != nullptr &&
      nvml.DeviceGetNvLinkRemoteDeviceType(device, link, &end) != kNvmlSuccess) {
    end = kNvmlLinkEndUnknown;
  }
  if (end == kNvmlLinkEndSwitch) {
    ++ends.into_switches;
    return;
  }
  // A link to a device of unknown type also counts if the bus id is one of ours.
  NvmlPciInfo remote{};
  if (nvml.DeviceGetNvLinkRemotePciInfo_v2(device, link, &remote) != kNvmlSuccess) {
    ends.partial = true;
    return;
  }
  remote.bus_id[sizeof remote.bus_id - 1] = '\0';
  if (remote.bus_id[0] == '\0') return;
  const auto found = std::find(bus_ids.begin(), bus_ids.end(), normal_pci_bus_id(remote.bus_id));
  if (found != bus_ids.end()) ++ends.direct[static_cast<std::size_t>(found - bus_ids.begin())];
}

Ends ends_of(const Nvml& nvml, const std::string& bus_id, const std::vector<std::string>& bus_ids,
             std::vector<std::string>& notes) {
  Ends ends{.direct = std::vector<int>(bus_ids.size())};
  NvmlDevice device = nullptr;
  if (const NvmlResult result = nvml.DeviceGetHandleByPciBusId_v2(bus_id.c_str(), &device);
      result != kNvmlSuccess) {
    notes.push_back(fmt::format("NVML does not find device {}, so its NVLinks are not known: {}", bus_id,
                                nvml_error_text(nvml, result)));
    ends.partial = true;
    return ends;
  }
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    NvmlEnableState state = kNvmlDisabled;
    const NvmlResult result = nvml.DeviceGetNvLinkState(device, link, &state);
    if (result != kNvmlSuccess) {
      // Beyond the last link NVML returns one of these two codes.
      if (result != kNvmlNotSupported && result != kNvmlInvalidArgument) {
        ends.partial = true;
        notes.push_back(fmt::format("NVLinks of device {} from number {} on are not known: {}", bus_id, link,
                                    nvml_error_text(nvml, result)));
      }
      break;
    }
    if (state == kNvmlEnabled) count_end(nvml, device, link, bus_ids, ends);
  }
  return ends;
}

/// Counts the links from one device to another; -1 if none was found but some may exist.
int count_links(const Ends& from, const Ends& to, std::size_t to_index) {
  const int links = from.direct[to_index] + std::min(from.into_switches, to.into_switches);
  const bool partial = from.partial || (from.into_switches > 0 && to.partial);
  return links == 0 && partial ? -1 : links;
}

}  // namespace

NvlinkMatrix count_nvlinks(const Nvml& nvml, const std::vector<std::string>& bus_ids) {
  NvlinkMatrix matrix;
  std::vector<Ends> ends;
  for (const std::string& bus_id : bus_ids) ends.push_back(ends_of(nvml, bus_id, bus_ids, matrix.notes));
  for (std::size_t from = 0; from < bus_ids.size(); ++from) {
    for (std::size_t to = 0; to < bus_ids.size(); ++to) {
      matrix.links.push_back(from == to ? 0 : count_links(ends[from], ends[to], to));
    }
  }
  return matrix;
}

}  // namespace onehop
