// SPDX-License-Identifier: Apache-2.0
// Promise E: ranks that do not make the same call never succeed. One rank of three makes another call or
// passes invalid pointers. Every rank throws an Error that names the difference, no rank's output changes,
// and the group stays usable. Calls of different kinds end in errors on all ranks as well. A long random walk
// of calls looks for a combination that goes undetected.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault::mismatch_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int kRanks = 3;
constexpr std::size_t kElements = 300'000;

struct Arrays {
  std::vector<float> in = std::vector<float>(kElements + 1, 1.0F);
  std::vector<float> out = std::vector<float>(kElements + 1, -7.0F);

  [[nodiscard]] bool out_untouched() const {
    return std::all_of(out.begin(), out.end(), [](float x) { return x == -7.0F; });
  }
};

/// One call; the pointers are the rank's own.
struct Call {
  bool barrier = false;
  std::size_t count = 1000;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::optional<Algorithm> algorithm{};
  bool null_in = false;
  bool null_out = false;
  std::size_t shift = 0;  ///< of the output, in bytes
  bool overlap = false;

  void make(Group& group, Arrays& arrays) const {
    if (barrier) return group.barrier();
    auto* out = reinterpret_cast<std::byte*>(arrays.out.data()) + shift;
    const void* in = arrays.in.data();
    if (overlap) in = out + 4;
    (void)all_reduce(group, null_in ? nullptr : in, null_out ? nullptr : out, count, type, op, {},
                     {.algorithm = algorithm, .timeout = {}});
  }
};

struct Case {
  const char* name;
  Call usual;
  Call odd;
  ErrorCode code = ErrorCode::mismatch;
  std::vector<std::string> names;  ///< what every message must contain
};

std::vector<Case> cases() {
  const Call usual;
  const Call large{.count = kElements};
  const auto with = [](Call call, auto change) {
    change(call);
    return call;
  };
  return {
      {"count",
       usual,
       with(usual, [](Call& c) { c.count = 999; }),
       ErrorCode::mismatch,
       {"count 1000", "count 999"}},
      {"large counts",
       large,
       with(large, [](Call& c) { --c.count; }),
       ErrorCode::mismatch,
       {"count 300000", "count 299999"}},
      {"small and large", usual, large, ErrorCode::mismatch, {"count 1000", "count 300000"}},
      {"nothing and something",
       usual,
       with(usual, [](Call& c) { c.count = 0; }),
       ErrorCode::mismatch,
       {"count 1000", "count 0"}},
      {"something and nothing",
       with(usual, [](Call& c) { c.count = 0; }),
       large,
       ErrorCode::mismatch,
       {"count 0", "count 300000"}},
      {"type", usual, with(usual, [](Call& c) { c.type = DType::i32; }), ErrorCode::mismatch, {"f32", "i32"}},
      {"type, same bytes",
       large,
       with(large, [](Call& c) { c.type = DType::f16, c.count *= 2; }),
       ErrorCode::mismatch,
       {"f32", "f16"}},
      {"operation",
       usual,
       with(usual, [](Call& c) { c.op = ReduceOp::max; }),
       ErrorCode::mismatch,
       {"sum", "max"}},
      {"algorithm",
       usual,
       with(usual, [](Call& c) { c.algorithm = Algorithm::two_shot; }),
       ErrorCode::mismatch,
       {"two-shot"}},
      {"both algorithms",
       with(large, [](Call& c) { c.algorithm = Algorithm::one_shot; }),
       with(large, [](Call& c) { c.algorithm = Algorithm::two_shot; }),
       ErrorCode::mismatch,
       {"one-shot", "two-shot"}},
      {"barrier and all_reduce",
       usual,
       with(usual, [](Call& c) { c.barrier = true; }),
       ErrorCode::mismatch,
       {"all_reduce(count 1000", "barrier()"}},
      {"all_reduce and barrier",
       with(large, [](Call& c) { c.barrier = true; }),
       large,
       ErrorCode::mismatch,
       {"all_reduce(count 300000", "barrier()"}},
      {"null input",
       usual,
       with(usual, [](Call& c) { c.null_in = true; }),
       ErrorCode::invalid_argument,
       {"all_reduce(count 1000", "null"}},
      {"null output",
       large,
       with(large, [](Call& c) { c.null_out = true; }),
       ErrorCode::invalid_argument,
       {"all_reduce(count 300000", "null"}},
      {"misaligned",
       usual,
       with(usual, [](Call& c) { c.shift = 1; }),
       ErrorCode::invalid_argument,
       {"aligned"}},
      {"overlap",
       usual,
       with(usual, [](Call& c) { c.overlap = true; }),
       ErrorCode::invalid_argument,
       {"overlap"}},
      {"unknown type",
       usual,
       with(usual, [](Call& c) { c.type = static_cast<DType>(99); }),
       ErrorCode::invalid_argument,
       {"type"}},
      {"unknown operation",
       usual,
       with(usual, [](Call& c) { c.op = static_cast<ReduceOp>(99); }),
       ErrorCode::invalid_argument,
       {"reduction"}},
      {"unknown algorithm",
       usual,
       with(usual, [](Call& c) { c.algorithm = static_cast<Algorithm>(99); }),
       ErrorCode::invalid_argument,
       {"algorithm"}},
      {"no algorithm",
       usual,
       with(usual, [](Call& c) { c.algorithm = Algorithm::none; }),
       ErrorCode::invalid_argument,
       {"algorithm"}},
      {"too large",
       usual,
       with(usual, [](Call& c) { c.count = SIZE_MAX; }),
       ErrorCode::invalid_argument,
       {"too large"}},
      {"two errors",
       with(usual, [](Call& c) { c.null_in = true; }),
       with(usual, [](Call& c) { c.shift = 2; }),
       ErrorCode::invalid_argument,
       {"was rejected"}},
  };
}

