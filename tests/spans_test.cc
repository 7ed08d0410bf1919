// SPDX-License-Identifier: Apache-2.0
// Collectives over spans, vectors and arrays (spans.h).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_usable;
using ::testing::HasSubstr;
using testing::run_thread_group;

static_assert(int(Rank{3}) == 3);
static_assert(!std::is_convertible_v<Rank, int>, "only where it is asked for");

static_assert(Elements<std::vector<float>> && Elements<const std::vector<float>>);
static_assert(Elements<std::span<const std::int8_t>> && Elements<std::array<double, 3>> &&
              Elements<std::uint64_t[5]>);
static_assert(!Elements<float*> && !Elements<Stream> && !Elements<std::vector<bool>>);

TEST(Spans, CallEveryCollectiveWithTheRightCountsAndTypes) {
  run_thread_group(3, [](Group& group) {
    const int me = int(group.rank());
    const Rank root{1};
    const bool is_root = group.rank() == root;
    const std::vector<int> mine{me + 1, 10 * (me + 1)};
    std::vector<int> two(2);
    std::vector<int> six(6);

    std::vector<double> data(5, me + 1.0);
    EXPECT_EQ(all_reduce(group, data), Algorithm::one_shot);
    EXPECT_THAT(data, Each(6.0));
    all_reduce(group, std::span(data).first(2), ReduceOp::max);
    EXPECT_THAT(data, Each(6.0));
    all_reduce(group, mine, two, ReduceOp::prod);
    EXPECT_THAT(two, ElementsAre(6, 6000));
    std::array<std::uint8_t, 4> bytes{1, 2, 3, 4};
    all_reduce(group, bytes);
    EXPECT_THAT(bytes, ElementsAre(3, 6, 9, 12));
    std::int64_t plain[2] = {me, -me};
    all_reduce(group, plain);
    EXPECT_THAT(plain, ElementsAre(3, -3));
    std::vector<float> nothing;
    all_reduce(group, nothing);

    all_gather(group, mine, six);
    EXPECT_THAT(six, ElementsAre(1, 10, 2, 20, 3, 30));
    reduce_scatter(group, six, two);
    EXPECT_THAT(two, ElementsAre(3 * (me + 1), 30 * (me + 1)));

    two = mine;
    broadcast(group, two, root);
    EXPECT_THAT(two, ElementsAre(2, 20));
    std::vector<int> given = is_root ? std::vector<int>{7, 8} : std::vector<int>{};
    broadcast(group, given, two, root);
    EXPECT_THAT(two, ElementsAre(7, 8));

    two = mine;
    reduce(group, two, ReduceOp::sum, root);
    if (is_root) {
      EXPECT_THAT(two, ElementsAre(6, 60));
    }
    std::vector<int> wanted(is_root ? 2 : 0);
    reduce(group, mine, wanted, ReduceOp::min, root);
    if (is_root) {
      EXPECT_THAT(wanted, ElementsAre(1, 10));
    }

    std::vector<int> to_all(6, me);
    all_to_all(group, to_all, six);
    EXPECT_THAT(six, ElementsAre(0, 0, 1, 1, 2, 2));
    const std::vector<std::size_t> counts{1, 1, 1};
    const std::vector<std::size_t> offsets{0, 2, 4};
    std::vector<int> v(6, -1);
    all_to_all_v(group, to_all, {.counts = counts, .offsets = offsets}, v,
                 {.counts = counts, .offsets = offsets});
    EXPECT_THAT(v, ElementsAre(0, -1, 1, -1, 2, -1));

    std::vector<int> gathered(is_root ? 6 : 0);
    gather(group, mine, gathered, root);
    if (is_root) {
      EXPECT_THAT(gathered, ElementsAre(1, 10, 2, 20, 3, 30));
    }
    scatter(group, gathered, two, root);
    EXPECT_EQ(two, mine);

    GroupCall scope;
    send(group, mine, Rank{(me + 1) % 3});
    recv(group, two, Rank{(me + 2) % 3});
    scope.end();
    EXPECT_EQ(two[0], (me + 2) % 3 + 1);
  });
}

