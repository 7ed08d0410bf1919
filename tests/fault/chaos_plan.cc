// SPDX-License-Identifier: Apache-2.0
#include "fault/chaos_plan.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <bit>

namespace onehop::fault {

Random::Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t step)
    : state_(seed ^ (stream * 0xd1342543de82ef95U) ^ (step * 0xaf251af3b0f025b5U)) {
  (void)next();
}

std::uint64_t Random::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::size_t Random::size_up_to(std::size_t most) {
  const std::size_t bits = below(static_cast<std::size_t>(std::bit_width(most)) + 1);
  return std::min(most, below(std::size_t{1} << bits));
}

ChaosPlan::ChaosPlan(std::uint64_t the_seed, std::uint64_t the_round) : seed(the_seed), round(the_round) {
  Random random(seed, round);
  ranks = 2 + static_cast<int>(random.below(5));
  tcp = random.one_in(3);
  // Mostly strikes during calls. Before the ranks are connected a death goes unnoticed, which makes such
  // rounds slow.
  from_start = random.one_in(16);
  const std::size_t victims = ranks >= 4 && random.one_in(6) ? 2 : 1;
  while (strikes.size() < victims) {
    Strike strike;
    strike.rank = static_cast<int>(random.below(static_cast<std::size_t>(ranks)));
    // A stopped rank costs a full deadline.
    const std::size_t how = random.below(40);
    strike.signal = how < 2 ? SIGSTOP : how < 8 ? SIGSEGV : how < 12 ? SIGABRT : SIGKILL;
    strike.after_us = static_cast<std::int64_t>(random.below(strikes.empty() ? 25'000 : 3'000));
    if (!struck(strike.rank)) strikes.push_back(strike);
  }
}

bool ChaosPlan::struck(int rank) const {
  return std::any_of(strikes.begin(), strikes.end(), [&](const Strike& each) { return each.rank == rank; });
}

bool ChaosPlan::stops() const {
  return std::any_of(strikes.begin(), strikes.end(),
                     [](const Strike& each) { return each.signal == SIGSTOP; });
}

int ChaosPlan::next_rank(int rank) const {
  return rank - static_cast<int>(std::count_if(strikes.begin(), strikes.end(),
                                               [&](const Strike& each) { return each.rank < rank; }));
}

std::string ChaosPlan::text() const {
  std::string line = fmt::format("{} ranks, {} store", ranks, tcp ? "TCP" : "file");
  for (std::size_t i = 0; i < strikes.size(); ++i) {
    line += fmt::format(", SIG{} of rank {} {:.1f} ms after {}", ::sigabbrev_np(strikes[i].signal),
                        strikes[i].rank, static_cast<double>(strikes[i].after_us) / 1e3,
                        i > 0        ? "that"
                        : from_start ? "the start"
                                     : "joining");
  }
  return line;
}

}  // namespace onehop::fault