TEST(Mismatch, EveryRankRejectsEveryDifferenceAndTheGroupWorksOn) {
  int checked = 0;
  const TempDir dir;
  for (int odd_rank = 0; odd_rank < kRanks; ++odd_rank) {
    if (kSanitized && odd_rank != 1) continue;
    for (const Case& each : cases()) {
      SCOPED_TRACE(fmt::format("{}, rank {} is the odd one", each.name, odd_rank));
      World world(kRanks, [&](World& self, Rank rank) {
        Group group =
            Group::join(file_store(dir.path()),
                        {.rank = rank, .size = kRanks, .timeout = seconds{20}, .scratch_bytes = 1 << 20});
        check_all_reduce(group);
        Card& card = self.card(rank);
        Arrays arrays;
        card.attempts[0].run([&] { (rank.value == odd_rank ? each.odd : each.usual).make(group, arrays); });
        card.figures[0] = arrays.out_untouched() ? 1 : 0;
        card.attempts[1].run([&] {
          check_all_reduce(group);
          group.barrier();
        });
      });
      ASSERT_TRUE(world.finish(seconds{30}));
      for (Rank r{0}; r.value < kRanks; ++r.value) {
        const Card& card = world.card(r);
        const Attempt& attempt = card.attempts[0];
        EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value << " succeeded";
        EXPECT_EQ(attempt.error(), each.code) << attempt.text();
        EXPECT_EQ(attempt.text(), world.card(Rank{0}).attempts[0].text());
        for (const std::string& name : each.names) EXPECT_THAT(attempt.text(), HasSubstr(name));
        EXPECT_EQ(card.figures[0], 1) << "rank " << r.value << "'s output was written to";
        EXPECT_EQ(card.attempts[1].state.load(), Attempt::succeeded) << card.attempts[1].text();
        ++checked;
      }
    }
  }
  fmt::print(
      "promise E, {} mismatched calls: {} ranks threw, none succeeded, none wrote, all groups stayed "
      "usable\n",
      static_cast<std::size_t>(checked / kRanks), checked);
}

/// Calls of different kinds, which use different channels: shared memory, or the sockets.
TEST(Mismatch, CallsOfDifferentKindsSucceedOnNoRank) {
  const std::vector<std::pair<std::string, std::function<void(Group&)>>> kinds = {
      {"barrier", [](Group& group) { group.barrier(); }},
      {"all_reduce", [](Group& group) { check_all_reduce(group); }},
      {"other collectives", [](Group& group) { check_other_collectives(group); }},
      {"allocate", [](Group& group) { (void)group.allocate(4096); }},
      {"all_gather", [](Group& group) { (void)group.all_gather("hello"); }},
      {"split", [](Group& group) { (void)group.split(0, 0); }},
      {"channel barrier", [](Group& group) { group.channel().barrier(Duration{300}); }},
      {"all_gather_fds",
       [](Group& group) {
         for (const int fd : group.channel().all_gather_fds(0, Duration{300})) (void)fd;
       }},
      // Rank 1 makes it, so it receives: a root waits for no rank.
      {"broadcast_fds",
       [](Group& group) { (void)group.channel().broadcast_fds(-1, Rank{0}, Duration{300}); }},
  };
  struct Pair {
    const std::pair<std::string, std::function<void(Group&)>>* calls[2];
    TempDir store;
    std::optional<World> world;
  };
  std::vector<std::unique_ptr<Pair>> pairs;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    for (std::size_t j = i + 1; j < kinds.size(); ++j) {
      pairs.push_back(std::make_unique<Pair>());
      pairs.back()->calls[0] = &kinds[i];
      pairs.back()->calls[1] = &kinds[j];
    }
  }
  int succeeded = 0;
  constexpr std::size_t kTogether = 7;  // most of them only wait for their deadline
  for (std::size_t first = 0; first < pairs.size(); first += kTogether) {
    const std::size_t last = std::min(first + kTogether, pairs.size());
    for (std::size_t i = first; i < last; ++i) {
      Pair& pair = *pairs[i];
      pair.world.emplace(2, [&pair](World& self, Rank rank) {
        Group group = Group::join(file_store(pair.store.path()),
                                  {.rank = rank, .size = 2, .timeout = seconds{1}, .scratch_bytes = 1 << 20});
        self.card(rank).attempts[0].run([&] { pair.calls[rank.value]->second(group); });
        self.raise(0);
        // The error of a rank that has left would be another one than the test expects.
        (void)self.await(0, 2, seconds{10});
      });
    }
    for (std::size_t i = first; i < last; ++i) {
      Pair& pair = *pairs[i];
      SCOPED_TRACE(fmt::format("{} against {}", pair.calls[0]->first, pair.calls[1]->first));
      EXPECT_TRUE(pair.world->finish(seconds{30}));
      for (Rank r{0}; r.value < 2; ++r.value) {
        const Attempt& attempt = pair.world->card(r).attempts[0];
        EXPECT_EQ(pair.world->exit_of(r), 0);
        EXPECT_NE(attempt.state.load(), Attempt::broken) << attempt.text();
        if (attempt.state.load() == Attempt::succeeded) ++succeeded;
        EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value << " succeeded";
      }
    }
  }
  fmt::print("promise E, {} pairs of different calls: {} succeeded\n", pairs.size(), succeeded);
}

