// SPDX-License-Identifier: Apache-2.0
// The topology as a table for a terminal.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "onehop/topology.h"

#include "base/units.h"
#include "driver/capability.h"
#include "topology/render.h"

namespace onehop {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kMaxName = 16;      ///< of a device; longer ones are truncated so that a line fits
constexpr std::size_t kShortUuid = 12;    ///< "GPU-" and eight digits, enough to compare with `nvidia-smi -L`
constexpr std::size_t kMaxAffinity = 18;  ///< beside the matrix of 8 GPUs with the widest labels
constexpr std::string_view kNoAccess = "*";  ///< marks pairs that cannot map each other's memory
constexpr std::string_view kTooOld = "!";    ///< marks devices that onehop does not support

std::string gpu(std::size_t index) {
  return fmt::format("GPU{}", index);
}

std::string cell(const PairInfo& pair) {
  std::string label = render::link_label(pair);
  if (!pair.peer_access) label += kNoAccess;
  return label;
}

/// The matrix as text cells, row major.
std::vector<std::string> cells_of(const Topology& topology) {
  std::vector<std::string> cells;
  for (int from = 0; from < topology.device_count(); ++from) {
    for (int to = 0; to < topology.device_count(); ++to) {
      cells.push_back(cell(topology.pair(DeviceId{from}, DeviceId{to})));
    }
  }
  return cells;
}

/// The processors of each device's NUMA node, as `nvidia-smi topo -m` shows them: "-" where not known. Shortens
/// long lists, which follow in full with the host. Empty if nothing is known of any device.
std::vector<std::string> affinities_of(const Topology& topology) {
  std::vector<std::string> affinities;
  bool any = false;
  for (const DeviceInfo& device : topology.devices()) {
    const auto& nodes = topology.host().numa_nodes;
    const auto node =
        std::ranges::find_if(nodes, [&](const NumaNode& each) { return each.id == device.numa_node; });
    const bool known = node != nodes.end() && !node->cpus.empty();
    std::string cpus = known ? render::ranges(node->cpus) : "-";
    if (cpus.size() > kMaxAffinity) {
      constexpr std::string_view kMore = ",...";
      const std::size_t comma = cpus.rfind(',', kMaxAffinity - kMore.size());
      cpus = comma == std::string::npos ? "..." : cpus.substr(0, comma).append(kMore);
    }
    any = any || known;
    affinities.push_back(std::move(cpus));
  }
  if (!any) affinities.clear();
  return affinities;
}

std::string matrix_text(const std::vector<std::string>& cells, const std::vector<std::string>& affinities,
                        std::size_t devices) {
  const std::size_t head = gpu(devices - 1).size();
  std::size_t width = head;
  for (const std::string& text : cells) width = std::max(width, text.size());

  std::string out = fmt::format("{:{}}", "", head);
  for (std::size_t to = 0; to < devices; ++to) out += fmt::format("  {:>{}}", gpu(to), width);
  out += affinities.empty() ? "\n" : "  CPU affinity\n";
  for (std::size_t from = 0; from < devices; ++from) {
    out += fmt::format("{:<{}}", gpu(from), head);
    for (std::size_t to = 0; to < devices; ++to)
      out += fmt::format("  {:>{}}", cells[from * devices + to], width);
    out += affinities.empty() ? "\n" : fmt::format("  {}\n", affinities[from]);
  }
  return out;
}

/// Explains only the labels that occur.
std::string legend_text(const std::vector<std::string>& cells) {
  const auto occurs = [&](std::string_view start) {
    return std::any_of(cells.begin(), cells.end(),
                       [&](const std::string& c) { return c.starts_with(start); });
  };
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kMeanings{{
      {"NV", "NV#  that many NVLinks"},
      {"PIX", "PIX  one PCIe switch"},
      {"PXB", "PXB  several PCIe switches"},
      {"PHB", "PHB  a PCIe host bridge"},
      {"NODE", "NODE several host bridges of one NUMA node"},
      {"SYS", "SYS  across NUMA nodes"},
      {"?", "?    not known"},
  }};
  std::string out;
  for (const auto& [label, meaning] : kMeanings) {
    if (occurs(label)) out += fmt::format("  {}\n", meaning);
  }
  const bool no_access =
      std::any_of(cells.begin(), cells.end(), [](const std::string& c) { return c.ends_with(kNoAccess); });
  if (no_access)
    out += fmt::format("  {}    no peer access: the row's GPU cannot map the column's memory\n", kNoAccess);
  return out;
}

std::string fabric_text(const DeviceInfo& device) {
  switch (device.fabric) {
    case FabricState::unsupported:
      return "-";
    case FabricState::not_started:
      return "not started";
    case FabricState::in_progress:
      return "in progress";
    case FabricState::completed:
      return fmt::format("clique {}", device.fabric_clique);
  }
  return "-";
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

/// Removes the vendor prefix and truncates the name.
std::string short_name(const std::string& name) {
  std::string_view rest = name;
  for (const std::string_view maker : {"NVIDIA ", "Tesla "}) {
    if (rest.starts_with(maker)) rest.remove_prefix(maker.size());
  }
  return or_dash(fmt::format("{:.{}}", rest, kMaxName));  // in whole characters
}

/// Omits the PCI domain if all devices are in domain 0, as lspci does. Otherwise keeps four digits of it,
/// which suffice for most domains.
std::string short_bus_id(const std::string& bus_id, bool one_domain) {
  const std::size_t domain = one_domain ? 9 : bus_id.starts_with("0000") ? 4 : 0;
  return or_dash(bus_id.substr(std::min(domain, bus_id.size())));
}

std::string devices_text(const Topology& topology) {
  constexpr std::size_t kFields = 8;
  using Row = std::array<std::string, kFields>;
  std::vector<Row> rows{{"", "name", "bus id", "numa", "arch", "memory", "uuid", "fabric"}};
  const bool one_domain = std::ranges::all_of(topology.devices(), [](const DeviceInfo& device) {
    return device.pci_bus_id.empty() || device.pci_bus_id.starts_with("00000000:");
  });
  for (std::size_t i = 0; i < topology.devices().size(); ++i) {
    const DeviceInfo& device = topology.devices()[i];
    const int cc = device.compute_capability;
    rows.push_back(
        {gpu(i), short_name(device.name), short_bus_id(device.pci_bus_id, one_domain),
         device.numa_node < 0 ? "-" : fmt::format("{}", device.numa_node),
         cc == 0 ? "-" : fmt::format("{}.{}{}", cc / 10, cc % 10, render::too_old(device) ? kTooOld : ""),
         device.memory_bytes == 0 ? "-" : human_bytes(device.memory_bytes),
         fmt::format("{:.{}}", device.uuid, kShortUuid), fabric_text(device)});
  }
  std::array<std::size_t, kFields> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kFields; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kFields; ++i)
      line += fmt::format("{}{:<{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  if (std::any_of(topology.devices().begin(), topology.devices().end(), render::too_old)) {
    out += fmt::format("\n  {}    too old: onehop needs compute capability {}.{} or newer\n", kTooOld,
                       kOldestCapability / 10, kOldestCapability % 10);
  }
  return out;
}

/// Breaks `text` at spaces and behind commas, so that no line exceeds kColumns. Later lines are indented by `indent`.
std::string wrap(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t start = 0;
  std::size_t room = kColumns;
  while (text.size() - start > room) {
    const auto last = [&](char c) {
      const std::size_t at = text.rfind(c, start + room - 1);
      return at == std::string::npos || at <= start ? start : at;
    };
    const std::size_t comma = last(',');
    const std::size_t end = std::max(comma == start ? start : comma + 1, last(' '));
    if (end == start) break;
    out += fmt::format("{}\n{:{}}", text.substr(start, end - start), "", indent);
    start = text[end] == ' ' ? end + 1 : end;
    room = kColumns - indent;
  }
  return out + text.substr(start) + '\n';
}

/// Describes fabric handles, with devices of the same result merged into one line.
std::vector<std::string> fabric_lines(const Topology& topology) {
  std::vector<std::pair<std::string, std::vector<int>>> verdicts;
  for (int i = 0; i < topology.device_count(); ++i) {
    const DeviceInfo& device = topology.devices()[static_cast<std::size_t>(i)];
    if (!device.fabric_handles && device.fabric_note.empty()) continue;
    const std::string verdict =
        device.fabric_handles ? "work" : "do not work, and are not needed: " + device.fabric_note;
    auto same =
        std::find_if(verdicts.begin(), verdicts.end(), [&](const auto& v) { return v.first == verdict; });
    if (same == verdicts.end()) same = verdicts.insert(same, {verdict, {}});
    same->second.push_back(i);
  }
  std::vector<std::string> lines;
  for (const auto& [verdict, devices] : verdicts) {
    lines.push_back(fmt::format("fabric handles of GPU {} {}", render::ranges(devices), verdict));
  }
  return lines;
}

std::string caches_text(const HostInfo& host) {
  // (level, size, number of processors that share the cache) -> number of such caches.
  std::map<std::tuple<int, std::uint64_t, std::size_t>, std::size_t> kinds;
  for (const CacheInfo& cache : host.caches) ++kinds[{cache.level, cache.bytes, cache.cpus.size()}];
  std::string out;
  for (const auto& [kind, count] : kinds) {
    const auto& [level, bytes, sharers] = kind;
    out += fmt::format("  L{}: {} x {}", level, count, human_bytes(bytes));
    if (sharers > 1) out += fmt::format(", each shared by {} cpus", sharers);
    out += '\n';
  }
  return out;
}

std::string host_text(const HostInfo& host) {
  std::string out = fmt::format("Host {}: {}\n", or_dash(host.hostname), or_dash(host.cpu_model));
  if (host.cpus > 0) out += fmt::format("  {}\n", render::processors(host));
  for (const NumaNode& node : host.numa_nodes) {
    const std::string head = fmt::format("  NUMA node {}: {}, ", node.id, human_bytes(node.memory_bytes));
    out += wrap(head + (node.cpus.empty() ? "no cpus" : "cpus " + render::ranges(node.cpus)), 4);
  }
  return out + caches_text(host);
}

}  // namespace

std::string Topology::to_text() const {
  std::string out;
  if (!devices_.empty()) {
    const std::vector<std::string> cells = cells_of(*this);
    out += fmt::format("{}\n{}\n{}\n", matrix_text(cells, affinities_of(*this), devices_.size()),
                       legend_text(cells), devices_text(*this));
  }
  out += wrap(fmt::format("Connectivity of {}: {}",
                          devices_.empty() ? "host ranks" : render::counted(devices_.size(), "GPU"),
                          explain_connectivity()),
              4);
  if (host_ != HostInfo{}) out += '\n' + host_text(host_);
  std::vector<std::string> notes = notes_;
  for (std::string& line : fabric_lines(*this)) notes.push_back(std::move(line));
  if (!notes.empty()) {
    out += "\nNotes\n";
    for (const std::string& note : notes) out += wrap("  " + note, 4);
  }
  return out;
}

}  // namespace onehop
