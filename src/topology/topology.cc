// SPDX-License-Identifier: Apache-2.0
#include "onehop/topology.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "topology/forced.h"

namespace onehop {
namespace {

constexpr const char* kForce = "ONEHOP_FORCE_FULLY_CONNECTED";
constexpr const char* kLegacyForce = "TEST_INTRA_NODE_COMM";

/// Ordered pairs of different devices without a known NVLink from the first to the second.
struct MissingLinks {
  std::size_t count = 0;
  bool known = false;  ///< at least one pair is known to have no link
  DeviceId from;       ///< of the first pair known to have no link; if there is none, of the first pair
  DeviceId to;
};

MissingLinks missing_links(const Topology& topology, const std::vector<DeviceId>& devices) {
  for (const DeviceId device : devices) {
    if (!device.is_host())
      (void)topology.device(device);  // an index out of range is an error even if the result is forced
  }
  MissingLinks missing;
  for (const DeviceId from : devices) {
    for (const DeviceId to : devices) {
      if (from == to || (from.is_host() && to.is_host())) continue;
      const int links = from.is_host() || to.is_host() ? 0 : topology.pair(from, to).nvlinks;
      if (links > 0) continue;
      if (missing.count == 0 || (links == 0 && !missing.known)) {
        missing.known = links == 0;
        missing.from = from;
        missing.to = to;
      }
      ++missing.count;
    }
  }
  return missing;
}

std::vector<DeviceId> all_devices(const Topology& topology) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < topology.device_count(); ++i) devices.emplace_back(i);
  return devices;
}

std::string endpoint(DeviceId device) {
  return device.is_host() ? "the host" : fmt::format("GPU {}", device.value);
}

}  // namespace

const char* fully_connected_forced_by() {
  // The new name, if set, takes precedence over the old one.
  if (env::get(kForce)) return env::get_flag(kForce) ? kForce : nullptr;
  return env::get_flag(kLegacyForce) ? kLegacyForce : nullptr;
}

Topology::Topology(HostInfo host, std::vector<DeviceInfo> devices)
    : host_(std::move(host)), devices_(std::move(devices)), pairs_(devices_.size() * devices_.size()) {
  require(devices_.size() <= std::size_t{kMaxTopologyDevices}, "a topology holds at most {} devices, got {}",
          kMaxTopologyDevices, devices_.size());
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    PairInfo& self = pairs_[i * devices_.size() + i];
    self.peer_access = true;
    self.path = PciPath::self;
  }
}

const DeviceInfo& Topology::device(DeviceId device) const {
  require(device.value >= 0 && device.value < device_count(),
          "device {} is not in this topology, which has {} devices (numbered from 0)", device.value,
          device_count());
  return devices_[static_cast<std::size_t>(device.value)];
}

std::size_t Topology::index(DeviceId from, DeviceId to) const {
  (void)device(from);
  (void)device(to);
  return static_cast<std::size_t>(from.value) * devices_.size() + static_cast<std::size_t>(to.value);
}

const PairInfo& Topology::pair(DeviceId from, DeviceId to) const {
  return pairs_[index(from, to)];
}

void Topology::set_pair(DeviceId from, DeviceId to, PairInfo info) {
  const std::size_t at = index(from, to);
  require((info.path == PciPath::self) == (from == to),
          "the path from device {} to device {} cannot be '{}': 'self' is for a device and itself",
          from.value, to.value, to_string(info.path));
  pairs_[at] = info;
}

Connectivity Topology::connectivity(const std::vector<DeviceId>& devices) const {
  const bool complete = missing_links(*this, devices).count == 0;
  return complete || fully_connected_forced_by() != nullptr ? Connectivity::fully_connected
                                                            : Connectivity::unknown;
}

Connectivity Topology::connectivity() const {
  return connectivity(all_devices(*this));
}

std::string Topology::explain_connectivity(const std::vector<DeviceId>& devices) const {
  const MissingLinks missing = missing_links(*this, devices);
  if (missing.count > 0) {
    if (const char* name = fully_connected_forced_by())
      return fmt::format("fully connected (forced by {})", name);
    const std::size_t more = missing.count - 1;
    const std::string directions =
        fmt::format("from {} to {}{}", endpoint(missing.from), endpoint(missing.to),
                    more == 0 ? "" : fmt::format(", and {} more direction{}", more, more == 1 ? "" : "s"));
    return missing.known
               ? fmt::format("not fully connected by NVLink (no link {})", directions)
               : fmt::format("unknown (NVLinks {}{} are not known)", directions, more == 0 ? "" : ",");
  }
  const bool host_only = std::all_of(devices.begin(), devices.end(), [](DeviceId d) { return d.is_host(); });
  if (host_only) return "fully connected (host ranks share memory)";
  const bool alone =
      std::all_of(devices.begin(), devices.end(), [&](DeviceId d) { return d == devices.front(); });
  if (alone) return "fully connected (a single device)";
  return "fully connected (every pair has NVLinks in both directions)";
}

std::string Topology::explain_connectivity() const {
  return explain_connectivity(all_devices(*this));
}

std::string_view to_string(FabricState state) {
  switch (state) {
    case FabricState::unsupported:
      return "unsupported";
    case FabricState::not_started:
      return "not_started";
    case FabricState::in_progress:
      return "in_progress";
    case FabricState::completed:
      return "completed";
  }
  return "unknown";
}

std::string_view to_string(Connectivity connectivity) {
  switch (connectivity) {
    case Connectivity::unknown:
      return "unknown";
    case Connectivity::fully_connected:
      return "fully_connected";
  }
  return "unknown";
}

std::string_view to_string(PciPath path) {
  switch (path) {
    case PciPath::self:
      return "self";
    case PciPath::pix:
      return "pix";
    case PciPath::pxb:
      return "pxb";
    case PciPath::phb:
      return "phb";
    case PciPath::node:
      return "node";
    case PciPath::sys:
      return "sys";
    case PciPath::unknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace onehop