TEST(Spans, OptionsAndStreamsComeLast) {
  run_thread_group(2, [](Group& group) {
    std::vector<float> data(3, 2.0f);
    const CallOptions by_half{.algorithm = Algorithm::two_shot, .timeout = {}, .factor = 0.5};
    EXPECT_EQ(all_reduce(group, data, ReduceOp::premul_sum, Stream{}, by_half), Algorithm::two_shot);
    EXPECT_THAT(data, Each(2.0f));
    EXPECT_EQ(
        reduce(group, data, ReduceOp::sum, Rank{0}, {}, {.algorithm = Algorithm::two_shot, .timeout = {}}),
        Algorithm::two_shot);
  });
}

/// A call whose arguments fit, or with `shorter` one whose output is an element too short.
struct Misuse {
  const char* name;
  std::function<void(Group&, std::vector<int>& in, std::vector<int>& out)> call;
  std::size_t in_per_rank;   ///< 0: one block
  std::size_t out_per_rank;  ///< likewise
  const char* text;
};

TEST(Spans, OfLengthsThatDoNotFitAreRefusedOnAllRanksAndTheGroupStaysUsable) {
  const Rank root{1};
  const std::vector<Misuse> rows = {
      {"all_reduce", [](Group& g, auto& in, auto& out) { all_reduce(g, in, out); }, 0, 0,
       "its input has 4 elements, its output 3"},
      {"all_gather", [](Group& g, auto& in, auto& out) { all_gather(g, in, out); }, 0, 1,
       "its output has 11 elements, which must be 3 times the 4 of its input"},
      {"reduce_scatter", [](Group& g, auto& in, auto& out) { reduce_scatter(g, in, out); }, 1, 0,
       "its input has 12 elements, which must be 3 times the 3 of its output"},
      {"broadcast", [=](Group& g, auto& in, auto& out) { broadcast(g, in, out, root); }, 0, 0,
       "its input has 4 elements, its output 3"},
      {"reduce", [=](Group& g, auto& in, auto& out) { reduce(g, in, out, ReduceOp::sum, root); }, 0, 0,
       "its input has 4 elements, its output 3"},
      {"all_to_all", [](Group& g, auto& in, auto& out) { all_to_all(g, in, out); }, 1, 1,
       "its input has 12 elements, its output 11"},
      {"gather", [=](Group& g, auto& in, auto& out) { gather(g, in, out, root); }, 0, 1,
       "its output has 11 elements, which must be 3 times the 4 of its input"},
      {"scatter", [=](Group& g, auto& in, auto& out) { scatter(g, in, out, root); }, 1, 0,
       "its input has 12 elements, which must be 3 times the 3 of its output"},
  };
  run_thread_group(3, [&](Group& group) {
    const bool odd = group.rank() == root;
    const auto expect_refused = [&](const char* name, const char* text, const std::function<void()>& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_EQ(error.origin(), root) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(odd ? text : "spans have lengths that do not fit")) << name;
      EXPECT_THAT(error.message(), HasSubstr(fmt::format("{}", name)));
      expect_usable(group);
    };
    for (const Misuse& row : rows) {
      std::vector<int> in(row.in_per_rank == 0 ? 4 : 12);
      std::vector<int> out(row.out_per_rank == 0 ? 4 : 12, 7);
      if (odd) out.pop_back();
      expect_refused(row.name, row.text, [&] { row.call(group, in, out); });
      EXPECT_THAT(out, Each(7)) << row.name;
      // Inside a GroupCall, the error comes at its end.
      GroupCall scope;
      row.call(group, in, out);
      expect_refused(row.name, row.text, [&] { scope.end(); });
    }
    const std::vector<std::size_t> counts{2, 2, 2};
    const std::vector<std::size_t> offsets{0, 2, 4};
    const std::vector<std::size_t> beyond{0, 2, std::size_t{5} - (odd ? 0 : 1)};
    std::vector<int> in(6);
    std::vector<int> out(6);
    expect_refused("all_to_all_v", "a block of its input does not lie within the 6 elements", [&] {
      all_to_all_v(group, in, {.counts = counts, .offsets = beyond}, out,
                   {.counts = counts, .offsets = offsets});
    });
    expect_refused("all_to_all_v", "a block of its output does not lie within the 6 elements", [&] {
      all_to_all_v(group, in, {.counts = counts, .offsets = offsets}, out,
                   {.counts = counts, .offsets = beyond});
    });
    std::vector<int> seven(odd ? 7 : 6);
    std::vector<int> other(seven.size());
    expect_refused("all_to_all", "its 7 elements are no multiple of the 3 ranks",
                   [&] { all_to_all(group, seven, other); });
  });
}

}  // namespace
}  // namespace onehop
