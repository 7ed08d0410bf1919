// SPDX-License-Identifier: Apache-2.0
// The calls that ranks of the chaos test make: every operation of a group, with random arguments that are the
// same on all ranks. Every byte of every result is compared.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/onehop.h"

#include "fault/chaos_plan.h"

namespace onehop::fault {

/// One collective: its data, the call, and the expected result.
class CheckedCollective {
 public:
  /// Draws kind, type, count, reduction, root and algorithm from `random`.
  CheckedCollective(Random& random, const Group& group);
  void call(Group& group);
  /// Throws std::logic_error when the result is wrong.
  void verify() const;

 private:
  static constexpr std::size_t kCollectives = static_cast<std::size_t>(Collective::send);  // the first ones

  [[nodiscard]] unsigned element(int rank, std::size_t index) const;
  void put(std::vector<std::byte>& to, unsigned value) const;
  void put_block(std::vector<std::byte>& to, int rank, int block) const;
  [[nodiscard]] unsigned reduced(std::size_t index) const;
  [[nodiscard]] std::size_t pair_count(int from, int to) const;
  void fill(int rank);

  int size_;
  Collective collective_;
  DType type_;
  std::size_t count_;
  ReduceOp op_;
  Rank root_;
  CallOptions options_{};
  bool in_place_;
  std::uint64_t salt_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::vector<std::byte> expected_;  ///< empty: this rank's `out` is not checked
  std::vector<std::size_t> in_counts_, in_offsets_, out_counts_, out_offsets_;
};

/// The members of the group that a call was made on: the number of each of its ranks in the first group.
using Members = std::vector<int>;

/// A rank that makes the calls of a plan one after the other.
class ChaosRank {
 public:
  struct Hooks {
    std::function<void()> before_call;  ///< called before each call, whose deadline counts from then
    std::function<void()> before_join;
    std::function<void()> joined;
  };
  ChaosRank(const ChaosPlan& plan, Rank rank, std::shared_ptr<Store> store, Duration timeout, Hooks hooks);

  /// Makes calls until one throws. May be called again after the failure of a `narrow` call: continues with
  /// the next.
  void run();

  /// The group of the last call.
  [[nodiscard]] const Members& members() const { return members_; }
  /// The last call concerned some ranks only: those of a sub-group, or a pair. The others may not have heard
  /// of its failure.
  [[nodiscard]] bool narrow() const { return narrow_; }
  [[nodiscard]] bool joining() const { return joining_; }
  /// "step 12, split".
  [[nodiscard]] std::string where() const;

 private:
  void step(Random random);
  void join();
  void collective(Random& random, Group& group);
  void group_call(Random& random);
  void pairs(Random& random);
  void split(Random& random);
  void memory(Random& random);
  void descriptors(Random& random);
  void begin(const char* what);

  const ChaosPlan& plan_;
  const Rank rank_;
  const std::shared_ptr<Store> store_;
  const Duration timeout_;
  const Hooks hooks_;
  const Members everyone_;
  std::optional<Group> group_;
  std::uint64_t step_ = 0;
  Members members_;
  bool narrow_ = false;
  bool joining_ = false;
  const char* what_ = "";
};

}  // namespace onehop::fault
