// SPDX-License-Identifier: Apache-2.0
// The algorithms of host ranks, and when each is chosen.
#include <array>

#include "backend/host/algorithm.h"
#include "backend/host/copy.h"
#include "backend/host/exchange.h"
#include "backend/host/reduce.h"

namespace onehop::host {
namespace {

/// For a group of one rank, where there is no other rank to wait for.
void run_alone(Steps& steps, std::optional<std::size_t> /*chunk*/) {
  const CollectiveCall& call = steps.call();
  steps.step();
  if (call.traits().reduces && call.op == ReduceOp::premul_sum) {
    const void* const in = call.in_at();
    reduce_function(call.type, call.op)(call.out_at(), &in, 1, call.count, call.scale());
  } else {
    copy(call.out_at(), call.in_at(), call.block_bytes());
  }
}

/// For collectives that move blocks of one size.
Exchange describe_exchange(const CollectiveCall& call) {
  const std::size_t block = call.block_bytes();
  // A rank has either one block, which goes to every rank that it sends to, or a separate block for each.
  const bool one_block = call.traits().in == Amount::block;
  Exchange exchange;
  exchange.in = call.in_at();
  exchange.out = call.out_at();
  for (int i = 1; i < call.ranks; ++i) {
    const int r = (call.rank + i) % call.ranks;
    if (!call.moves(call.rank, r)) continue;
    exchange.send(call.in_offset(r), block);
    if (one_block) break;
  }
  exchange.longest = one_block ? block : static_cast<std::size_t>(call.ranks - 1) * block;
  for (int r = 0; r < call.ranks; ++r) {
    Exchange::Arrival& arrival = exchange.arrival(r);
    arrival = {};
    if (!call.moves(r, call.rank)) continue;
    const auto position = static_cast<std::size_t>(position_in_stream(call.rank, r, call.ranks));
    arrival = {.from = call.in_offset(call.rank),
               .at = one_block ? 0 : position * block,
               .bytes = block,
               .to = call.out_offset(r)};
  }
  return exchange;
}

void run_exchange(Steps& steps, std::optional<std::size_t> /*chunk*/) {
  const CollectiveCall& call = steps.call();
  Exchange moved = describe_exchange(call);
  if (steps.shows(moved.longest)) {
    // A rank that passes no input announces its output. What matters is that it can reach the buffer.
    moved.in_peers = steps.begin_with(call.passes_in() ? call.input() : call.output());
  }
  exchange(steps, moved);
}

constexpr HostAlgorithm kOneShot{{.name = "one_shot",
                                  .kind = Algorithm::one_shot,
                                  .collectives = {Collective::all_reduce, Collective::reduce},
                                  .takes_chunk = true},
                                 one_shot};
constexpr HostAlgorithm kTwoShot{{.name = "two_shot",
                                  .kind = Algorithm::two_shot,
                                  .collectives = {Collective::all_reduce, Collective::reduce},
                                  .takes_chunk = true},
                                 two_shot};
constexpr HostAlgorithm kReduceScatter{{.without_choice = {Collective::reduce_scatter}}, reduce_scatter};
constexpr HostAlgorithm kExchange{
    {.without_choice = {Collective::all_gather, Collective::broadcast, Collective::all_to_all,
                        Collective::gather, Collective::scatter}},
    run_exchange};
constexpr HostAlgorithm kAllToAllV{{.without_choice = {Collective::all_to_all_v}, .least_ranks = 1},
                                   all_to_all_v};
constexpr HostAlgorithm kAlone{{.without_choice = CollectiveSet::all(), .least_ranks = 1, .most_ranks = 1},
                               run_alone};
/// For all_to_all_v of one rank the later one is used (Selector::select).
constexpr std::array kAlgorithms{&kOneShot, &kTwoShot, &kReduceScatter, &kExchange, &kAlone, &kAllToAllV};

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

std::span<const HostAlgorithm* const> host_algorithms() {
  return kAlgorithms;
}

std::vector<TuningRow> default_rows(int ranks) {
  std::vector<TuningRow> rows;
  if (ranks == 1) return rows;
  const bool measured = ranks <= 4 || ranks == 8;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce}) {
    for (const HostAlgorithm* const each : {&kOneShot, &kTwoShot}) {
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
