// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>
#include <tuple>

#include "base/check.h"
#include "driver/device.h"
#include "driver/fabric.h"
#include "driver/share_support.h"
#include "topology/nvlink.h"
#include "topology/pci.h"
#include "topology/probe.h"

namespace onehop {
namespace {

FabricState to_public(FabricRegistration::State state) {
  switch (state) {
    case FabricRegistration::State::unsupported:
      return FabricState::unsupported;
    case FabricRegistration::State::not_started:
      return FabricState::not_started;
    case FabricRegistration::State::in_progress:
      return FabricState::in_progress;
    case FabricRegistration::State::completed:
      return FabricState::completed;
  }
  return FabricState::unsupported;
}

/// NVML's answers about a set of devices.
struct NvmlAnswers {
  std::vector<int> links;  ///< devices x devices; -1: unknown
  std::vector<FabricRegistration> fabric;
  std::vector<std::string> notes;
};

NvmlAnswers ask_nvml(const std::vector<std::string>& bus_ids) {
  NvmlAnswers answers;
  answers.fabric.resize(bus_ids.size());
  std::string why;
  const Nvml* const nvml = find_nvml(&why);
  if (nvml == nullptr) {
    answers.links.resize(bus_ids.size() * bus_ids.size(), -1);
    for (std::size_t i = 0; i < bus_ids.size(); ++i) answers.links[i * (bus_ids.size() + 1)] = 0;
    answers.notes.push_back("NVLinks and the state of the NVLink fabric are not known: " + why);
    return answers;
  }
  NvlinkMatrix matrix = count_nvlinks(*nvml, bus_ids);
  answers.links = std::move(matrix.links);
  answers.notes = std::move(matrix.notes);
  for (std::size_t i = 0; i < bus_ids.size(); ++i) {
    answers.fabric[i] = fabric_registration(*nvml, bus_ids[i]);
  }
  return answers;
}

/// Queries NVML once per process and set of devices: enumerating the links of eight devices takes
/// milliseconds, and topologies are requested often.
const NvmlAnswers& nvml_answers(const std::vector<std::string>& bus_ids) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::pair<std::uint64_t, std::vector<std::string>>, NvmlAnswers>;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(driver_epoch(), bus_ids);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, ask_nvml(bus_ids)).first;
  return found->second;
}

DeviceInfo ask_driver(const CudaDriver& driver, DeviceId device) {
  DeviceInfo info = probe_identity(device);
  std::size_t bytes = 0;
  check_cuda(driver.DeviceTotalMem(&bytes, cuda_device(device)), "cuDeviceTotalMem");
  info.memory_bytes = bytes;
  info.multicast_supported = cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0) != 0;
  const ShareSupport fabric = fabric_support(device);
  info.fabric_handles = fabric.usable;
  if (!fabric.usable) info.fabric_note = fabric.reason;
  return info;
}

/// A device that does not answer keeps its index, so that the indices of later devices do not change.
DeviceInfo describe(const CudaDriver& driver, DeviceId device, std::vector<std::string>& notes) {
  try {
    return ask_driver(driver, device);
  } catch (const Error& error) {
    notes.push_back(fmt::format("GPU {} does not answer: {}", device.value, error.message()));
    DeviceInfo info;
    info.uuid = fmt::format("GPU-unknown-{}", device.value);
    return info;
  }
}

/// Queries the driver about one direction. Links and path come from other sources.
PairInfo ask_pair(const CudaDriver& driver, DeviceId from, DeviceId to) {
  PairInfo pair;
  CUdevice source = 0;
  CUdevice target = 0;
  if (driver.DeviceGet(&source, from.value) != CUDA_SUCCESS ||
      driver.DeviceGet(&target, to.value) != CUDA_SUCCESS) {
    return pair;
  }
  int can = 0;
  pair.peer_access = driver.DeviceCanAccessPeer(&can, source, target) == CUDA_SUCCESS && can != 0;
  const auto attribute = [&](CUdevice_P2PAttribute which, int fallback) {
    int value = 0;
    return driver.DeviceGetP2PAttribute(&value, which, source, target) == CUDA_SUCCESS ? value : fallback;
  };
  pair.native_atomics = attribute(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0) != 0;
  pair.array_access = attribute(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, 0) != 0;
  pair.performance_rank = attribute(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, -1);
  return pair;
}

void take_notes(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

DeviceInfo probe_identity(DeviceId device) {
  require_cuda_device(device);
  DeviceInfo info;
  info.uuid = cuda_uuid(device);
  info.pci_bus_id = cuda_pci_bus_id(device);
  char name[128] = {};
  check_cuda(cuda_driver().DeviceGetName(name, sizeof name - 1, cuda_device(device)), "cuDeviceGetName");
  info.name = name;
  info.compute_capability = 10 * cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return info;
}

std::vector<int> probe_nvlinks(const std::vector<std::string>& bus_ids) {
  return nvml_answers(bus_ids).links;
}

DeviceProbe probe_devices(hwloc_topology* pci_machine) {
  DeviceProbe probe;
  std::string why;
  const CudaDriver* const driver = find_cuda_driver(&why);
  if (driver == nullptr) {
    probe.notes.push_back(why);
    return probe;
  }
  int count = cuda_device_count();
  if (count == 0) probe.notes.emplace_back("the NVIDIA driver shows no GPU to this process");
  if (count > kMaxTopologyDevices) {
    probe.notes.push_back(fmt::format("only the first {} of {} GPUs are listed", kMaxTopologyDevices, count));
    count = kMaxTopologyDevices;
  }
  std::vector<std::string> bus_ids;
  for (int i = 0; i < count; ++i) {
    probe.devices.push_back(describe(*driver, DeviceId{i}, probe.notes));
    bus_ids.push_back(probe.devices.back().pci_bus_id);
  }
  if (probe.devices.empty()) return probe;

  const NvmlAnswers& nvml = nvml_answers(bus_ids);
  const PciLocations locations = locate(pci_machine, bus_ids);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    DeviceInfo& device = probe.devices[at];
    device.numa_node = locations.numa_nodes[at];
    device.fabric = to_public(nvml.fabric[at].state);
    device.fabric_cluster = nvml.fabric[at].cluster;
    device.fabric_clique = nvml.fabric[at].clique;
  }
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      const std::size_t at = probe.pairs.size();
      PairInfo pair;
      if (from != to) pair = ask_pair(*driver, DeviceId{from}, DeviceId{to});
      if (from == to) pair.peer_access = true;
      pair.nvlinks = nvml.links[at];
      pair.path = locations.paths[at];
      probe.pairs.push_back(pair);
    }
  }
  take_notes(probe.notes, nvml.notes);
  take_notes(probe.notes, locations.notes);
  return probe;
}

DeviceProbe probe_devices() {
  // hwloc is needed only if there are devices. Its PCI information never changes, so it is loaded once.
  if (cuda_device_count() == 0) return probe_devices(nullptr);
  static const auto& machine = *new Machine(load_pci_machine());
  return probe_devices(machine.get());
}

}  // namespace onehop
