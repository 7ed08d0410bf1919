// SPDX-License-Identifier: Apache-2.0
// Topologies as JSON; the format is documented in docs/wire-formats.md ("Topology JSON").
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "onehop/topology.h"

#include "base/check.h"
#include "base/json_field.h"
#include "os/text_file.h"

namespace onehop {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMaxFileBytes = 4 << 20;
constexpr int kMaxDepth = 8;  ///< the format itself needs 4
constexpr std::size_t kMaxNoteText = 4096;
constexpr std::size_t kMaxNotes = 256;
constexpr std::size_t kMaxNumaNodes = 256;
constexpr std::size_t kMaxCaches = 4096;
constexpr std::int64_t kMaxCpus = 8192;  ///< the maximum of a Linux kernel
constexpr std::int64_t kMaxNvlinks = 1024;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

constexpr std::array kFabricStates{FabricState::unsupported, FabricState::not_started,
                                   FabricState::in_progress, FabricState::completed};
constexpr std::array kPaths{PciPath::self, PciPath::pix, PciPath::pxb,    PciPath::phb,
                            PciPath::node, PciPath::sys, PciPath::unknown};

// ---------------------------------------------------------------------------------------------- reading

std::vector<int> read_cpus(const JsonField& array) {
  std::vector<int> cpus;
  array.each(kMaxCpus, [&](const JsonField& field, std::size_t) {
    const int cpu = field.small(0, kMaxCpus);
    if (!cpus.empty() && cpu <= cpus.back())
      field.wrong("must be above {}, the one before it, got {}", cpus.back(), cpu);
    cpus.push_back(cpu);
  });
  return cpus;
}

HostInfo read_host(const JsonField& object) {
  HostInfo host;
  if (const auto field = object.find("hostname")) host.hostname = field->text();
  if (const auto field = object.find("cpu_model")) host.cpu_model = field->text();
  if (const auto field = object.find("cores")) host.cores = field->small(0, kMaxCpus);
  if (const auto field = object.find("cpus")) host.cpus = field->small(0, kMaxCpus);
  if (const auto nodes = object.find("numa_nodes")) {
    std::set<int> ids;
    nodes->each(kMaxNumaNodes, [&](const JsonField& field, std::size_t) {
      NumaNode node;
      node.id = field.at("id").small(0, kMaxInt);
      if (!ids.insert(node.id).second) field.at("id").wrong("{} is already the id of another node", node.id);
      if (const auto bytes = field.find("memory_bytes")) node.memory_bytes = bytes->bytes();
      if (const auto cpus = field.find("cpus")) node.cpus = read_cpus(*cpus);
      host.numa_nodes.push_back(std::move(node));
    });
  }
  if (const auto caches = object.find("caches")) {
    caches->each(kMaxCaches, [&](const JsonField& field, std::size_t) {
      CacheInfo cache;
      cache.level = field.at("level").small(1, 9);
      if (const auto bytes = field.find("bytes")) cache.bytes = bytes->bytes();
      if (const auto cpus = field.find("cpus")) cache.cpus = read_cpus(*cpus);
      host.caches.push_back(std::move(cache));
    });
  }
  return host;
}

/// Accepts "00000000:19:00.0": domain, bus and device in lower-case hexadecimal, and function.
bool is_bus_id(std::string_view text) {
  constexpr std::string_view kPattern = "xxxxxxxx:xx:xx.x";
  if (text.size() != kPattern.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (kPattern[i] == 'x' ? !hex : text[i] != kPattern[i]) return false;
  }
  return true;
}

DeviceInfo read_device(const JsonField& object) {
  DeviceInfo device;
  const JsonField uuid = object.at("uuid");
  device.uuid = uuid.text();
  if (device.uuid.empty()) uuid.wrong("must not be empty: it is what identifies a device");
  if (const auto field = object.find("name")) device.name = field->text();
  if (const auto field = object.find("pci_bus_id")) {
    device.pci_bus_id = field->text();
    if (!device.pci_bus_id.empty() && !is_bus_id(device.pci_bus_id)) {
      field->wrong("must look like 00000000:19:00.0 in lower case, got '{}'", device.pci_bus_id);
    }
  }
  if (const auto field = object.find("numa_node")) device.numa_node = field->small(-1, kMaxInt);
  if (const auto field = object.find("compute_capability")) device.compute_capability = field->small(0, 9999);
  if (const auto field = object.find("memory_bytes")) device.memory_bytes = field->bytes();
  if (const auto field = object.find("fabric")) device.fabric = field->one_of(kFabricStates);
  if (const auto field = object.find("fabric_cluster")) device.fabric_cluster = field->text();
  if (const auto field = object.find("fabric_clique")) {
    device.fabric_clique =
        static_cast<std::uint32_t>(field->integer(0, std::numeric_limits<std::uint32_t>::max()));
  }
  if (const auto field = object.find("fabric_handles")) device.fabric_handles = field->flag();
  if (const auto field = object.find("fabric_note")) device.fabric_note = field->text(kMaxNoteText);
  if (const auto field = object.find("multicast_supported")) device.multicast_supported = field->flag();
  return device;
}

std::vector<DeviceInfo> read_devices(const JsonField& array) {
  std::vector<DeviceInfo> devices;
  array.each(kMaxTopologyDevices, [&](const JsonField& field, std::size_t) {
    DeviceInfo device = read_device(field);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].uuid == device.uuid) {
        field.at("uuid").wrong("'{}' is already the uuid of devices[{}]", device.uuid, i);
      }
    }
    devices.push_back(std::move(device));
  });
  return devices;
}

