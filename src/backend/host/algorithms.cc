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

// Up to this size the second step of two-shot costs more than the bytes it saves. Measured with a core for each
// rank, on an Intel Xeon with 16 cores: `onehop bench all-reduce --ranks N --algorithm ... --bind cores` for 2,
// 3, 4 and 8 ranks. In an all-reduce of 4 ranks, one-shot and two-shot take 4.0 and 5.4 us at 8 KB, 7.4 and 6.8
// at 16 KB, 52 and 29 at 128 KB; in a reduce 12.1 and 13.1 at 64 KB, 28 and 24 at 128 KB. With 2 ranks both
// algorithms move the same bytes, and two-shot wins only when the sums no longer fit the caches.
constexpr std::uint64_t one_shot_limit(Collective collective, int ranks) {
  const bool reduce = collective == Collective::reduce;
  if (ranks == 2) return 1 << 20;
  if (ranks == 3) return 256 << 10;
  if (ranks == 4) return reduce ? 64 << 10 : 8 << 10;
  return reduce ? 8 << 10 : 2 << 10;
}

}  // namespace

std::span<const AlgorithmTraits* const> algorithms() {
  return kAlgorithms;
}

std::vector<TuningRow> default_rows(int ranks) {
  std::vector<TuningRow> rows;
  if (ranks == 1) return rows;
  const bool measured = ranks <= 4 || ranks == 8;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce}) {
    for (const AlgorithmTraits* const each : kAlgorithms) {
      rows.push_back({.collective = collective,
                      .backend = Backend::host,
                      .ranks = ranks,
                      .up_to = each == &kOneShot ? one_shot_limit(collective, ranks) : kNoLimit,
                      .choice = AlgorithmChoice{.algorithm = std::string(each->name)},
                      .derived = !measured});
    }
  }
  return rows;
}

}  // namespace onehop::host
