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

/// A call as one rank makes it, with the blocks of all_to_all_v.
struct OddCall : Call {
  std::vector<std::size_t> sent{};
  std::vector<std::size_t> sent_at{};
  std::vector<std::size_t> received{};
  std::vector<std::size_t> received_at{};

  void shift_in(std::ptrdiff_t bytes) { in = static_cast<const std::byte*>(in) + bytes; }
  void shift_out(std::ptrdiff_t bytes) { out = static_cast<std::byte*>(out) + bytes; }
  void make(Group& group) const {
    Call call = *this;
    call.in_blocks = {.counts = sent, .offsets = sent_at};
    call.out_blocks = {.counts = received, .offsets = received_at};
    (void)run(group, call);
  }
};

bool has_op(Collective collective) {
  return traits_of(collective).reduces;
}
bool has_root(Collective collective) {
  return traits_of(collective).has_root();
}
bool any(Collective /*collective*/) {
  return true;
}
bool has_count(Collective collective) {
  return collective != Collective::all_to_all_v;
}
bool has_no_choice(Collective collective) {
  return !traits_of(collective).has_two_shot;
}
bool is_all_to_all(Collective collective) {
  return collective == Collective::all_to_all || collective == Collective::all_to_all_v;
}
bool is_all_to_all_v(Collective collective) {
  return collective == Collective::all_to_all_v;
}

void give_own_factor(OddCall& call) {
  static const double factor = 2;
  call.options.own_factor = &factor;
  call.options.own_factor_on_host = true;
}

/// How the odd rank's call differs from the others'. The odd rank is the root.
struct Oddity {
  std::function<void(OddCall&, int ranks)> change;
  ErrorCode code;
  std::string text;  ///< part of the expected message
  bool (*applies)(Collective) = any;
};

