// SPDX-License-Identifier: Apache-2.0
// What the benchmark knows of each collective: sizes, offsets, results, NCCL's calls.
#include "bench/collective.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/nccl.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "bench/verify.h"

namespace onehop::cli {
namespace {

using ::testing::HasSubstr;

BenchOptions options_of(std::string_view name, int ranks, DType type = DType::f32) {
  BenchOptions options;
  options.collective = find_collective(name);
  options.ranks = ranks;
  options.type = type;
  return options;
}

TEST(Collectives, AreFoundByTheirNamesAllReduceFirst) {
  std::set<std::string_view> names;
  for (const Benchmark& each : collectives()) {
    EXPECT_EQ(find_collective(each.name), &each);
    names.insert(each.name);
  }
  EXPECT_EQ(names.size(), 9u);
  for (const Benchmark& each : benchmarks()) EXPECT_EQ(find_collective(each.name), &each);
  EXPECT_EQ(BenchOptions{}.collective, find_collective("all-reduce"));
  EXPECT_EQ(find_collective("all_reduce"), find_collective("all-reduce"));
  EXPECT_EQ(find_collective("all_to_all-v"), find_collective("all-to-all-v"));
  EXPECT_EQ(find_collective("allreduce"), nullptr);
}

TEST(Collectives, BusFactorsAreThoseOfNcclTests) {
  const auto factor = [](std::string_view name, int ranks) {
    return find_collective(name)->bus_factor.of(ranks);
  };
  EXPECT_DOUBLE_EQ(factor("all-reduce", 2), 1);
  EXPECT_DOUBLE_EQ(factor("all-reduce", 4), 1.5);
  for (const char* name : {"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"}) {
    EXPECT_DOUBLE_EQ(factor(name, 2), 0.5) << name;
    EXPECT_DOUBLE_EQ(factor(name, 4), 0.75) << name;
  }
  for (const char* name : {"broadcast", "reduce"}) EXPECT_DOUBLE_EQ(factor(name, 4), 1) << name;
}

TEST(Collectives, SayWhatCanBeAskedOfThem) {
  const auto names = [](bool (*belongs)(const Benchmark&)) { return names_of_collectives(belongs); };
  EXPECT_EQ(names([](const Benchmark& c) { return c.reduces; }), "all-reduce, reduce-scatter, reduce");
  EXPECT_EQ(names([](const Benchmark& c) { return c.rooted(); }), "broadcast, reduce, gather, scatter");
  EXPECT_EQ(names([](const Benchmark& c) { return !c.can_be_in_place(); }),
            "all-to-all, all-to-all-v, send-recv, barrier");
  EXPECT_EQ(names([](const Benchmark& c) { return c.can_be_dependent(); }),
            "all-reduce, all-to-all, all-to-all-v");
  EXPECT_EQ(names([](const Benchmark& c) { return c.moves_data && c.same_everywhere(); }),
            "all-reduce, all-gather, broadcast");
}

// --- sizes and offsets ---

TEST(Shapes, ASizeIsOfTheLargerSideRoundedDownToWholeBlocks) {
  struct Case {
    const char* name;
    std::size_t count, in, out;
    std::uint64_t bytes;
  };
  for (const Case& each : {Case{"all-reduce", 250, 250, 250, 1000}, Case{"broadcast", 250, 250, 250, 1000},
                           Case{"reduce", 250, 250, 250, 1000}, Case{"all-gather", 83, 83, 249, 996},
                           Case{"gather", 83, 83, 249, 996}, Case{"reduce-scatter", 83, 249, 83, 996},
                           Case{"scatter", 83, 249, 83, 996}, Case{"all-to-all", 83, 249, 249, 996}}) {
    const Shape shape = shape_of(options_of(each.name, 3), Rank{1}, 1003);
    EXPECT_EQ(shape.count, each.count) << each.name;
    EXPECT_EQ(shape.in_count, each.in) << each.name;
    EXPECT_EQ(shape.out_count, each.out) << each.name;
    EXPECT_EQ(shape.bytes, each.bytes) << each.name;
    EXPECT_EQ(shape.in_bytes, 4 * each.in) << each.name;
    EXPECT_EQ(shape.out_bytes, 4 * each.out) << each.name;
  }
  EXPECT_EQ(shape_of(options_of("all-gather", 3), Rank{0}, 11).bytes, 0u) << "less than an element each";
}

TEST(Shapes, SidesLieApartWithinTheSlotUnlessInPlace) {
  for (const Benchmark& collective : collectives()) {
    for (const std::uint64_t bytes : {0, 12, 4096, 1000000}) {
      const BenchOptions options = options_of(collective.name, 3);
      const Shape first = shape_of(options, Rank{0}, bytes);
      const Shape last = shape_of(options, Rank{2}, bytes);
      EXPECT_GE(first.out, first.in + first.in_bytes) << collective.name;
      EXPECT_LE(first.out + first.out_bytes, first.slot_bytes) << collective.name;
      EXPECT_EQ(first.out, last.out) << collective.name;
      EXPECT_EQ(first.slot_bytes, last.slot_bytes) << collective.name;
    }
  }
}

TEST(Shapes, InPlaceTheSmallerSideIsTheOwnBlockOfTheLarger) {
  for (const Benchmark& collective : collectives()) {
    if (!collective.can_be_in_place()) continue;
    BenchOptions options = options_of(collective.name, 4, DType::bf16);
    options.in_place = true;
    const Shape shape = shape_of(options, Rank{3}, 8000);
    const std::size_t own = 3 * shape.count * 2;
    EXPECT_EQ(shape.in, shape.in_bytes < shape.out_bytes ? own : 0) << collective.name;
    EXPECT_EQ(shape.out, shape.out_bytes < shape.in_bytes ? own : 0) << collective.name;
    EXPECT_EQ(shape.slot_bytes, 8192u) << collective.name;
    EXPECT_EQ(shape.slot_bytes, shape_of(options, Rank{0}, 8000).slot_bytes) << collective.name;
  }
}

TEST(Shapes, TheLeastTouchedIsThatOfARankWithoutTheRootsSide) {
  EXPECT_EQ(least_touched(options_of("all-reduce", 4), 4096), 8192u);
  EXPECT_EQ(least_touched(options_of("all-gather", 4), 4096), 5120u);
  EXPECT_EQ(least_touched(options_of("gather", 4), 4096), 1024u);
  EXPECT_EQ(least_touched(options_of("broadcast", 4), 4096), 4096u);
  BenchOptions in_place = options_of("all-gather", 4);
  in_place.in_place = true;
  EXPECT_EQ(least_touched(in_place, 4096), 4096u);
}

TEST(DependentCalls, AreOddInNumberWhereTwoUndoEachOther) {
  BenchOptions options = options_of("all-to-all", 4);
  options.mode = BenchMode::dependent;
  EXPECT_EQ(choose_calls(options, 1024), 99);
  options.calls = 8;
  EXPECT_EQ(choose_calls(options, 1024), 7);
  options.mode = BenchMode::chain;
  EXPECT_EQ(choose_calls(options, 1024), 8);
}

TEST(InPlaceCalls, FeedBackWhereTheyReduceAndOnlyThere) {
  for (const Benchmark& collective : collectives()) {
    BenchOptions options = options_of(collective.name, 4);
    EXPECT_FALSE(feeds_back(options)) << collective.name;
    options.in_place = true;
    EXPECT_EQ(feeds_back(options), collective.reduces) << collective.name;
  }
}

// --- results ---

/// What ranks hold, by rank and element. The definitions of onehop/collectives.h once more, for i32.
using Data = std::vector<std::vector<std::int32_t>>;

Data run(std::string_view name, const Data& in, std::size_t count, std::size_t root) {
  const std::size_t ranks = in.size();
  const auto sum = [&](std::size_t element) {
    std::uint32_t total = 0;
    for (const auto& each : in) total += static_cast<std::uint32_t>(each.at(element));
    return static_cast<std::int32_t>(total);
  };
  Data out(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      if (name == "all-reduce" || (name == "reduce" && r == root)) out[r].push_back(sum(i));
      if (name == "reduce-scatter") out[r].push_back(sum(r * count + i));
      if (name == "send-recv") out[r].push_back(in[(r + ranks - 1) % ranks].at(i));
      if (name == "broadcast") out[r].push_back(in[root].at(i));
      if (name == "scatter") out[r].push_back(in[root].at(r * count + i));
    }
    for (std::size_t s = 0; s < ranks; ++s) {
      for (std::size_t i = 0; i < count; ++i) {
        if (name == "all-gather" || (name == "gather" && r == root)) out[r].push_back(in[s].at(i));
        if (name == "all-to-all" || name == "all-to-all-v") out[r].push_back(in[s].at(r * count + i));
      }
    }
  }
  return out;
}

class Results : public ::testing::TestWithParam<std::string_view> {
 protected:
  static constexpr int kRanks = 3;