TEST(Mismatch, ARandomWalkOfCallsSucceedsExactlyWhereRanksAgree) {
  const int steps = kSanitized ? 300 : 3000;
  const TempDir dir;
  World world(kRanks, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    Group group =
        Group::join(file_store(dir.path()),
                    {.rank = rank, .size = kRanks, .timeout = seconds{20}, .scratch_bytes = 64 << 10});
    std::minstd_rand shared(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp) the same walk on all ranks
    Arrays arrays;
    for (int step = 0; step < steps; ++step) {
      std::vector<Call> calls;
      const bool agree = shared() % 3 != 0;
      for (int r = 0; r < kRanks; ++r) {
        if (r > 0 && (agree || shared() % 2 == 0)) {
          calls.push_back(calls.front());
          continue;
        }
        const std::size_t counts[] = {0, 1, 63, 1000, 5000, 40'000};
        calls.push_back({.barrier = shared() % 5 == 0,
                         .count = counts[shared() % 6],
                         .type = shared() % 4 == 0 ? DType::i32 : DType::f32,
                         .op = shared() % 4 == 0 ? ReduceOp::max : ReduceOp::sum,
                         .algorithm = shared() % 4 == 0 ? std::optional(Algorithm::one_shot) : std::nullopt,
                         .null_in = shared() % 12 == 0});
      }
      const auto same = [&](const Call& call) {
        const Call& first = calls.front();
        if (first.barrier || call.barrier) return first.barrier && call.barrier;
        return call.count == first.count && call.type == first.type && call.op == first.op &&
               call.algorithm == first.algorithm && (!call.null_in || call.count == 0);
      };
      const bool expected = std::all_of(calls.begin(), calls.end(), same);
      const Call& own = calls[static_cast<std::size_t>(rank.value)];
      std::fill(arrays.out.begin(), arrays.out.end(), -7.0F);
      bool succeeded = true;
      try {
        own.make(group, arrays);
      } catch (const Error& error) {
        succeeded = false;
        if (error.code() != ErrorCode::mismatch && error.code() != ErrorCode::invalid_argument) throw;
      }
      if (succeeded != expected) card.figures[0] += 1;
      if (!succeeded && !arrays.out_untouched()) card.figures[1] += 1;
      if (succeeded && !own.barrier && own.type == DType::f32 && own.count > 0) {
        const float result = own.op == ReduceOp::sum ? static_cast<float>(kRanks) : 1.0F;
        if (arrays.out[0] != result || arrays.out[own.count - 1] != result || arrays.out[own.count] != -7.0F)
          card.figures[2] += 1;
      }
      card.figures[succeeded ? 3 : 4] += 1;
    }
  });
  ASSERT_TRUE(world.finish(seconds{100}));
  for (Rank r{0}; r.value < kRanks; ++r.value) {
    const Card& card = world.card(r);
    EXPECT_EQ(world.exit_of(r), 0);
    EXPECT_EQ(card.figures[0], 0) << "calls that succeeded or failed against expectation";
    EXPECT_EQ(card.figures[1], 0) << "rejected calls that wrote";
    EXPECT_EQ(card.figures[2], 0) << "wrong results";
    EXPECT_EQ(card.figures[3] + card.figures[4], steps);
  }
  fmt::print(
      "promise E, a walk of {} calls on {} ranks: {:.0f} succeeded with the right result, {:.0f} were "
      "rejected by all\n",
      steps, kRanks, world.card(Rank{0}).figures[3], world.card(Rank{0}).figures[4]);
}

}  // namespace
}  // namespace onehop::fault::mismatch_test
