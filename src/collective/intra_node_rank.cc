// SPDX-License-Identifier: Apache-2.0
#include "collective/intra_node_rank.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/wire.h"
#include "driver/capability.h"

namespace onehop {
namespace {

constexpr std::string_view kMagic = "OHIN";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kMaxText = 256;

enum Flag : std::uint8_t { kEnabled = 1, kForced = 2, kOverlap = 4, kAllFlags = 7 };

/// For example "GPU 3 (NVIDIA H200) of rank 1".
std::string gpu_of(const std::vector<IntraNodeRank>& ranks, std::size_t r) {
  const IntraNodeRank& rank = ranks[r];
  return fmt::format("GPU {}{} of rank {}", rank.device.value,
                     rank.name.empty() ? "" : fmt::format(" ({})", rank.name), r);
}

std::optional<std::string> disabled(const std::vector<IntraNodeRank>& ranks) {
  std::string names;
  std::size_t count = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].enabled) names += fmt::format("{}{}", count++ == 0 ? "" : ", ", r);
  }
  if (count == 0) return std::nullopt;
  return fmt::format("not enabled on rank{} {}: set ENABLE_INTRA_NODE_COMM=1 on all ranks",
                     count == 1 ? "" : "s", names);
}

std::optional<std::string> different(const std::vector<IntraNodeRank>& ranks) {
  const IntraNodeRank& first = ranks.front();
  const auto kind = [](const IntraNodeRank& rank) { return rank.device.is_host() ? "the host" : "a GPU"; };
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].device.is_host() != first.device.is_host()) {
      return fmt::format("ranks 0 and {} differ in their kind of device: {} and {}", r, kind(first),
                         kind(ranks[r]));
    }
    if (ranks[r].buffer_bytes != first.buffer_bytes) {
      return fmt::format("ranks 0 and {} differ in the size of the buffer: {} and {} bytes", r,
                         first.buffer_bytes, ranks[r].buffer_bytes);
    }
  }
  return std::nullopt;
}

std::optional<std::string> shared_device(const std::vector<IntraNodeRank>& ranks) {
  if (std::all_of(ranks.begin(), ranks.end(), [](const IntraNodeRank& each) { return each.allows_overlap; }))
    return std::nullopt;
  std::map<std::string_view, std::size_t> owners;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto [at, fresh] = owners.emplace(ranks[r].uuid, r);
    if (fresh) continue;
    return fmt::format(
        "ranks {} and {} use the same GPU {}; give each its own, or set "
        "ONEHOP_ALLOW_OVERLAPPING_DEVICES=1 on all ranks",
        at->second, r, ranks[r].uuid);
  }
  return std::nullopt;
}

std::optional<std::string> too_old(const std::vector<IntraNodeRank>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int capability = ranks[r].compute_capability;
    if (capability >= kOldestCapability) continue;
    return fmt::format("{} has compute capability {}.{}; {}.{} or newer is needed", gpu_of(ranks, r),
                       capability / 10, capability % 10, kOldestCapability / 10, kOldestCapability % 10);
  }
  return std::nullopt;
}

std::optional<std::string> not_connected(const std::vector<IntraNodeRank>& ranks) {
  std::size_t missing = 0;
  std::string first;
  for (std::size_t from = 0; from < ranks.size(); ++from) {
    const IntraNodeRank& rank = ranks[from];
    if (rank.forced) continue;
    for (std::size_t to = 0; to < ranks.size(); ++to) {
      const bool linked = to < rank.nvlinks.size() && rank.nvlinks[to] > 0;
      if (from == to || linked || rank.uuid == ranks[to].uuid) continue;
      if (missing++ == 0) first = fmt::format("{} to {}", gpu_of(ranks, from), gpu_of(ranks, to));
    }
  }
  if (missing == 0) return std::nullopt;
  const std::size_t more = missing - 1;
  return fmt::format(
      "the GPUs are not fully connected by NVLink: no link from {}{}; use onehop::Group, or set "
      "TEST_INTRA_NODE_COMM=1 on all ranks to go on all the same",
      first, more == 0 ? "" : fmt::format(", nor in {} more direction{}", more, more == 1 ? "" : "s"));
}

}  // namespace