  Results() {
    options_ = options_of(GetParam(), kRanks, DType::i32);
    options_.root = Rank{1};
    shape_ = shape_of(options_, Rank{0}, 600);
    data_ = check_data_of(options_, shape_);
    in_.resize(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      in_[static_cast<std::size_t>(rank)].resize(shape_.in_count);
      fill_input(data_, rank, in_[static_cast<std::size_t>(rank)].data(), shape_.in_count);
    }
    out_ = run(GetParam(), in_, shape_.count, 1);
  }
  [[nodiscard]] std::string complaint(int rank) const {
    const auto* const out =
        reinterpret_cast<const std::byte*>(out_.at(static_cast<std::size_t>(rank)).data());
    return complaint_about(options_, shape_, data_, Rank{rank}, out);
  }

  BenchOptions options_;
  Shape shape_;
  CheckData data_;
  Data in_;
  Data out_;
};

TEST_P(Results, ThatAreRightAreAccepted) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(complaint(rank), "") << "rank " << rank;
    EXPECT_EQ(out_.at(static_cast<std::size_t>(rank)).size(),
              has_output(options_, Rank{rank}) ? shape_.out_count : 0);
  }
}

TEST_P(Results, WithOneWrongElementAreNamedByIt) {
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& out = out_.at(static_cast<std::size_t>(rank));
    for (std::size_t element = 0; element < out.size(); element += shape_.count - 1) {
      out[element] ^= 1;
      EXPECT_THAT(complaint(rank), HasSubstr(fmt::format("element {} of {} is ", element, out.size())));
      out[element] ^= 1;
    }
  }
}

