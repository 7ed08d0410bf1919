// SPDX-License-Identifier: Apache-2.0
// Tuning tables as JSON; the format is documented in docs/wire-formats.md ("Tuning tables").
#include "onehop/tuning.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/json_field.h"
#include "base/units.h"

namespace onehop {
namespace {

constexpr int kVersion = 2;
constexpr int kMaxDepth = 4;  ///< the format itself needs 3
constexpr std::size_t kMaxRows = 1024;
constexpr std::int64_t kMaxUpTo = std::int64_t{1} << 62;
constexpr std::int64_t kMaxBlocks = 65535;
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kMaxThreads = 1024;  ///< of any kernel; algorithms may have lower limits
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kMinChunk = 4 << 10;
constexpr std::int64_t kMaxChunk = 1 << 30;

constexpr std::string_view kDefault = "default";
constexpr std::string_view kUnlimited = "max";

constexpr std::array kBackends{Backend::host, Backend::cuda};
constexpr std::array kClasses{TypeClass::floats, TypeClass::any};
constexpr std::array kBuffers{Buffers::any, Buffers::symmetric};

bool matches(const TuningRow& row, const TuningQuery& query) {
  return query.bytes <= row.up_to && row.collective == query.collective && row.backend == query.backend &&
         row.ranks == query.ranks && (row.types == TypeClass::any || row.types == type_class(query.type)) &&
         (row.buffers == Buffers::any || row.buffers == query.buffers);
}

/// The largest call of a row, which rows for more special calls do not match. If an earlier row matches it,
/// that row matches all calls of this one.
TuningQuery last_call_of(const TuningRow& row) {
  return {.collective = row.collective,
          .backend = row.backend,
          .ranks = row.ranks,
          .type = row.types == TypeClass::floats ? DType::bf16 : DType::i32,
          .buffers = row.buffers,
          .bytes = row.up_to};
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

std::string read_algorithm(const JsonField& field, const TuningRow& row) {
  std::string known;
  for (const std::string_view name :
       algorithm_names(row.backend, row.collective, row.types, row.buffers, row.ranks)) {
    if (field.is(name)) return std::string(name);
    known.append(" ").append(name);
  }
  field.wrong("must be one of {}{} for {} of {} ranks with types \"{}\" and buffers \"{}\", got {}", kDefault,
              known, to_string(row.collective), row.ranks, to_string(row.types), to_string(row.buffers),
              field.describe());
}

std::optional<AlgorithmChoice> read_choice(const JsonField& field, const TuningRow& row) {
  const JsonField algorithm = field.at("algorithm");
  if (algorithm.is(kDefault)) {
    field.only({"collective", "backend", "ranks", "types", "buffers", "up_to", "algorithm", "derived"});
    return std::nullopt;
  }
  AlgorithmChoice choice{.algorithm = read_algorithm(algorithm, row)};
  if (row.backend == Backend::host) {
    field.only(
        {"collective", "backend", "ranks", "types", "buffers", "up_to", "algorithm", "chunk", "derived"});
    if (const auto chunk = field.find("chunk"))
      choice.chunk = static_cast<std::size_t>(read_multiple(*chunk, kLine, kMinChunk, kMaxChunk));
    return choice;
  }
  field.only({"collective", "backend", "ranks", "types", "buffers", "up_to", "algorithm", "blocks", "threads",
              "derived"});
  if (const auto blocks = field.find("blocks"))
    choice.blocks = static_cast<unsigned>(blocks->integer(1, kMaxBlocks));
  if (const auto threads = field.find("threads"))
    choice.threads = static_cast<unsigned>(read_multiple(*threads, kWarp, kWarp, kMaxThreads));
  return choice;
}

TuningRow read_row(const JsonField& field) {
  TuningRow row;
  row.backend = field.at("backend").one_of(kBackends);
  row.collective = field.at("collective").one_of(tunable_collectives(row.backend));
  row.ranks = field.at("ranks").small(2, row.backend == Backend::cuda ? kMaxDevices : kMaxHostRanks);
  row.types = field.at("types").one_of(kClasses);
  if (const auto buffers = field.find("buffers")) row.buffers = buffers->one_of(kBuffers);
  row.up_to = read_up_to(field.at("up_to"));
  row.choice = read_choice(field, row);
  if (const auto derived = field.find("derived")) row.derived = derived->flag();
  return row;
}

std::string up_to_text(std::uint64_t up_to) {
  return up_to == kNoLimit ? std::string(kUnlimited) : std::to_string(up_to);
}

Tuning parse(std::string_view json, std::string_view source) {
  const Json document = parse_json(json, source, {.bytes = kMaxTuningBytes, .depth = kMaxDepth});
  const JsonField root(document, "", source);
  const JsonField version = root.at("onehop_tuning");
  const std::int64_t number = version.integer(1, std::numeric_limits<int>::max());
  if (number < kVersion) version.wrong("version {} is no longer read", number);
  if (number > kVersion)
    version.wrong("version {} is not known to this build, which reads version {}", number, kVersion);
  root.only({"onehop_tuning", "device", "rows"});
  Tuning tuning;
  if (const auto device = root.find("device")) tuning.device = device->text();
  root.at("rows").each(kMaxRows, [&](const JsonField& field, std::size_t) {
    const TuningRow row = read_row(field);
    if (const TuningRow* const earlier = tuning.find(last_call_of(row))) {
      field.at("up_to").wrong("no call reaches this row: rows[{}] takes the same calls up to {}",
                              earlier - tuning.rows.data(), up_to_text(earlier->up_to));
    }
    tuning.rows.push_back(row);
  });
  return tuning;
}

/// Optional members appear only where they differ from their default.
Json to_json(const TuningRow& row) {
  Json out = {{"collective", to_string(row.collective)},
              {"backend", to_string(row.backend)},
              {"ranks", row.ranks},
              {"types", to_string(row.types)}};
  if (row.buffers != Buffers::any) out["buffers"] = to_string(row.buffers);
  if (row.up_to == kNoLimit) {
    out["up_to"] = kUnlimited;
  } else {
    out["up_to"] = row.up_to;
  }
  out["algorithm"] = kDefault;
  if (row.choice) {
    out["algorithm"] = row.choice->algorithm;
    if (row.choice->chunk) out["chunk"] = *row.choice->chunk;
    if (row.choice->blocks) out["blocks"] = *row.choice->blocks;
    if (row.choice->threads) out["threads"] = *row.choice->threads;
  }
  if (row.derived) out["derived"] = true;
  return out;
}

}  // namespace

std::string_view to_string(Backend backend) {
  return backend == Backend::cuda ? "cuda" : "host";
}
std::string_view to_string(TypeClass types) {
  return types == TypeClass::floats ? "float" : "any";
}
std::string_view to_string(Buffers buffers) {
  return buffers == Buffers::symmetric ? "symmetric" : "any";
}
std::string_view to_string(Links links) {
  return links == Links::pcie ? "pcie" : "nvlink";
}

std::string to_string(const AlgorithmChoice& choice) {
  std::string text = choice.algorithm;
  if (choice.chunk) text += fmt::format(" in chunks of {}", format_size(*choice.chunk));
  if (choice.blocks) text += fmt::format(", {} blocks", *choice.blocks);
  if (choice.threads)
    text += fmt::format("{} of {} threads", choice.blocks ? "" : ", blocks", *choice.threads);
  return text;
}

Tuning Tuning::from_json(std::string_view json, std::string_view source) {
  try {
    return parse(json, source);
  } catch (const Error& error) {
    fail(error.code(), "{}; 'onehop tune --out FILE' writes a new table", error.message());
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

const TuningRow* Tuning::find(const TuningQuery& query) const {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const TuningRow& each) { return matches(each, query); });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace onehop
