// SPDX-License-Identifier: Apache-2.0
#include "onehop/tuning.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "onehop/c/tuning.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static constexpr auto kLastCollective = static_cast<Collective>(kCollectiveCount - 1);

static_assert(ONEHOP_BACKEND_HOST == static_cast<int>(Backend::host));
static_assert(ONEHOP_BACKEND_CUDA == static_cast<int>(Backend::cuda));
static_assert(ONEHOP_TYPE_CLASS_FLOATS == static_cast<int>(TypeClass::floats));
static_assert(ONEHOP_TYPE_CLASS_ANY == static_cast<int>(TypeClass::any));
static_assert(ONEHOP_BUFFERS_ANY == static_cast<int>(Buffers::any));
static_assert(ONEHOP_BUFFERS_SYMMETRIC == static_cast<int>(Buffers::symmetric));
static_assert(ONEHOP_LINKS_NVLINK == static_cast<int>(Links::nvlink));
static_assert(ONEHOP_LINKS_PCIE == static_cast<int>(Links::pcie));
static_assert(ONEHOP_TUNING_NO_LIMIT == kNoLimit);

namespace {

constexpr const char* kDefault = "default";

Collective to_collective(onehop_collective_t collective) {
  return to_enumerator(collective, kLastCollective, "collective");
}
Backend to_backend(onehop_backend_t backend) {
  return to_enumerator(backend, Backend::cuda, "backend");
}
TypeClass to_types(onehop_type_class_t types) {
  return to_enumerator(types, TypeClass::any, "types");
}
Buffers to_buffers(onehop_buffers_t buffers) {
  return to_enumerator(buffers, Buffers::symmetric, "buffers");
}

void require_ranks(Backend backend, int ranks) {
  const bool cuda = backend == Backend::cuda;
  const int most = cuda ? kMaxDevices : kMaxHostRanks;
  require(ranks >= 2 && ranks <= most, "ranks {} is not within 2 to {}{}", ranks, most, cuda ? " GPUs" : "");
}

}  // namespace

struct onehop_tuning {
  explicit onehop_tuning(Tuning from) : tuning(std::move(from)) {
    for (const TuningRow& row : tuning.rows)
      texts.push_back(row.choice ? to_string(*row.choice) : std::string(kDefault));
  }

  Tuning tuning;
  std::vector<std::string> texts;  ///< the choices of the rows, as text
};