/// Calls `visit(JsonField element, DeviceId row, DeviceId column)` over a devices x devices matrix.
template <class Visit>
void each_pair(const JsonField& matrix, int devices, Visit&& visit) {
  const auto check_length = [&](const JsonField& array) {
    if (array.length() != static_cast<std::size_t>(devices)) {
      array.wrong("has {} elements but there are {} devices", array.length(), devices);
    }
  };
  check_length(matrix);
  matrix.each(kMaxTopologyDevices, [&](const JsonField& row, std::size_t from) {
    check_length(row);
    row.each(kMaxTopologyDevices, [&](const JsonField& field, std::size_t to) {
      visit(field, DeviceId{static_cast<int>(from)}, DeviceId{static_cast<int>(to)});
    });
  });
}

void read_pairs(const JsonField& object, Topology& topology) {
  const auto read = [&](const char* key, auto&& assign) {
    const auto matrix = object.find(key);
    if (!matrix) return;
    each_pair(*matrix, topology.device_count(), [&](const JsonField& field, DeviceId from, DeviceId to) {
      PairInfo pair = topology.pair(from, to);
      assign(pair, field);
      if ((pair.path == PciPath::self) != (from == to)) {
        field.wrong("must be \"self\" on the diagonal and only there, got \"{}\"", to_string(pair.path));
      }
      topology.set_pair(from, to, pair);
    });
  };
  read("nvlinks",
       [](PairInfo& pair, const JsonField& field) { pair.nvlinks = field.small(-1, kMaxNvlinks); });
  read("path", [](PairInfo& pair, const JsonField& field) { pair.path = field.one_of(kPaths); });
  read("peer_access", [](PairInfo& pair, const JsonField& field) { pair.peer_access = field.flag(); });
  read("native_atomics", [](PairInfo& pair, const JsonField& field) { pair.native_atomics = field.flag(); });
  read("array_access", [](PairInfo& pair, const JsonField& field) { pair.array_access = field.flag(); });
  read("performance_rank",
       [](PairInfo& pair, const JsonField& field) { pair.performance_rank = field.small(-1, kMaxInt); });
}

