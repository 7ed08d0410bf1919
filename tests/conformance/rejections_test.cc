// SPDX-License-Identifier: Apache-2.0
// How collectives reject calls that differ between ranks, or that one rank cannot make (collectives.h): the
// same Error on every rank, nothing written, and a group that stays usable.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "conformance/suite.h"

namespace onehop::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 100;
constexpr std::size_t kLargeCount = 10'000;  // enough for zero-copy
constexpr std::size_t kElement = 8;
constexpr std::byte kUnwritten{0xa5};

/// A call as one rank makes it.
struct Call {
  Collective collective{};
  bool barrier = false;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = kCount;
  DType type = DType::f64;
  ReduceOp op = ReduceOp::sum;
  Rank root;
  std::optional<Algorithm> algorithm{};
  bool symmetric = false;
  double factor = 1;
  std::optional<Duration> timeout{};
  // Used by all_to_all_v only.
  std::vector<std::size_t> sent;
  std::vector<std::size_t> sent_at;
  std::vector<std::size_t> received;
  std::vector<std::size_t> received_at;

  void make(Group& group) const {
    if (barrier) return group.barrier();
    const CallOptions options{
        .algorithm = algorithm, .timeout = timeout, .symmetric = symmetric, .factor = factor};
    switch (collective) {
      case Collective::all_reduce:
        return (void)all_reduce(group, in, out, count, type, op, {}, options);
      case Collective::all_gather:
        return (void)all_gather(group, in, out, count, type, {}, options);
      case Collective::reduce_scatter:
        return (void)reduce_scatter(group, in, out, count, type, op, {}, options);
      case Collective::broadcast:
        return (void)broadcast(group, in, out, count, type, root, {}, options);
      case Collective::reduce:
        return (void)reduce(group, in, out, count, type, op, root, {}, options);
      case Collective::all_to_all:
        return (void)all_to_all(group, in, out, count, type, {}, options);
      case Collective::all_to_all_v:
        return (void)all_to_all_v(group, in, {.counts = sent, .offsets = sent_at}, out,
                                  {.counts = received, .offsets = received_at}, type, {}, options);
      case Collective::gather:
        return (void)gather(group, in, out, count, type, root, {}, options);
      case Collective::scatter:
        return (void)scatter(group, in, out, count, type, root, {}, options);
    }
  }
};

bool any(Collective /*collective*/) {
  return true;
}
bool has_count(Collective collective) {
  return collective != Collective::all_to_all_v;
}
bool has_no_choice(Collective collective) {
  return !has_choice(collective);
}
bool is_all_to_all(Collective collective) {
  return collective == Collective::all_to_all || collective == Collective::all_to_all_v;
}
bool is_all_to_all_v(Collective collective) {
  return collective == Collective::all_to_all_v;
}

/// How the odd rank's call differs from the others'. The odd rank is the root.
struct Oddity {
  std::function<void(Call&, int ranks)> change;
  ErrorCode code;
  std::string text;  ///< part of the expected message
  bool (*applies)(Collective) = any;
};

std::vector<Oddity> oddities() {
  const auto differs = ErrorCode::mismatch;
  const auto unusable = ErrorCode::invalid_argument;
  return {
      {[](Call& c, int) { c.count = 99; }, differs, "count 99", has_count},
      {[](Call& c, int) { c.count = 0; }, differs, "count 0", has_count},
      {[](Call& c, int) { c.count = kLargeCount; }, differs, "count 10000", has_count},
      {[](Call& c, int) { c.type = DType::i64; }, differs, "i64"},
      {[](Call& c, int) { c.op = ReduceOp::max; }, differs, "max", reduces},
      {[](Call& c, int) { c.op = ReduceOp::premul_sum, c.factor = 0.5; }, differs,
       "f64, premul_sum, factor 0.5", reduces},
      {[](Call& c, int n) { c.root.value = (c.root.value + 1) % n; }, differs, "root", has_root},
      {[](Call& c, int) { c.algorithm = Algorithm::one_shot; }, differs, "one-shot"},
      {[](Call& c, int) { c.symmetric = true; }, differs, "symmetric"},
      {[](Call& c, int) { c.barrier = true; }, differs, "barrier()"},
      {[](Call& c, int) { c.algorithm = Algorithm::two_shot; }, unusable, "algorithm cannot", has_no_choice},
      {[](Call& c, int) { c.algorithm = Algorithm::none; }, unusable, "algorithm is unknown"},
      {[](Call& c, int) { c.type = static_cast<DType>(77); }, unusable, "type"},
      {[](Call& c, int) { c.op = static_cast<ReduceOp>(77); }, unusable, "reduction", reduces},
      {[](Call& c, int) { c.root = Rank{-1}; }, unusable, "root", has_root},
      {[](Call& c, int n) { c.root = Rank{n}; }, unusable, "root", has_root},
      {[](Call& c, int) { c.count = SIZE_MAX; }, unusable, "too large", has_count},
      {[](Call& c, int) { c.count = SIZE_MAX / 256; }, unusable, "too large", has_count},
      {[](Call& c, int) { c.timeout = Duration{-1}; }, unusable, "its timeout is negative"},
      {[](Call& c, int) { c.factor = 0.5; }, unusable, "only premul_sum takes a factor"},
      {[](Call& c, int) { c.type = DType::u64, c.op = ReduceOp::premul_sum, c.factor = -1; }, unusable,
       "u64, premul_sum, factor -1", reduces},
      {[](Call& c, int) { c.in = nullptr; }, unusable, "null"},
      {[](Call& c, int) { c.out = nullptr; }, unusable, "null"},
      {[](Call& c, int) { c.in += 4; }, unusable, "aligned"},
      {[](Call& c, int) { c.out += 1; }, unusable, "aligned"},
      {[](Call& c, int) { c.in = c.out + kElement; }, unusable, "overlap", has_count},
      {[](Call& c, int) { c.in = c.out; }, unusable, "in place", is_all_to_all},
      {[](Call& c, int) { c.sent.back() += 1; }, differs, "sends 101 elements", is_all_to_all_v},
      {[](Call& c, int) { c.received.front() = 0; }, differs, "which expects 0", is_all_to_all_v},
      {[](Call& c, int) { c.sent.pop_back(); }, unusable, "one count and one offset", is_all_to_all_v},
      {[](Call& c, int) { c.received_at.push_back(0); }, unusable, "one count and one offset",
       is_all_to_all_v},
      {[](Call& c, int) { c.sent_at.front() = SIZE_MAX - 50; }, unusable, "too large", is_all_to_all_v},
      {[](Call& c, int) { c.received.front() = SIZE_MAX; }, unusable, "too large", is_all_to_all_v},
      {[](Call& c, int) { c.in = c.out + kElement; }, unusable, "in place", is_all_to_all_v},
  };
}

