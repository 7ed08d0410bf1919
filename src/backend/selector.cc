// SPDX-License-Identifier: Apache-2.0
#include "backend/selector.h"

#include <algorithm>

#include "backend/cuda/algorithm.h"
#include "backend/host/algorithm.h"
#include "base/check.h"
#include "base/element.h"

namespace onehop {
namespace {

const AlgorithmTraits* find_algorithm(Backend backend, std::string_view name) {
  for (const AlgorithmTraits* const each : algorithms(backend)) {
    if (each->name == name) return each;
  }
  return nullptr;
}

}  // namespace

std::vector<const AlgorithmTraits*> algorithms(Backend backend) {
  const auto traits = [](auto all) { return std::vector<const AlgorithmTraits*>(all.begin(), all.end()); };
  return backend == Backend::cuda ? traits(cuda::device_algorithms()) : traits(host::host_algorithms());
}

TypeClass type_class(DType type) {
  return is_float(type) ? TypeClass::floats : TypeClass::any;
}

Tuning default_tuning(Backend backend, int ranks, Links links) {
  const int most = backend == Backend::cuda ? kMaxDevices : kMaxHostRanks;
  require(ranks >= 1 && ranks <= most, "ranks {} is not within 1 to {}", ranks, most);
  return {.device = {},
          .rows = backend == Backend::cuda ? cuda::default_rows(ranks, links) : host::default_rows(ranks)};
}

std::vector<Collective> tunable_collectives(Backend backend) {
  std::vector<Collective> tunable;
  for (const TuningRow& row : default_tuning(backend, 2).rows) {
    if (std::ranges::find(tunable, row.collective) == tunable.end()) tunable.push_back(row.collective);
  }
  return tunable;
}

std::vector<std::string_view> algorithm_names(Backend backend, Collective collective, TypeClass types,
                                              Buffers buffers, std::optional<int> ranks) {
  std::vector<std::string_view> names;
  for (const AlgorithmTraits* const each : algorithms(backend)) {
    if (each->carries(collective, types, buffers) && (!ranks || each->takes(*ranks)))
      names.push_back(each->name);
  }
  return names;
}

std::vector<std::optional<AlgorithmChoice>> candidate_choices(Backend backend, Collective collective,
                                                              int ranks, TypeClass types, Buffers buffers) {
  std::vector<std::optional<AlgorithmChoice>> choices{std::nullopt};
  const unsigned most = cuda::max_block_threads(ranks);
  for (const AlgorithmTraits* const each : algorithms(backend)) {
    if (!each->carries(collective, types, buffers) || !each->takes(ranks)) continue;
    const AlgorithmChoice plain{.algorithm = std::string(each->name)};
    if (each->takes_chunk) {
      for (const std::size_t kib : {64u, 128u, 256u, 512u}) {
        choices.emplace_back(plain)->chunk = kib << 10;
      }
    } else if (each->takes_blocks) {
      for (const std::optional<unsigned> blocks :
           {std::optional(32u), std::optional(64u), std::optional<unsigned>()}) {
        if (!each->takes_threads) choices.emplace_back(plain)->blocks = blocks;
        for (const unsigned threads : {128u, 256u, 512u}) {
          if (!each->takes_threads || threads > most) continue;
          AlgorithmChoice choice = plain;
          choice.blocks = blocks;
          choice.threads = threads;
          choices.emplace_back(choice);
        }
      }
    } else {
      choices.emplace_back(plain);
    }
  }
  return choices;
}

Selector::Selector(const Tuning& own, Backend backend, int ranks, Links links) : backend_(backend) {
  for (const TuningRow& row : own.rows) {
    if (row.backend == backend && row.ranks == ranks) add(own_, row);
  }
  for (const TuningRow& row : default_tuning(backend, ranks, links).rows) add(defaults_, row);
  for (const AlgorithmTraits* const each : algorithms(backend)) {
    if (each->takes(ranks)) all_.push_back({each, {.algorithm = std::string(each->name)}});
  }
}

void Selector::add(std::vector<Row>& rows, const TuningRow& row) const {
  Row& added = rows.emplace_back(Row{row.collective, row.types, row.buffers, row.up_to, {}});
  if (row.choice) added.selection = {find_algorithm(backend_, row.choice->algorithm), *row.choice};
}

const Selector::Selection& Selector::select(const CollectiveCall& call, std::size_t bytes,
                                            std::optional<Algorithm> kind) const {
  if (!kind) {
    for (const Row& row : own_) {
      if (!applies(row, call) || bytes > row.up_to) continue;
      if (row.selection.algorithm == nullptr) break;
      return row.selection;
    }
  }
  for (const Row& row : defaults_) {
    if (applies(row, call) && bytes <= row.up_to && (!kind || row.selection.algorithm->kind == *kind))
      return row.selection;
  }
  // There is no choice, or the caller requests a kind that the table does not use for messages of this size.
  const auto usable = [&](const Selection& each) {
    return each.algorithm->without_choice.contains(call.collective) ||
           (each.algorithm->kind == kind &&
            each.algorithm->carries(call.collective, type_class(call.type), Buffers::any));
  };
  const auto found = std::ranges::find_if(all_.rbegin(), all_.rend(), usable);
  if (found == all_.rend()) {
    fail(ErrorCode::unsupported, "internal error: no {}algorithm of the {} backend carries {} of {}",
         kind ? fmt::format("{} ", to_string(*kind)) : "", to_string(backend_), to_string(call.collective),
         to_string(call.type));
  }
  return *found;
}

}  // namespace onehop
