// SPDX-License-Identifier: Apache-2.0
// Tuning tables as JSON; the format is documented in docs/wire-formats.md ("Tuning tables").
#include "onehop/tuning.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/json_field.h"
#include "base/units.h"
#include "kernel/cuda/call_params.h"
#include "kernel/device_team.h"

namespace onehop {
namespace {

constexpr int kVersion = 1;
constexpr int kMaxDepth = 4;  ///< the format itself needs 3
constexpr std::size_t kMaxRows = 1024;
constexpr std::int64_t kMaxUpTo = std::int64_t{1} << 62;
constexpr std::int64_t kMaxBlocks = 65535;
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kMaxThreads = std::max(cuda::max_threads(2), cuda::max_threads(kMaxDevices));
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kMinChunk = 4 << 10;
constexpr std::int64_t kMaxChunk = 1 << 30;

constexpr std::string_view kDefault = "default";
constexpr std::string_view kUnlimited = "max";
constexpr std::string_view kAll = "all";

constexpr std::array kCollectives{Collective::all_reduce};
constexpr std::array kBackends{Backend::host, Backend::cuda};
constexpr std::array kClasses{TypeClass::floats, TypeClass::any};

constexpr auto all_protocols() {
  std::array<DeviceProtocol, kTunableProtocolCount> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<DeviceProtocol>(i);
  return all;
}

/// Whether the protocol itself determines the number of threads.
bool has_crew(DeviceProtocol protocol) {
  return protocol == DeviceProtocol::chunks || protocol == DeviceProtocol::copies;
}

bool holds(TypeClass types, DType type) {
  return types == TypeClass::any || type_class(type) == types;
}

bool carries_all(DeviceProtocol protocol, TypeClass types) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (holds(types, type) && !carries(protocol, type)) return false;
  }
  return true;
}

std::int64_t read_multiple(const JsonField& field, std::int64_t step, std::int64_t lowest,
                           std::int64_t highest) {
  const std::int64_t value = field.integer(lowest, highest);
  if (value % step != 0) field.wrong("must be a multiple of {}, got {}", step, value);
  return value;
}

std::uint64_t read_up_to(const JsonField& field) {
  if (field.is(kUnlimited)) return kNoLimit;
  if (field.is_text())
    field.wrong("must be a number of bytes or \"{}\", got {}", kUnlimited, field.describe());
  return static_cast<std::uint64_t>(field.integer(0, kMaxUpTo));
}

Way read_host_way(const JsonField& row) {
  const JsonField algorithm = row.at("algorithm");
  if (algorithm.is(kDefault)) {
    row.only({"collective", "backend", "ranks", "types", "up_to", "algorithm"});
    return DefaultWay{};
  }
  row.only({"collective", "backend", "ranks", "types", "up_to", "algorithm", "chunk"});
  constexpr std::array kAlgorithms{Algorithm::one_shot, Algorithm::two_shot};
  return HostWay{
      .algorithm = algorithm.one_of(kAlgorithms),
      .chunk = static_cast<std::size_t>(read_multiple(row.at("chunk"), kLine, kMinChunk, kMaxChunk))};
}

Way read_device_way(const JsonField& row, TypeClass types) {
  const JsonField protocol = row.at("protocol");
  if (protocol.is(kDefault)) {
    row.only({"collective", "backend", "ranks", "types", "up_to", "protocol"});
    return DefaultWay{};
  }
  DeviceWay way;
  way.protocol = protocol.one_of(all_protocols());
  if (has_crew(way.protocol)) {
    row.only({"collective", "backend", "ranks", "types", "up_to", "protocol", "blocks"});
  } else {
    row.only({"collective", "backend", "ranks", "types", "up_to", "protocol", "blocks", "threads"});
  }
  if (!carries_all(way.protocol, types)) {
    protocol.wrong("{} does not carry every type of class \"{}\"; use \"float\" or another protocol",
                   to_string(way.protocol), to_string(types));
  }
  const JsonField blocks = row.at("blocks");
  way.blocks = blocks.is(kAll) ? kAllBlocks : static_cast<unsigned>(blocks.integer(1, kMaxBlocks));
  if (!has_crew(way.protocol)) {
    way.threads = static_cast<unsigned>(read_multiple(row.at("threads"), kWarp, kWarp, kMaxThreads));
  }
  return way;
}

TuningRow read_row(const JsonField& field) {
  TuningRow row;
  row.collective = field.at("collective").one_of(kCollectives);
  row.backend = field.at("backend").one_of(kBackends);
  const bool cuda = row.backend == Backend::cuda;
  row.ranks = field.at("ranks").small(2, cuda ? kMaxDevices : kMaxHostRanks);
  row.types = field.at("types").one_of(kClasses);
  row.up_to = read_up_to(field.at("up_to"));
  row.way = cuda ? read_device_way(field, row.types) : read_host_way(field);
  return row;
}

bool same_calls(const TuningRow& a, const TuningRow& b) {
  return a.collective == b.collective && a.backend == b.backend && a.ranks == b.ranks && a.types == b.types;
}