class Rejections : public CollectiveTest {};
class Differences : public CollectiveTest {};

/// One rank's memory, and its calls.
class Caller {
 public:
  explicit Caller(Group& group)
      : group_(group),
        in_((static_cast<std::size_t>(group.size()) * kLargeCount + 1) * kElement),
        out_(in_.size(), kUnwritten),
        untouched_(out_) {}

  [[nodiscard]] Call usual(Collective collective, Rank root) {
    const auto n = static_cast<std::size_t>(group_.size());
    std::vector<std::size_t> counts(n, kCount);
    std::vector<std::size_t> offsets;
    for (std::size_t r = 0; r < n; ++r) offsets.push_back(r * kCount);
    return {.collective = collective,
            .in = in_.data(),
            .out = out_.data(),
            .root = root,
            .sent = counts,
            .sent_at = offsets,
            .received = counts,
            .received_at = offsets};
  }

  /// Makes a call that no rank may complete.
  void expect_rejected(const Call& call, ErrorCode code, const std::string& text, const std::string& what) {
    std::string message;
    try {
      call.make(group_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << what << ": " << error.what();
      message = error.message();
    }
    EXPECT_THAT(message, HasSubstr(text)) << what;
    EXPECT_TRUE(out_ == untouched_) << what;
    // All ranks' calls ended with the same message, and the group works.
    EXPECT_THAT(group_.all_gather(message), ::testing::Each(message)) << what;
    std::int64_t one = 1;
    (void)all_reduce(group_, &one, &one, 1, DType::i64);
    EXPECT_EQ(one, group_.size()) << what;
  }

 private:
  Group& group_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  const std::vector<std::byte> untouched_;
};

TEST_P(Rejections, AreTheSameOnEveryRankAndLeaveTheGroupUsable) {
  const std::vector<Oddity> all = oddities();
  backend().run(ranks(), {}, [&](Group& group) {
    Caller caller(group);
    int odd_rank = 0;
    for (int collective = 0; collective < kCollectiveCount; ++collective) {
      const auto which = static_cast<Collective>(collective);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].applies(which)) continue;
        // A group of one rank has no other rank to differ from; the blocks that a rank sends itself may still
        // differ.
        if (ranks() == 1 && all[i].code == ErrorCode::mismatch && all[i].applies != is_all_to_all_v) continue;
        odd_rank = (odd_rank + 1) % ranks();
        Call call = caller.usual(which, Rank{odd_rank});
        if (group.rank() == Rank{odd_rank}) all[i].change(call, ranks());
        caller.expect_rejected(
            call, all[i].code, all[i].text,
            fmt::format("{}, oddity {} ({}) on rank {}", to_text(which), i, all[i].text, odd_rank));
      }
    }
  });
}

TEST_P(Differences, NameBothFactorsOfAPremultipliedSum) {
  backend().run(ranks(), {}, [&](Group& group) {
    Caller caller(group);
    for (int collective = 0; collective < kCollectiveCount; ++collective) {
      const auto which = static_cast<Collective>(collective);
      if (!reduces(which)) continue;
      const bool odd = group.rank().value == ranks() - 1;
      Call call = caller.usual(which, Rank{0});
      call.op = ReduceOp::premul_sum;
      call.factor = odd ? 0.25 : 3;
      for (const char* const each : {"factor 3", "factor 0.25"}) {
        caller.expect_rejected(call, ErrorCode::mismatch, each, to_text(which));
      }
    }
  });
}

TEST_P(Differences, NameBothOfTwoDifferentCollectives) {
  backend().run(ranks(), {}, [&](Group& group) {
    Caller caller(group);
    for (int first = 0; first < kCollectiveCount; ++first) {
      for (int second = 0; second < kCollectiveCount; ++second) {
        if (first == second) continue;
        const bool odd = group.rank().value == ranks() - 1;
        const Call call = caller.usual(static_cast<Collective>(odd ? second : first), Rank{0});
        for (const int each : {first, second}) {
          const std::string name = to_text(static_cast<Collective>(each));
          caller.expect_rejected(call, ErrorCode::mismatch, " calls " + name + "(", name);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Rejections, ::testing::ValuesIn(parameters(&Backend::few_sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(, Differences, ::testing::ValuesIn(parameters(&Backend::few_sizes, kSeveral)),
                         name_of);

}  // namespace
}  // namespace onehop::testing