TEST_P(Results, OfAnotherRootOrInAnotherOrderAreNotAccepted) {
  if (options_.collective->rooted()) {
    options_.root = Rank{2};
    // The sum does not depend on the root.
    const bool told = options_.collective->in.root_only;
    out_[2] = out_[1];
    EXPECT_EQ(complaint(2) != "", told) << GetParam();
    options_.root = Rank{1};
  }
  if (!options_.collective->out.block_per_rank) return;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& out = out_.at(static_cast<std::size_t>(rank));
    if (out.empty() || !has_output(options_, Rank{rank})) continue;
    std::rotate(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(shape_.count), out.end());
    EXPECT_NE(complaint(rank), "") << "rank " << rank;
  }
}

TEST_P(Results, HaveANameWithTheReductionIfThereIsOne) {
  const std::string name = name_of_call(options_, shape_, Algorithm::one_shot);
  EXPECT_EQ(name, fmt::format("{} of 600 bytes (i32{}, one-shot)", GetParam(),
                              options_.collective->reduces ? " sum" : ""));
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const Benchmark& each : benchmarks()) {
    if (each.moves_data) names.push_back(each.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Collectives, Results, ::testing::ValuesIn(all_names()), [](const auto& name) {
  std::string text(name.param);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

TEST(OurAllReduce, InPartsIsTheWholeAndSaysHowItWent) {
  std::vector<Group> groups = Group::join_local({DeviceId::host, DeviceId::host});
  std::vector<std::vector<std::int32_t>> data(2, {1, 2, 3, 4, 5, 6, 7});
  on_every_rank(groups, [&](Group& group) {
    const auto r = static_cast<std::size_t>(group.rank().value);
    auto* const at = reinterpret_cast<std::byte*>(data[r].data());
    BenchCall call{
        {.collective = Collective::all_reduce, .in = at, .out = at, .count = 7, .type = DType::i32}};
    for (const int parts : {1, 3, 7, 20}) {
      call.parts = parts;
      EXPECT_EQ(call_onehop(group, call), Algorithm::one_shot);
    }
    call.options.algorithm = Algorithm::two_shot;
    EXPECT_EQ(call_onehop(group, call), Algorithm::two_shot);
  });
  EXPECT_THAT(data, ::testing::Each(::testing::ElementsAre(32, 64, 96, 128, 160, 192, 224)));
}

// --- NCCL ---

class NcclCalls : public ::testing::Test {
 protected:
  NcclCalls() {
    forbid_nccl_multicast();
    ::setenv("ONEHOP_NCCL_LIBRARY", ONEHOP_FAKE_NCCL, 1);
    std::string why;
    nccl_ = load_nccl("", why).value();
    void* const library = ::dlopen(ONEHOP_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    taken_ = reinterpret_cast<const char* (*)()>(::dlsym(library, "fake_nccl_calls"));
    (void)taken_();
  }
  /// What is called for 10 f32s a block, from 1000 to 2000.
  [[nodiscard]] std::string calls(std::string_view name, int rank, int root = 1, int ranks = 3,
                                  int parts = 1) const {
    const BenchCall call{{.in = reinterpret_cast<const std::byte*>(std::uintptr_t{1000}),
                          .out = reinterpret_cast<std::byte*>(std::uintptr_t{2000}),
                          .count = 10,
                          .type = DType::f32,
                          .op = ReduceOp::max,
                          .root = Rank{root}},
                         parts};
    result_ = find_collective(name)->nccl(nccl_, {nullptr, rank, ranks}, call, nullptr);
    return taken_();
  }
  void forget_2_28() {
    nccl_.all_to_all = nullptr;
    nccl_.gather = nullptr;
    nccl_.scatter = nullptr;
  }

  Nccl nccl_;
  const char* (*taken_)() = nullptr;
  mutable int result_ = 0;
};

TEST_F(NcclCalls, AreNcclsOwnWhereItHasThem) {
  EXPECT_EQ(calls("all-reduce", 0), "AllReduce 1000 2000 x10 type7 op2;");
  EXPECT_EQ(calls("all-gather", 0), "AllGather 1000 2000 x10 type7;");
  EXPECT_EQ(calls("reduce-scatter", 0), "ReduceScatter 1000 2000 x10 type7 op2;");
  EXPECT_EQ(calls("broadcast", 0), "Broadcast 1000 2000 x10 type7 root1;");
  EXPECT_EQ(calls("reduce", 0), "Reduce 1000 2000 x10 type7 op2 root1;");
  EXPECT_EQ(calls("all-to-all", 0), "AlltoAll 1000 2000 x10 type7;");
  EXPECT_EQ(calls("gather", 0), "Gather 1000 2000 x10 type7 root1;");
  EXPECT_EQ(calls("scatter", 0), "Scatter 1000 2000 x10 type7 root1;");
}

TEST_F(NcclCalls, OfPartsAreOneGroup) {
  EXPECT_EQ(calls("all-reduce", 0, 0, 3, 3),
            "start;AllReduce 1000 2000 x3 type7 op2;AllReduce 1012 2012 x3 type7 op2;"
            "AllReduce 1024 2024 x4 type7 op2;end;");
  EXPECT_EQ(result_, 0);
}

TEST_F(NcclCalls, AreSendsAndReceivesOfOneGroupBefore2_28) {
  forget_2_28();
  EXPECT_EQ(calls("all-to-all", 2),
            "start;send 1000 x10 type7 to0;recv 2000 x10 type7 from0;send 1040 x10 type7 to1;"
            "recv 2040 x10 type7 from1;send 1080 x10 type7 to2;recv 2080 x10 type7 from2;end;");
  EXPECT_EQ(calls("gather", 1),
            "start;send 1000 x10 type7 to1;recv 2000 x10 type7 from0;recv 2040 x10 type7 from1;"
            "recv 2080 x10 type7 from2;end;");
  EXPECT_EQ(calls("gather", 0), "start;send 1000 x10 type7 to1;end;");
  EXPECT_EQ(calls("scatter", 1),
            "start;send 1000 x10 type7 to0;send 1040 x10 type7 to1;send 1080 x10 type7 to2;"
            "recv 2000 x10 type7 from1;end;");
  EXPECT_EQ(calls("scatter", 2), "start;recv 2000 x10 type7 from1;end;");
  EXPECT_EQ(result_, 0);
}

TEST_F(NcclCalls, EndTheirGroupAndReportTheFirstFailure) {
  forget_2_28();
  EXPECT_EQ(calls("gather", 0, 64, 65), "start;send 1000 x10 type7 to64;end;");
  EXPECT_EQ(result_, 4);
}

}  // namespace
}  // namespace onehop::cli
