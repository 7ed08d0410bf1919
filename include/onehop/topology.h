// SPDX-License-Identifier: Apache-2.0
// The topology of one machine as a plain value: devices, links and distances.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// Maximum number of devices in a topology, probed or loaded. A group has at most `kMaxDevices` of them.
inline constexpr int kMaxTopologyDevices = 64;

/// State of a device's NVLink fabric registration, as NVML reports it.
enum class FabricState : std::uint8_t { unsupported, not_started, in_progress, completed };

/// Result of Topology::connectivity: whether a set of devices is fully connected.
enum class Connectivity : std::uint8_t {
  unknown,          ///< not fully connected, or not known; explain_connectivity() gives the reason
  fully_connected,  ///< every pair has links in both directions
};

/// PCIe distance between two devices, nearest first. The names are those that `nvidia-smi topo` prints.
enum class PciPath : std::uint8_t { self, pix, pxb, phb, node, sys, unknown };

struct DeviceInfo {
  std::string uuid;            ///< "GPU-..." ; identity of a device across processes
  std::string name;            ///< "NVIDIA H200"
  std::string pci_bus_id;      ///< "00000000:19:00.0", lower case
  int numa_node = -1;          ///< -1: unknown
  int compute_capability = 0;  ///< 90 for 9.0; 0: unknown
  std::uint64_t memory_bytes = 0;
  FabricState fabric = FabricState::unsupported;
  std::string fabric_cluster;  ///< cluster uuid; empty when unsupported
  std::uint32_t fabric_clique = 0;
  bool fabric_handles = false;       ///< memory can be shared by fabric handles; onehop does not require them
  std::string fabric_note;           ///< why fabric handles do not work; empty if they do or were not tested
  bool multicast_supported = false;  ///< the driver's attribute; onehop never uses multicast

  bool operator==(const DeviceInfo&) const = default;
};

/// One directed pair (row device -> column device).
struct PairInfo {
  int nvlinks = 0;           ///< active links towards the peer (NVSwitch: minimum of both ends); -1: unknown
  bool peer_access = false;  ///< cudaDeviceCanAccessPeer
  bool native_atomics = false;
  bool array_access = false;
  int performance_rank = -1;  ///< CUDA's P2P performance rank; lower is better; -1: unknown
  PciPath path = PciPath::unknown;

  bool operator==(const PairInfo&) const = default;
};

/// A cache shared by some cores.
struct CacheInfo {
  int level = 0;
  std::uint64_t bytes = 0;
  std::vector<int> cpus;  ///< OS processor numbers

  bool operator==(const CacheInfo&) const = default;
};

struct NumaNode {
  int id = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<int> cpus;

  bool operator==(const NumaNode&) const = default;
};

/// The CPU side, for host ranks.
struct HostInfo {
  std::string hostname;
  std::string cpu_model;
  int cores = 0;  ///< physical cores this process may run on
  int cpus = 0;   ///< hardware threads this process may run on
  std::vector<NumaNode> numa_nodes;
  std::vector<CacheInfo> caches;

  bool operator==(const HostInfo&) const = default;
};

/// A value type: copy, compare, save and load it. `pairs` is devices x devices, row major.
class ONEHOP_API Topology {
 public:
  Topology() = default;
  /// Default-constructs all pairs except the diagonal, where a device has access to itself and path self.
  Topology(HostInfo host, std::vector<DeviceInfo> devices);

  /// Probes this machine: hwloc for the CPUs, the driver and NVML for devices. Never throws for missing
  /// hardware; `notes()` records what could not be determined.
  [[nodiscard]] static Topology probe();
  /// Parses the JSON that `to_json` writes (format: docs/wire-formats.md). Throws Error{protocol}, which
  /// names the field, if a field is invalid. Ignores unknown fields; missing optional fields get their
  /// defaults.
  [[nodiscard]] static Topology from_json(std::string_view json);
  /// Reads and parses a file. Errors name the path.
  [[nodiscard]] static Topology load(const std::string& path);

  [[nodiscard]] int device_count() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] const HostInfo& host() const { return host_; }
  [[nodiscard]] const std::vector<DeviceInfo>& devices() const { return devices_; }
  /// Bounds-checked: throws Error{invalid_argument}, which names the index and the count.
  [[nodiscard]] const DeviceInfo& device(DeviceId device) const;
  [[nodiscard]] const PairInfo& pair(DeviceId from, DeviceId to) const;
  /// Requires that `info.path` is `self` exactly if `from` and `to` are the same device.
  void set_pair(DeviceId from, DeviceId to, PairInfo info);
  /// What could not be determined and why, one line each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  /// fully_connected if every pair of `devices` has links in both directions. Host ranks (an empty list or
  /// all `DeviceId::host`) are always fully connected, because they share memory.
  /// ONEHOP_FORCE_FULLY_CONNECTED=1 (legacy: TEST_INTRA_NODE_COMM=1) forces fully_connected.
  [[nodiscard]] Connectivity connectivity(const std::vector<DeviceId>& devices) const;
  [[nodiscard]] Connectivity connectivity() const;  ///< for all devices
  /// The result of `connectivity` and its reason in one readable line, such as "not fully connected by NVLink
  /// (no link from GPU 0 to GPU 5, and 11 more directions)".
  [[nodiscard]] std::string explain_connectivity(const std::vector<DeviceId>& devices) const;
  [[nodiscard]] std::string explain_connectivity() const;

  [[nodiscard]] std::string to_json() const;
  /// A readable matrix, at most 100 columns wide for 8 devices (notes may be longer).
  [[nodiscard]] std::string to_text() const;
  /// A self-contained SVG drawing.
  [[nodiscard]] std::string to_svg() const;

  bool operator==(const Topology&) const = default;

 private:
  [[nodiscard]] std::size_t index(DeviceId from, DeviceId to) const;

  HostInfo host_;
  std::vector<DeviceInfo> devices_;
  std::vector<PairInfo> pairs_;
  std::vector<std::string> notes_;
};

[[nodiscard]] ONEHOP_API std::string_view to_string(FabricState state);
[[nodiscard]] ONEHOP_API std::string_view to_string(Connectivity connectivity);
[[nodiscard]] ONEHOP_API std::string_view to_string(PciPath path);

}  // namespace onehop
