// SPDX-License-Identifier: Apache-2.0
#include "bench/shape.h"

#include <algorithm>

namespace onehop::cli {
namespace {

/// Aligned as by cudaMalloc, which is more than any library needs.
std::size_t aligned(std::uint64_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
}

}  // namespace

Shape shape_of(const BenchOptions& options, Rank rank, std::uint64_t bytes) {
  const Benchmark& collective = *options.collective;
  const std::size_t element = size_of(options.type);
  const auto number = [](int blocks) { return static_cast<std::size_t>(blocks); };
  Shape shape;
  if (!collective.moves_data) return shape.slot_bytes = aligned(0), shape;
  shape.count = bytes / element / number(collective.blocks(options.ranks));
  shape.bytes = shape.count * number(collective.blocks(options.ranks)) * element;
  shape.in_count = shape.count * number(collective.in.blocks(options.ranks));
  shape.out_count = shape.count * number(collective.out.blocks(options.ranks));
  shape.in_bytes = shape.in_count * element;
  shape.out_bytes = shape.out_count * element;
  if (!options.in_place) {
    shape.out = aligned(shape.in_bytes);
    shape.slot_bytes = shape.out + aligned(shape.out_bytes);
    return shape;
  }
  const std::size_t own_block = number(rank.value) * shape.count * element;
  if (shape.in_bytes < shape.out_bytes) shape.in = own_block;
  if (shape.out_bytes < shape.in_bytes) shape.out = own_block;
  shape.slot_bytes = aligned(shape.bytes);
  return shape;
}

std::size_t largest_slot(const BenchOptions& options) {
  std::size_t largest = 0;
  for (const std::uint64_t bytes : options.sizes) {
    largest = std::max(largest, shape_of(options, Rank{0}, bytes).slot_bytes);
  }
  return largest;
}

std::uint64_t largest_size(const BenchOptions& options) {
  return *std::max_element(options.sizes.begin(), options.sizes.end());
}

std::uint64_t least_touched(const BenchOptions& options, std::uint64_t bytes) {
  const Shape shape = shape_of(options, Rank{0}, bytes);
  const std::uint64_t in = options.collective->in.root_only ? 0 : shape.in_bytes;
  const std::uint64_t out = options.collective->out.root_only ? 0 : shape.out_bytes;
  return options.in_place ? std::max(in, out) : in + out;
}

bool has_symmetric_output(const BenchOptions& options) {
  const Benchmark& collective = *options.collective;
  return !options.in_place || !collective.in.block_per_rank || collective.out.block_per_rank;
}

bool has_output(const BenchOptions& options, Rank rank) {
  return options.collective->out.counts_on(rank, options.root);
}

}  // namespace onehop::cli