Tuning parse(std::string_view json, std::string_view source) {
  const Json document = parse_json(json, source, {.bytes = kMaxTuningBytes, .depth = kMaxDepth});
  const JsonField root(document, "", source);
  const JsonField version = root.at("onehop_tuning");
  if (const std::int64_t number = version.integer(1, std::numeric_limits<int>::max()); number != kVersion) {
    version.wrong("version {} is not known to this build, which reads version {}", number, kVersion);
  }
  root.only({"onehop_tuning", "device", "rows"});
  Tuning tuning;
  if (const auto device = root.find("device")) tuning.device = device->text();
  root.at("rows").each(kMaxRows, [&](const JsonField& field, std::size_t) {
    const TuningRow row = read_row(field);
    const auto before = std::find_if(tuning.rows.rbegin(), tuning.rows.rend(),
                                     [&](const TuningRow& other) { return same_calls(row, other); });
    if (before != tuning.rows.rend() && row.up_to <= before->up_to) {
      field.at("up_to").wrong("no call comes here: an earlier row takes the same calls up to {}",
                              before->up_to == kNoLimit ? kUnlimited : std::to_string(before->up_to));
    }
    tuning.rows.push_back(row);
  });
  return tuning;
}

Json to_json(const TuningRow& row) {
  Json out = {{"collective", to_string(row.collective)},
              {"backend", to_string(row.backend)},
              {"ranks", row.ranks},
              {"types", to_string(row.types)}};
  if (row.up_to == kNoLimit) {
    out["up_to"] = kUnlimited;
  } else {
    out["up_to"] = row.up_to;
  }
  if (const auto* host = std::get_if<HostWay>(&row.way)) {
    out["algorithm"] = to_string(host->algorithm);
    out["chunk"] = host->chunk;
  } else if (const auto* device = std::get_if<DeviceWay>(&row.way)) {
    out["protocol"] = to_string(device->protocol);
    if (device->blocks == kAllBlocks) {
      out["blocks"] = kAll;
    } else {
      out["blocks"] = device->blocks;
    }
    if (!has_crew(device->protocol)) out["threads"] = device->threads;
  } else {
    out[row.backend == Backend::cuda ? "protocol" : "algorithm"] = kDefault;
  }
  return out;
}

}  // namespace

std::string_view to_string(Backend backend) {
  return backend == Backend::cuda ? "cuda" : "host";
}
std::string_view to_string(TypeClass types) {
  return types == TypeClass::floats ? "float" : "any";
}

std::string to_string(const Way& way) {
  if (const auto* host = std::get_if<HostWay>(&way)) {
    return fmt::format("{} in chunks of {}", to_string(host->algorithm), format_size(host->chunk));
  }
  if (const auto* device = std::get_if<DeviceWay>(&way)) {
    const std::string blocks = device->blocks == kAllBlocks ? "all" : std::to_string(device->blocks);
    if (has_crew(device->protocol)) return fmt::format("{}, {} blocks", to_string(device->protocol), blocks);
    return fmt::format("{}, {} blocks of {} threads", to_string(device->protocol), blocks, device->threads);
  }
  return std::string(kDefault);
}

Tuning Tuning::from_json(std::string_view json, std::string_view source) {
  try {
    return parse(json, source);
  } catch (const Error& error) {
    fail(error.code(), "{} (correct it, or let 'onehop tune' write a new table)", error.message());
  }
}

std::string Tuning::to_json() const {
  const Json name(device);
  std::string out = fmt::format("{{\"onehop_tuning\": {},\n", kVersion);
  if (!device.empty())
    out += fmt::format(" \"device\": {},\n",
                       name.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  out += " \"rows\": [";
  for (const TuningRow& row : rows) {
    out += fmt::format("{}\n  {}", &row == rows.data() ? "" : ",", onehop::to_json(row).dump());
  }
  return out + "]}\n";
}

const Way* Tuning::find(Collective collective, Backend backend, int ranks, DType type,
                        std::uint64_t bytes) const {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const TuningRow& each) {
    return bytes <= each.up_to && each.ranks == ranks && each.backend == backend &&
           each.collective == collective && holds(each.types, type);
  });
  return row == rows.end() ? nullptr : &row->way;
}

TypeClass type_class(DType type) {
  return carries(DeviceProtocol::mail_one_shot, type) ? TypeClass::floats : TypeClass::any;
}

std::vector<Way> candidate_ways(Backend backend, int ranks, TypeClass types) {
  std::vector<Way> ways{DefaultWay{}};
  if (backend == Backend::host) {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      for (const std::size_t kib : {64u, 128u, 256u, 512u}) {
        ways.emplace_back(HostWay{.algorithm = algorithm, .chunk = kib << 10});
      }
    }
    return ways;
  }
  const auto most = static_cast<unsigned>(cuda::max_threads(cuda::kernel_ranks(ranks, /*sum=*/true)));
  for (const DeviceProtocol protocol : all_protocols()) {
    // Copies need memory that few groups provide. Where it is provided, the default already knows when they
    // pay off.
    if (!carries_all(protocol, types) || protocol == DeviceProtocol::copies) continue;
    for (const unsigned blocks : {32u, 64u, kAllBlocks}) {
      if (has_crew(protocol)) {
        ways.emplace_back(DeviceWay{.protocol = protocol, .blocks = blocks});
        continue;
      }
      for (const unsigned threads : {128u, 256u, 512u}) {
        if (threads > most) continue;  // would be reduced to one of the others
        ways.emplace_back(DeviceWay{.protocol = protocol, .blocks = blocks, .threads = threads});
      }
    }
  }
  return ways;
}

}  // namespace onehop