void describe_device(const Topology& topology, IntraNodeRank& own) {
  const DeviceInfo& info = topology.device(own.device);
  own.uuid = info.uuid;
  own.name = info.name;
  own.pci_bus_id = info.pci_bus_id;
  own.compute_capability = info.compute_capability;
}

std::vector<int> nvlinks_to(const std::vector<IntraNodeRank>& ranks, const IntraNodeRank& own,
                            const Topology& topology) {
  std::vector<int> links;
  for (const IntraNodeRank& peer : ranks) {
    const auto& devices = topology.devices();
    const auto at = std::find_if(devices.begin(), devices.end(),
                                 [&](const DeviceInfo& each) { return each.uuid == peer.uuid; });
    const DeviceId found{static_cast<int>(at - devices.begin())};
    links.push_back(at == devices.end() ? 0 : topology.pair(own.device, found).nvlinks);
  }
  return links;
}

std::optional<std::string> intra_node_size_refusal(std::size_t ranks) {
  if (ranks >= 2 && ranks <= static_cast<std::size_t>(kMaxDevices)) return std::nullopt;
  return fmt::format("an IntraNodeComm has 2 to {} ranks, got {}", kMaxDevices, ranks);
}

std::optional<std::string> intra_node_refusal(const std::vector<IntraNodeRank>& ranks) {
  if (auto reason = intra_node_size_refusal(ranks.size())) return reason;
  if (auto reason = disabled(ranks)) return reason;
  if (auto reason = different(ranks)) return reason;
  if (ranks.front().device.is_host()) return std::nullopt;
  if (auto reason = shared_device(ranks)) return reason;
  if (auto reason = too_old(ranks)) return reason;
  return not_connected(ranks);
}

std::string encode(const IntraNodeRank& rank) {
  wire::Writer out;
  const int flags =
      (rank.enabled ? kEnabled : 0) | (rank.forced ? kForced : 0) | (rank.allows_overlap ? kOverlap : 0);
  out.put_raw(kMagic).put(kVersion).put(static_cast<std::uint8_t>(flags)).put(rank.buffer_bytes);
  out.put(std::int32_t{rank.device.value}).put(std::int32_t{rank.compute_capability});
  for (const std::string* text : {&rank.uuid, &rank.name, &rank.pci_bus_id})
    out.put_bytes(std::string_view(*text).substr(0, kMaxText));
  out.put(static_cast<std::uint32_t>(rank.nvlinks.size()));
  for (const int links : rank.nvlinks) out.put(std::int32_t{links});
  return std::move(out).str();
}

IntraNodeRank parse_intra_node_rank(std::string_view bytes) {
  constexpr std::string_view kWhat = "what a rank says of itself to an IntraNodeComm";
  wire::Reader in(bytes, kWhat);
  if (in.get_raw(kMagic.size()) != kMagic)
    fail(ErrorCode::protocol, "{}: it does not begin with {}", kWhat, kMagic);
  const auto version = in.get<std::uint16_t>();
  if (version != kVersion) fail(ErrorCode::protocol, "{}: version {}, expected {}", kWhat, version, kVersion);
  const auto flags = in.get<std::uint8_t>();
  if ((flags & ~kAllFlags) != 0) fail(ErrorCode::protocol, "{}: unknown flags {:#x}", kWhat, flags);
  IntraNodeRank rank;
  rank.enabled = (flags & kEnabled) != 0;
  rank.forced = (flags & kForced) != 0;
  rank.allows_overlap = (flags & kOverlap) != 0;
  rank.buffer_bytes = in.get<std::uint64_t>();
  rank.device = DeviceId{in.get<std::int32_t>()};
  rank.compute_capability = in.get<std::int32_t>();
  for (std::string* text : {&rank.uuid, &rank.name, &rank.pci_bus_id}) *text = in.get_bytes(kMaxText);
  const auto count = in.get<std::uint32_t>();
  if (count > static_cast<std::uint32_t>(kMaxHostRanks))
    fail(ErrorCode::protocol, "{}: links to {} ranks exceed the limit of {}", kWhat, count, kMaxHostRanks);
  for (std::uint32_t i = 0; i < count; ++i) rank.nvlinks.push_back(in.get<std::int32_t>());
  in.finish();
  return rank;
}

}  // namespace onehop
