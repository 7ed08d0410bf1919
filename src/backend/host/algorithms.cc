// SPDX-License-Identifier: Apache-2.0
// The algorithms of host ranks among which there is a choice, and when each is chosen.
#include <array>

#include "backend/algorithm.h"

namespace onehop::host {
namespace {

constexpr AlgorithmTraits kOneShot{.name = "one_shot",
                                   .kind = Algorithm::one_shot,
                                   .collectives = {Collective::all_reduce, Collective::reduce},
                                   .takes_chunk = true};
constexpr AlgorithmTraits kTwoShot{.name = "two_shot",
                                   .kind = Algorithm::two_shot,
                                   .collectives = {Collective::all_reduce, Collective::reduce},
                                   .takes_chunk = true};
constexpr std::array<const AlgorithmTraits*, 2> kAlgorithms{&kOneShot, &kTwoShot};

// Up to this size the second step of two-shot costs more than the bytes it saves. Measured on two cores with
// `onehop bench all-reduce --ranks N --algorithm ...` for 2, 4 and 8 ranks. With 2 ranks both algorithms move
// the same bytes, and two-shot wins only when the sums no longer fit the caches.
constexpr std::uint64_t one_shot_limit(int ranks) {
  if (ranks == 2) return 1 << 20;
  return ranks <= 4 ? 128 << 10 : 32 << 10;
}

}  // namespace

std::span<const AlgorithmTraits* const> algorithms() {
  return kAlgorithms;
}

std::vector<TuningRow> default_rows(int ranks) {
  std::vector<TuningRow> rows;
  if (ranks == 1) return rows;
  const bool measured = ranks == 2 || ranks == 4 || ranks == 8;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce}) {
    for (const AlgorithmTraits* const each : kAlgorithms) {
      rows.push_back({.collective = collective,
                      .backend = Backend::host,
                      .ranks = ranks,
                      .up_to = each == &kOneShot ? one_shot_limit(ranks) : kNoLimit,
                      .choice = AlgorithmChoice{.algorithm = std::string(each->name)},
                      .derived = !measured});
    }
  }
  return rows;
}

}  // namespace onehop::host