extern "C" {

const char* onehop_collective_name(onehop_collective_t collective) {
  return name_of(collective, kLastCollective);
}

const char* onehop_backend_name(onehop_backend_t backend) {
  return name_of(backend, Backend::cuda);
}

const char* onehop_type_class_name(onehop_type_class_t types) {
  return name_of(types, TypeClass::any);
}

const char* onehop_buffers_name(onehop_buffers_t buffers) {
  return name_of(buffers, Buffers::symmetric);
}

const char* onehop_links_name(onehop_links_t links) {
  return name_of(links, Links::pcie);
}

onehop_status_t onehop_type_class_of(onehop_dtype_t dtype, onehop_type_class_t* types) {
  return guard(
      [&] { deref(types, "types") = static_cast<onehop_type_class_t>(type_class(to_dtype(dtype))); });
}

int onehop_tuning_has_choice(onehop_backend_t backend, onehop_collective_t collective) {
  return guard_or(0, [&] {
    return std::ranges::count(tunable_collectives(to_backend(backend)), to_collective(collective)) != 0 ? 1
                                                                                                        : 0;
  });
}

const char* onehop_tuning_algorithm_name(onehop_backend_t backend, onehop_collective_t collective,
                                         onehop_type_class_t types, onehop_buffers_t buffers, size_t index) {
  return guard_or(static_cast<const char*>(nullptr), [&]() -> const char* {
    const auto names =
        algorithm_names(to_backend(backend), to_collective(collective), to_types(types), to_buffers(buffers));
    return index < names.size() ? names[index].data() : nullptr;
  });
}

onehop_status_t onehop_tuning_from_json(const char* json, const char* source, onehop_tuning_t** tuning) {
  return produce(tuning, "tuning", [&] {
    const char* const from = text(json, "json");
    return new onehop_tuning(source == nullptr ? Tuning::from_json(from) : Tuning::from_json(from, source));
  });
}

onehop_status_t onehop_tuning_default(onehop_backend_t backend, int ranks, onehop_links_t links,
                                      onehop_tuning_t** tuning) {
  return produce(tuning, "tuning", [&] {
    const Backend of = to_backend(backend);
    require_ranks(of, ranks);
    return new onehop_tuning(default_tuning(of, ranks, to_enumerator(links, Links::pcie, "links")));
  });
}

onehop_status_t onehop_tuning_candidates(onehop_backend_t backend, onehop_collective_t collective, int ranks,
                                         onehop_type_class_t types, onehop_buffers_t buffers,
                                         onehop_tuning_t** candidates) {
  return produce(candidates, "candidates", [&] {
    TuningRow row{.collective = to_collective(collective),
                  .backend = to_backend(backend),
                  .ranks = ranks,
                  .types = to_types(types),
                  .buffers = to_buffers(buffers)};
    require_ranks(row.backend, ranks);
    Tuning list;
    for (const auto& choice : candidate_choices(row.backend, row.collective, ranks, row.types, row.buffers)) {
      row.choice = choice;
      list.rows.push_back(row);
    }
    return new onehop_tuning(std::move(list));
  });
}

void onehop_tuning_destroy(onehop_tuning_t* tuning) {
  delete tuning;
}

onehop_status_t onehop_tuning_to_json(const onehop_tuning_t* tuning, char** json) {
  return produce(json, "json", [&] { return copy_out(deref(tuning, "tuning").tuning.to_json()); });
}

const char* onehop_tuning_device(const onehop_tuning_t* tuning) {
  return tuning == nullptr ? "" : tuning->tuning.device.c_str();
}

void onehop_tuning_row_init(onehop_tuning_row_t* row, size_t size) {
  init_options(row, size, onehop_tuning_row_t{});
}

size_t onehop_tuning_row_count(const onehop_tuning_t* tuning) {
  return tuning == nullptr ? 0 : tuning->tuning.rows.size();
}

onehop_status_t onehop_tuning_row(const onehop_tuning_t* tuning, size_t index, onehop_tuning_row_t* row) {
  return answer(row, "row", [&](onehop_tuning_row_t& out) {
    const onehop_tuning& from = deref(tuning, "tuning");
    const TuningRow& found = entry(from.tuning.rows, index, "row");
    out.collective = static_cast<onehop_collective_t>(found.collective);
    out.backend = static_cast<onehop_backend_t>(found.backend);
    out.ranks = found.ranks;
    out.types = static_cast<onehop_type_class_t>(found.types);
    out.buffers = static_cast<onehop_buffers_t>(found.buffers);
    out.derived = found.derived ? 1 : 0;
    out.up_to = found.up_to;
    out.algorithm = kDefault;
    if (found.choice) {
      out.algorithm = found.choice->algorithm.c_str();
      out.chunk = found.choice->chunk.value_or(0);
      out.blocks = found.choice->blocks.value_or(0);
      out.threads = found.choice->threads.value_or(0);
    }
    out.text = from.texts[index].c_str();
  });
}

onehop_status_t onehop_tuning_find(const onehop_tuning_t* tuning, onehop_collective_t collective,
                                   onehop_backend_t backend, int ranks, onehop_dtype_t dtype,
                                   onehop_buffers_t buffers, uint64_t bytes, size_t* index) {
  return guard([&] {
    const Tuning& from = deref(tuning, "tuning").tuning;
    std::size_t& out = deref(index, "index");
    const TuningRow* const row = from.find({.collective = to_collective(collective),
                                            .backend = to_backend(backend),
                                            .ranks = ranks,
                                            .type = to_dtype(dtype),
                                            .buffers = to_buffers(buffers),
                                            .bytes = bytes});
    if (row == nullptr) {
      fail(ErrorCode::not_found,
           "no row of the tuning table is for {} of {} {} bytes on {} {} ranks with {} buffers",
           onehop_collective_name(collective), bytes, onehop_dtype_name(dtype), ranks,
           onehop_backend_name(backend), onehop_buffers_name(buffers));
    }
    out = static_cast<std::size_t>(row - from.rows.data());
  });
}

}  // extern "C"
