// SPDX-License-Identifier: Apache-2.0
// How the ranks that survive a failure agree on who they are: Group::shrink. One rank's side of the protocol, without
// its sockets.
//
// Each pair of ranks has a channel that keeps the order of messages and ends when one of them dies or leaves. A
// rank that reads its end has read all messages before it.
//
// 1. In each round, every rank tells all others which ranks it finds alive, and waits until each of those has told
// the same round or is gone.
//
// 2. If all of them told the same set, and none is gone, it decides for this set: it tells its decision to all
// others, before anything else. Otherwise it begins the next round.
//
// 3. A rank that is told a decision makes it its own and passes it on.
//
// Why all survivors decide for the same set: let A decide in round j for the set S. All of S told S in round j, so
// others can decide in round j for S only. Let X decide in a later round. It needs a message of that round from
// each rank of its set, and A tells its decision instead. So A is not in X's set: every rank in that set had read
// the end of A's channel when it told, and with it A's decision, if A had sent it to them; then it would have told
// that decision instead. Hence no survivor knows of A's decision.
//
// Why it ends: ranks told different sets, or one is gone, only if another rank has died. A rank that is alive but
// tells nothing holds up the others, until their deadline; they can go on later where they stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "group/messages.h"

namespace onehop {

class Survivors {
 public:
  Survivors(Rank own, int size) : own_(own), size_(size), told_(static_cast<std::size_t>(size)) {}

  /// What the group of the survivors is called if this rank is the lowest of them. Call it before `next`.
  void propose(const os::Id& id) { proposal_ = id; }

  /// What a rank has told. Messages of one rank arrive in order. Throws Error{protocol} if they make no sense.
  void hear(Rank from, const SurvivorsMessage& message);
  /// The next message for all other ranks, or nullopt: wait for the `awaited` ranks, or the decision is made and
  /// told. `gone`: the ranks whose channels have ended, of which this rank has read everything.
  [[nodiscard]] std::optional<SurvivorsMessage> next(RankSet gone);
  /// The ranks that hold up this one.
  [[nodiscard]] RankSet awaited(RankSet gone) const;
  /// The survivors, and the identity of the group that they form.
  [[nodiscard]] const std::optional<SurvivorsMessage>& decision() const { return decision_; }

 private:
  [[nodiscard]] const std::vector<SurvivorsMessage>& told_by(Rank r) const {
    return told_[static_cast<std::size_t>(r.value)];
  }
  [[nodiscard]] std::size_t round() const { return told_by(own_).size() - 1; }
  [[nodiscard]] bool all_told_the_same(RankSet ranks) const;
  [[nodiscard]] std::optional<SurvivorsMessage> tell(RankSet alive);

  Rank own_;
  int size_;
  os::Id proposal_{};
  std::vector<std::vector<SurvivorsMessage>> told_;  ///< [rank][round], this rank's included
  std::optional<SurvivorsMessage> decision_;
  bool decision_told_ = false;
};

}  // namespace onehop
