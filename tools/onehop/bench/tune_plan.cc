// SPDX-License-Identifier: Apache-2.0
#include "bench/tune_plan.h"

#include <algorithm>

#include "base/units.h"

namespace onehop::cli {
namespace {

bool has_symmetric_algorithms(onehop::Collective collective) {
  const auto names = [&](onehop::Buffers buffers) {
    return algorithm_names(Backend::cuda, collective, TypeClass::floats, buffers);
  };
  return names(onehop::Buffers::symmetric) != names(onehop::Buffers::any);
}

}  // namespace

std::vector<onehop::Collective> measurable_collectives(Backend backend) {
  std::vector<onehop::Collective> all = tunable_collectives(backend);
  std::erase_if(all, [](onehop::Collective each) { return find_collective(to_string(each)) == nullptr; });
  return all;
}

std::uint64_t bench_size(const TuneOptions& options, onehop::Collective collective, std::uint64_t bytes) {
  const int blocks = find_collective(to_string(collective))->blocks(options.bench.ranks);
  return bytes * static_cast<std::uint64_t>(blocks);
}

std::vector<std::uint64_t> block_sizes(const TuneOptions& options, onehop::Collective collective) {
  std::vector<std::uint64_t> sizes = options.sizes;
  if (sizes.empty()) {
    sizes = parse_size_list(options.bench.cuda ? "1K:1G:4" : "1K:16M:4");
    const std::uint64_t most = sizes.back();
    std::erase_if(sizes, [&](std::uint64_t each) { return bench_size(options, collective, each) > most; });
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<TunePart> parts_of(const TuneOptions& options) {
  std::vector<TunePart> parts;
  const bool has_floats = options.types.count(TypeClass::floats) != 0;
  for (const onehop::Collective collective : options.collectives) {
    TuningRow like{.collective = collective,
                   .backend = options.bench.cuda ? Backend::cuda : Backend::host,
                   .ranks = options.bench.ranks};
    const auto add_measured = [&](onehop::Buffers buffers) {
      like.buffers = buffers;
      like.types = TypeClass::floats;
      if (!has_floats) parts.push_back({.like = like, .measured = false});
      for (const auto& [types, members] : options.types) {
        like.types = types;
        parts.push_back({.like = like});
      }
    };
    // Rows for any buffers also match calls with symmetric outputs, so rows for these come first. Without
    // algorithms of their own, such calls have the same choices as all others.
    const bool differs = options.bench.cuda && has_symmetric_algorithms(collective);
    if (options.buffers == TunedBuffers::symmetric || (options.buffers == TunedBuffers::both && differs)) {
      add_measured(onehop::Buffers::symmetric);
    } else if (differs) {
      like.buffers = onehop::Buffers::symmetric;
      parts.push_back({.like = like, .measured = false});
    }
    if (options.buffers != TunedBuffers::symmetric) add_measured(onehop::Buffers::any);
  }
  return parts;
}

}  // namespace onehop::cli
