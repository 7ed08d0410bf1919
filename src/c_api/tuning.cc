// SPDX-License-Identifier: Apache-2.0
#include "onehop/tuning.h"

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onehop/c/tuning.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_COLLECTIVE_ALL_REDUCE == static_cast<int>(Collective::all_reduce));
static_assert(ONEHOP_COLLECTIVE_BARRIER == static_cast<int>(Collective::barrier));
static_assert(ONEHOP_COLLECTIVE_BARRIER + 1 == kCollectiveCount);
static_assert(ONEHOP_BACKEND_HOST == static_cast<int>(Backend::host));
static_assert(ONEHOP_BACKEND_CUDA == static_cast<int>(Backend::cuda));
static_assert(ONEHOP_TYPE_CLASS_FLOATS == static_cast<int>(TypeClass::floats));
static_assert(ONEHOP_TYPE_CLASS_ANY == static_cast<int>(TypeClass::any));
static_assert(ONEHOP_TUNING_NO_LIMIT == kNoLimit);
static_assert(ONEHOP_TUNING_ALL_BLOCKS == kAllBlocks);
static_assert(std::is_same_v<Way, std::variant<DefaultWay, HostWay, DeviceWay>>);
static_assert(ONEHOP_WAY_DEFAULT == 0 && ONEHOP_WAY_HOST == 1 && ONEHOP_WAY_DEVICE == 2);

struct onehop_tuning {
  explicit onehop_tuning(Tuning from) : tuning(std::move(from)) {
    for (const TuningRow& row : tuning.rows) texts.push_back(to_string(row.way));
  }

  Tuning tuning;
  std::vector<std::string> texts;  ///< the algorithms of the rows, as text
};

extern "C" {

const char* onehop_collective_name(onehop_collective_t collective) {
  return name_of(collective, Collective::barrier);
}

const char* onehop_backend_name(onehop_backend_t backend) {
  return name_of(backend, Backend::cuda);
}

const char* onehop_type_class_name(onehop_type_class_t types) {
  return name_of(types, TypeClass::any);
}

onehop_status_t onehop_type_class_of(onehop_dtype_t dtype, onehop_type_class_t* types) {
  return guard(
      [&] { deref(types, "types") = static_cast<onehop_type_class_t>(type_class(to_dtype(dtype))); });
}

onehop_status_t onehop_tuning_from_json(const char* json, const char* source, onehop_tuning_t** tuning) {
  return guard([&] {
    onehop_tuning_t*& out = deref(tuning, "tuning");
    const char* const from = text(json, "json");
    out = std::make_unique<onehop_tuning>(source == nullptr ? Tuning::from_json(from)
                                                            : Tuning::from_json(from, source))
              .release();
  });
}

onehop_status_t onehop_tuning_candidates(onehop_backend_t backend, int ranks, onehop_type_class_t types,
                                         onehop_tuning_t** candidates) {
  return guard([&] {
    onehop_tuning_t*& out = deref(candidates, "candidates");
    require(ranks >= 2 && ranks <= kMaxHostRanks, "ranks {} is not within 2 to {}", ranks, kMaxHostRanks);
    TuningRow row{.backend = to_enumerator(backend, Backend::cuda, "backend"),
                  .ranks = ranks,
                  .types = to_enumerator(types, TypeClass::any, "types"),
                  .way = {}};
    require(row.backend == Backend::host || ranks <= kMaxDevices, "ranks {} is not within 2 to {} GPUs",
            ranks, kMaxDevices);
    Tuning list;
    for (const Way& way : candidate_ways(row.backend, ranks, row.types)) {
      row.way = way;
      list.rows.push_back(row);
    }
    out = std::make_unique<onehop_tuning>(std::move(list)).release();
  });
}

void onehop_tuning_destroy(onehop_tuning_t* tuning) {
  delete tuning;
}

onehop_status_t onehop_tuning_to_json(const onehop_tuning_t* tuning, char** json) {
  return guard([&] {
    char*& out = deref(json, "json");
    out = copy_out(deref(tuning, "tuning").tuning.to_json());
  });
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
    out.up_to = found.up_to;
    out.way = static_cast<onehop_way_kind_t>(found.way.index());
    if (const auto* host = std::get_if<HostWay>(&found.way)) {
      out.algorithm = static_cast<int>(host->algorithm);
      out.chunk = host->chunk;
    } else if (const auto* device = std::get_if<DeviceWay>(&found.way)) {
      out.blocks = device->blocks;
      out.threads = device->threads;
    }
    out.text = from.texts[index].c_str();
  });
}

onehop_status_t onehop_tuning_find(const onehop_tuning_t* tuning, onehop_collective_t collective,
                                   onehop_backend_t backend, int ranks, onehop_dtype_t dtype, uint64_t bytes,
                                   size_t* index) {
  return guard([&] {
    const Tuning& from = deref(tuning, "tuning").tuning;
    std::size_t& out = deref(index, "index");
    const Way* const way =
        from.find(to_enumerator(collective, Collective::barrier, "collective"),
                  to_enumerator(backend, Backend::cuda, "backend"), ranks, to_dtype(dtype), bytes);
    if (way == nullptr) {
      fail(ErrorCode::not_found, "no row of the tuning table is for {} of {} {} bytes on {} {} ranks",
           onehop_collective_name(collective), bytes, onehop_dtype_name(dtype), ranks,
           onehop_backend_name(backend));
    }
    for (std::size_t i = 0; i < from.rows.size(); ++i) {
      if (&from.rows[i].way == way) out = i;
    }
  });
}

}  // extern "C"
