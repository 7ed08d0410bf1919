// SPDX-License-Identifier: Apache-2.0
// For tests of what is chosen: every kind of call that has a choice.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/selector.h"

namespace onehop::choices {

using enum Collective;

inline constexpr std::uint64_t kKiB = 1 << 10;
inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kSizes[] = {0,          1,         2,         64,        65,
                                           4096,       8 * kKiB,  16 * kKiB, 64 * kKiB, kMiB + 3,
                                           256 * kKiB, 10 * kMiB, 64 * kMiB, 1ull << 40};
inline constexpr std::array kBackends{Backend::host, Backend::cuda};
inline constexpr std::array kLinks{Links::nvlink, Links::pcie};
inline constexpr std::array kClasses{TypeClass::floats, TypeClass::any};
inline constexpr std::array kBuffers{Buffers::any, Buffers::symmetric};
inline constexpr std::array kKinds{Algorithm::one_shot, Algorithm::two_shot};

constexpr int max_ranks(Backend backend) {
  return backend == Backend::cuda ? kMaxDevices : kMaxHostRanks;
}

inline CollectiveCall call_of(Collective collective, DType type, Buffers buffers = Buffers::any) {
  CollectiveCall call;
  call.collective = collective;
  call.type = type;
  call.root = Rank{0};
  call.options.symmetric = buffers == Buffers::symmetric;
  return call;
}
inline DType type_of(TypeClass types) {
  return types == TypeClass::floats ? DType::bf16 : DType::i32;
}

/// The default algorithm.
inline std::string_view chosen(const Selector& selector, const CollectiveCall& call, std::uint64_t bytes,
                               std::optional<Algorithm> kind = {}) {
  return selector.select(call, bytes, kind).algorithm->name;
}

/// Consecutive ranges of sizes and their algorithms.
struct Range {
  std::uint64_t up_to;
  std::string_view algorithm;
};
using Ranges = std::vector<Range>;

/// Calls a function with every class of calls that have a choice.
template <class Body>
void for_each_class(Backend backend, Body&& body) {
  for (const Collective collective : tunable_collectives(backend)) {
    for (const TypeClass types : kClasses) {
      for (const Buffers buffers : kBuffers) body(collective, types, buffers);
    }
  }
}

inline Tuning own_table(const TuningRow& row) {
  return {.device = "", .rows = {row}};
}

}  // namespace onehop::choices