Topology parse(std::string_view text, std::string_view source) {
  const Json document = parse_json(text, source, {.bytes = kMaxFileBytes, .depth = kMaxDepth});
  const JsonField root(document, "", source);
  const JsonField version = root.at("onehop_topology");
  const std::int64_t number = version.integer(1, kMaxInt);
  if (number != kVersion) {
    version.wrong("version {} is not known to this build, which reads version {}", number, kVersion);
  }
  HostInfo host;
  std::vector<DeviceInfo> devices;
  if (const auto field = root.find("host")) host = read_host(*field);
  if (const auto field = root.find("devices")) devices = read_devices(*field);
  Topology topology(std::move(host), std::move(devices));
  if (const auto field = root.find("pairs")) read_pairs(*field, topology);
  if (const auto field = root.find("notes")) {
    field->each(kMaxNotes,
                [&](const JsonField& note, std::size_t) { topology.add_note(note.text(kMaxNoteText)); });
  }
  return topology;
}

// ---------------------------------------------------------------------------------------------- writing

Json host_json(const HostInfo& host) {
  Json nodes = Json::array();
  for (const NumaNode& node : host.numa_nodes) {
    nodes.push_back({{"id", node.id}, {"memory_bytes", node.memory_bytes}, {"cpus", node.cpus}});
  }
  Json caches = Json::array();
  for (const CacheInfo& cache : host.caches) {
    caches.push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"cpus", cache.cpus}});
  }
  return {{"hostname", host.hostname}, {"cpu_model", host.cpu_model},    {"cores", host.cores},
          {"cpus", host.cpus},         {"numa_nodes", std::move(nodes)}, {"caches", std::move(caches)}};
}

Json device_json(const DeviceInfo& device) {
  return {{"uuid", device.uuid},
          {"name", device.name},
          {"pci_bus_id", device.pci_bus_id},
          {"numa_node", device.numa_node},
          {"compute_capability", device.compute_capability},
          {"memory_bytes", device.memory_bytes},
          {"fabric", to_string(device.fabric)},
          {"fabric_cluster", device.fabric_cluster},
          {"fabric_clique", device.fabric_clique},
          {"fabric_handles", device.fabric_handles},
          {"fabric_note", device.fabric_note},
          {"multicast_supported", device.multicast_supported}};
}

Json pairs_json(const Topology& topology) {
  const auto matrix = [&](auto&& get) {
    Json rows = Json::array();
    for (int from = 0; from < topology.device_count(); ++from) {
      Json row = Json::array();
      for (int to = 0; to < topology.device_count(); ++to) {
        row.push_back(get(topology.pair(DeviceId{from}, DeviceId{to})));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  };
  return {{"nvlinks", matrix([](const PairInfo& p) { return p.nvlinks; })},
          {"path", matrix([](const PairInfo& p) { return to_string(p.path); })},
          {"peer_access", matrix([](const PairInfo& p) { return p.peer_access; })},
          {"native_atomics", matrix([](const PairInfo& p) { return p.native_atomics; })},
          {"array_access", matrix([](const PairInfo& p) { return p.array_access; })},
          {"performance_rank", matrix([](const PairInfo& p) { return p.performance_rank; })}};
}

}  // namespace

Topology Topology::from_json(std::string_view json) {
  return parse(json, "topology JSON");
}

Topology Topology::load(const std::string& path) {
  const std::string what = fmt::format("topology file '{}'", path);
  return parse(os::read_text_file(path, what, kMaxFileBytes), what);
}

std::string Topology::to_json() const {
  const Json document = {{"onehop_topology", kVersion},
                         {"host", host_json(host_)},
                         {"devices",
                          [&] {
                            Json devices = Json::array();
                            for (const DeviceInfo& device : devices_) devices.push_back(device_json(device));
                            return devices;
                          }()},
                         {"pairs", pairs_json(*this)},
                         {"notes", notes_}};
  return write_json(document);
}

}  // namespace onehop
