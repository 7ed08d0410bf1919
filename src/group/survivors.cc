// SPDX-License-Identifier: Apache-2.0
#include "group/survivors.h"

#include <bit>

#include "base/check.h"

namespace onehop {
namespace {

[[nodiscard]] Rank lowest(RankSet ranks) {
  return Rank{std::countr_zero(ranks)};
}

}  // namespace

void Survivors::hear(Rank from, const SurvivorsMessage& message) {
  const RankSet both = set_of(from) | set_of(own_);
  std::vector<SurvivorsMessage>& told = told_[static_cast<std::size_t>(from.value)];
  // A death causes two more rounds at most: one finds it, and in the next one not all know of it yet.
  const auto most = static_cast<std::size_t>(2 * size_);
  if ((message.ranks & both) != both || (message.ranks & ~all_ranks(size_)) != 0 || told.size() >= most) {
    fail_from(from, ErrorCode::protocol,
              "rank {} tells the ranks {:#x} of a group of {} as survivors to rank {}", from.value,
              message.ranks, size_, own_.value);
  }
  if (!message.decided) {
    told.push_back(message);
  } else if (!decision_) {
    decision_ = message;
  }
}

bool Survivors::all_told_the_same(RankSet ranks) const {
  for (RankSet rest = ranks; rest != 0; rest &= rest - 1) {
    const std::vector<SurvivorsMessage>& told = told_by(lowest(rest));
    if (told.size() <= round() || told[round()].ranks != ranks) return false;
  }
  return true;
}

std::optional<SurvivorsMessage> Survivors::tell(RankSet alive) {
  told_[static_cast<std::size_t>(own_.value)].push_back({.decided = false, .ranks = alive, .id = proposal_});
  return told_by(own_).back();
}

RankSet Survivors::awaited(RankSet gone) const {
  if (decision_ || told_by(own_).empty()) return 0;
  RankSet awaited = 0;
  for (RankSet rest = told_by(own_).back().ranks & ~gone; rest != 0; rest &= rest - 1) {
    if (told_by(lowest(rest)).size() <= round()) awaited |= set_of(lowest(rest));
  }
  return awaited;
}

std::optional<SurvivorsMessage> Survivors::next(RankSet gone) {
  if (!decision_) {
    const RankSet alive = all_ranks(size_) & ~gone;
    if (told_by(own_).empty()) return tell(alive);
    if (awaited(gone) != 0) return std::nullopt;
    const RankSet ranks = told_by(own_).back().ranks;
    if ((ranks & gone) != 0 || !all_told_the_same(ranks)) return tell(alive);
    decision_ = SurvivorsMessage{.decided = true, .ranks = ranks, .id = told_by(lowest(ranks))[round()].id};
  }
  if (decision_told_) return std::nullopt;
  decision_told_ = true;
  return decision_;
}

}  // namespace onehop