std::vector<Oddity> oddities() {
  const auto differs = ErrorCode::mismatch;
  const auto unusable = ErrorCode::invalid_argument;
  return {
      {[](OddCall& c, int) { c.count = 99; }, differs, "count 99", has_count},
      {[](OddCall& c, int) { c.count = 0; }, differs, "count 0", has_count},
      {[](OddCall& c, int) { c.count = kLargeCount; }, differs, "count 10000", has_count},
      {[](OddCall& c, int) { c.type = DType::i64; }, differs, "i64"},
      {[](OddCall& c, int) { c.op = ReduceOp::max; }, differs, "max", has_op},
      {[](OddCall& c, int) { c.op = ReduceOp::premul_sum, c.options.factor = 0.5; }, differs,
       "f64, premul_sum, factor 0.5", has_op},
      {[](OddCall& c, int) { c.op = ReduceOp::premul_sum, give_own_factor(c); }, differs,
       "f64, premul_sum, a factor per rank", has_op},
      {[](OddCall& c, int) { give_own_factor(c); }, unusable, "only premul_sum takes an own_factor"},
      {[](OddCall& c, int) { c.op = ReduceOp::premul_sum, c.options.factor = 0.5, give_own_factor(c); },
       unusable, "both a factor and an own_factor", has_op},
      {[](OddCall& c, int n) { c.root.value = (c.root.value + 1) % n; }, differs, "root", has_root},
      {[](OddCall& c, int) { c.options.algorithm = Algorithm::one_shot; }, differs, "one-shot"},
      {[](OddCall& c, int) { c.options.symmetric = true; }, differs, "symmetric"},
      {[](OddCall& c, int) { c.collective = Collective::barrier; }, differs, "barrier()"},
      {[](OddCall& c, int) { c.options.algorithm = Algorithm::two_shot; }, unusable, "algorithm cannot",
       has_no_choice},
      {[](OddCall& c, int) { c.options.algorithm = Algorithm::none; }, unusable, "algorithm is unknown"},
      {[](OddCall& c, int) { c.type = static_cast<DType>(77); }, unusable, "type"},
      {[](OddCall& c, int) { c.op = static_cast<ReduceOp>(77); }, unusable, "reduction", has_op},
      {[](OddCall& c, int) { c.root = Rank{-1}; }, unusable, "root", has_root},
      {[](OddCall& c, int n) { c.root = Rank{n}; }, unusable, "root", has_root},
      {[](OddCall& c, int) { c.count = SIZE_MAX; }, unusable, "too large", has_count},
      {[](OddCall& c, int) { c.count = SIZE_MAX / 256; }, unusable, "too large", has_count},
      {[](OddCall& c, int) { c.options.timeout = Duration{-1}; }, unusable, "its timeout is negative"},
      {[](OddCall& c, int) { c.options.factor = 0.5; }, unusable, "only premul_sum takes a factor"},
      {[](OddCall& c, int) { c.type = DType::u64, c.op = ReduceOp::premul_sum, c.options.factor = -1; },
       unusable, "u64, premul_sum, factor -1", has_op},
      {[](OddCall& c, int) { c.in = nullptr; }, unusable, "null"},
      {[](OddCall& c, int) { c.out = nullptr; }, unusable, "null"},
      {[](OddCall& c, int) { c.shift_in(4); }, unusable, "aligned"},
      {[](OddCall& c, int) { c.shift_out(1); }, unusable, "aligned"},
      {[](OddCall& c, int) { c.in = c.out, c.shift_in(kElement); }, unusable, "overlap", has_count},
      {[](OddCall& c, int) { c.in = c.out; }, unusable, "in place", is_all_to_all},
      {[](OddCall& c, int) { c.sent.back() += 1; }, differs, "sends 101 elements", is_all_to_all_v},
      {[](OddCall& c, int) { c.received.front() = 0; }, differs, "which expects 0", is_all_to_all_v},
      {[](OddCall& c, int) { c.sent.pop_back(); }, unusable, "one count and one offset", is_all_to_all_v},
      {[](OddCall& c, int) { c.received_at.push_back(0); }, unusable, "one count and one offset",
       is_all_to_all_v},
      {[](OddCall& c, int) { c.sent_at.front() = SIZE_MAX - 50; }, unusable, "too large", is_all_to_all_v},
      {[](OddCall& c, int) { c.received.front() = SIZE_MAX; }, unusable, "too large", is_all_to_all_v},
      {[](OddCall& c, int) { c.in = c.out, c.shift_in(kElement); }, unusable, "in place", is_all_to_all_v},
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

  [[nodiscard]] OddCall usual(Collective collective, Rank root) {
    const auto n = static_cast<std::size_t>(group_.size());
    std::vector<std::size_t> counts(n, kCount);
    std::vector<std::size_t> offsets;
    for (std::size_t r = 0; r < n; ++r) offsets.push_back(r * kCount);
    return {{.collective = collective,
             .in = in_.data(),
             .out = out_.data(),
             .count = kCount,
             .type = DType::f64,
             .root = root},
            counts,
            offsets,
            counts,
            offsets};
  }

  /// Makes a call that no rank may complete.
  void expect_rejected(const OddCall& call, ErrorCode code, const std::string& text,
                       const std::string& what) {
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
    for (int collective = 0; collective < kCollectivesOfData; ++collective) {
      const auto which = static_cast<Collective>(collective);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].applies(which)) continue;
        // A group of one rank has no other rank to differ from; the blocks that a rank sends itself may still
        // differ.
        if (ranks() == 1 && all[i].code == ErrorCode::mismatch && all[i].applies != is_all_to_all_v) continue;
        odd_rank = (odd_rank + 1) % ranks();
        OddCall call = caller.usual(which, Rank{odd_rank});
        if (group.rank() == Rank{odd_rank}) all[i].change(call, ranks());
        caller.expect_rejected(
            call, all[i].code, all[i].text,
            fmt::format("{}, oddity {} ({}) on rank {}", traits_of(which).name, i, all[i].text, odd_rank));
      }
    }
  });
}

TEST_P(Differences, NameBothFactorsOfAPremultipliedSum) {
  backend().run(ranks(), {}, [&](Group& group) {
    Caller caller(group);
    for (int collective = 0; collective < kCollectivesOfData; ++collective) {
      const auto which = static_cast<Collective>(collective);
      if (!traits_of(which).reduces) continue;
      const bool odd = group.rank().value == ranks() - 1;
      OddCall call = caller.usual(which, Rank{0});
      call.op = ReduceOp::premul_sum;
      call.options.factor = odd ? 0.25 : 3;
      for (const char* const each : {"factor 3", "factor 0.25"}) {
        caller.expect_rejected(call, ErrorCode::mismatch, each, traits_of(which).name);
      }
    }
  });
}

TEST_P(Differences, NameBothOfTwoDifferentCollectives) {
  backend().run(ranks(), {}, [&](Group& group) {
    Caller caller(group);
    for (int first = 0; first < kCollectivesOfData; ++first) {
      for (int second = 0; second < kCollectivesOfData; ++second) {
        if (first == second) continue;
        const bool odd = group.rank().value == ranks() - 1;
        const OddCall call = caller.usual(static_cast<Collective>(odd ? second : first), Rank{0});
        for (const int each : {first, second}) {
          const std::string name = traits_of(static_cast<Collective>(each)).name;
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
