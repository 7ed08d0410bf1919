// SPDX-License-Identifier: Apache-2.0
#include "bench/verify.h"

#include <optional>

#include "base/check.h"

namespace onehop::cli {

CheckData check_data_of(const BenchOptions& options, const Shape& shape) {
  CheckData data{.type = options.type, .ranks = options.ranks, .seed = 0x6f6e65686f70 + shape.bytes};
  data.op = options.collective->reduces ? std::optional(options.op) : std::nullopt;
  data.factor = options.factor;
  return data;
}

std::string complaint_about(const BenchOptions& options, const Shape& shape, const CheckData& data, Rank rank,
                            const std::byte* out, int threads) {
  const Collective& collective = *options.collective;
  if (!has_output(options, rank)) return {};
  const int blocks = collective.out.blocks(options.ranks);
  for (int block = 0; block < blocks; ++block) {
    // Of inputs with a block per rank this rank gets its own; a block of an output with one per rank is that
    // rank's, unless all comes from the root.
    CheckData expected = data;
    expected.source = collective.in.root_only ? options.root.value
                      : collective.ring       ? (rank.value + options.ranks - 1) % options.ranks
                                              : block;
    expected.first = collective.in.block_per_rank ? static_cast<std::size_t>(rank.value) * shape.count : 0;
    const std::size_t before = static_cast<std::size_t>(block) * shape.count;
    const auto wrong = find_wrong(expected, out + before * size_of(options.type), shape.count, threads);
    if (!wrong) continue;
    return fmt::format("element {} of {} is {}, expected {}", before + (wrong->index - expected.first),
                       shape.out_count, wrong->got, wrong->expected);
  }
  return {};
}

std::string name_of_call(const BenchOptions& options, const Shape& shape, Algorithm algorithm) {
  return fmt::format("{} of {} bytes ({}, {})", options.collective->name, shape.bytes, type_and_op(options),
                     to_string(algorithm));
}

}  // namespace onehop::cli
