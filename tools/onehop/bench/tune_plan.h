// SPDX-License-Identifier: Apache-2.0
// What `onehop tune` measures: pure functions, so that all ranks compute the same.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "onehop/tuning.h"

#include "bench/bench.h"
#include "names.h"

namespace onehop::cli {

enum class TunedBuffers : std::uint8_t { any, symmetric, both };
inline constexpr Named<TunedBuffers> kTunedBuffers[] = {
    {"any", TunedBuffers::any}, {"symmetric", TunedBuffers::symmetric}, {"both", TunedBuffers::both}};

struct TuneOptions {
  BenchOptions bench;                ///< of every measurement, except for what the fields below determine
  std::vector<std::uint64_t> sizes;  ///< bytes of a block; empty: the default of block_sizes()
  std::vector<onehop::Collective> collectives;
  TunedBuffers buffers = TunedBuffers::any;
  std::map<TypeClass, std::vector<DType>> types{{TypeClass::floats, {DType::bf16}}};
};

/// The collectives that have a choice and can be measured.
[[nodiscard]] std::vector<onehop::Collective> measurable_collectives(Backend backend);
/// The size that a benchmark of the collective counts for blocks of `bytes`. `options.bench` has its final ranks.
[[nodiscard]] std::uint64_t bench_size(const TuneOptions& options, onehop::Collective collective,
                                       std::uint64_t bytes);
/// The sizes to measure, as bytes of a block: options.sizes in ascending order, or else powers of 4 for which
/// all blocks of a rank together have up to 1 GiB (host ranks: 16 MiB).
[[nodiscard]] std::vector<std::uint64_t> block_sizes(const TuneOptions& options,
                                                     onehop::Collective collective);

/// Calls that become rows of the table.
struct TunePart {
  TuningRow like;  ///< for which calls, without a limit and without a choice
  /// False: `like` itself is the row. It leaves calls that are not measured to the library, which a later row
  /// would match otherwise.
  bool measured = true;
};
/// In the order in which the table lists them.
[[nodiscard]] std::vector<TunePart> parts_of(const TuneOptions& options);

}  // namespace onehop::cli
