// SPDX-License-Identifier: Apache-2.0
// What onehop tune measures.
#include "bench/tune_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onehop::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::SizeIs;
using Called = onehop::Collective;

TuneOptions gpus(std::vector<Called> collectives, TunedBuffers buffers = TunedBuffers::any) {
  TuneOptions options;
  options.bench.cuda = true;
  options.bench.ranks = 4;
  options.collectives = std::move(collectives);
  options.buffers = buffers;
  return options;
}

/// "symmetric any: default", "any float".
std::vector<std::string> parts(const TuneOptions& options) {
  std::vector<std::string> texts;
  for (const TunePart& part : parts_of(options)) {
    EXPECT_EQ(part.like.up_to, kNoLimit);
    EXPECT_EQ(part.like.choice, std::nullopt);
    EXPECT_EQ(part.like.ranks, options.bench.ranks);
    texts.push_back(fmt::format("{} {}{}", to_string(part.like.buffers), to_string(part.like.types),
                                part.measured ? "" : ": default"));
  }
  return texts;
}

TEST(TunePlan, SymmetricOutputsStayWithTheLibraryUnlessTheyAreMeasured) {
  EXPECT_THAT(parts(gpus({Called::all_gather})), ElementsAre("symmetric any: default", "any float"));
  EXPECT_THAT(parts(gpus({Called::all_gather}, TunedBuffers::symmetric)), ElementsAre("symmetric float"));
  EXPECT_THAT(parts(gpus({Called::all_gather}, TunedBuffers::both)),
              ElementsAre("symmetric float", "any float"));
}

TEST(TunePlan, WithoutAlgorithmsForThemSymmetricOutputsAreLikeAllOthers) {
  EXPECT_THAT(parts(gpus({Called::reduce_scatter})), ElementsAre("any float"));
  EXPECT_THAT(parts(gpus({Called::reduce_scatter}, TunedBuffers::both)), ElementsAre("any float"));
}

TEST(TunePlan, FloatsStayWithTheLibraryUnlessTheyAreMeasured) {
  TuneOptions options;
  options.bench.ranks = 2;
  options.collectives = {Called::all_reduce};
  EXPECT_THAT(parts(options), ElementsAre("any float"));
  options.types = {{TypeClass::any, {DType::i32}}};
  EXPECT_THAT(parts(options), ElementsAre("any float: default", "any any"));
  options.types[TypeClass::floats] = {DType::f32};
  EXPECT_THAT(parts(options), ElementsAre("any float", "any any"));
}

TEST(TunePlan, EveryPartIsARowThatCallsReach) {
  for (const TunedBuffers buffers : {TunedBuffers::any, TunedBuffers::symmetric, TunedBuffers::both}) {
    for (const bool floats : {false, true}) {
      TuneOptions options = gpus(measurable_collectives(Backend::cuda), buffers);
      options.types[TypeClass::any] = {DType::i32};
      if (!floats) options.types.erase(TypeClass::floats);
      Tuning table;
      for (const TunePart& part : parts_of(options)) table.rows.push_back(part.like);
      EXPECT_THAT(table.rows, SizeIs(Ge(options.collectives.size())));
      EXPECT_EQ(Tuning::from_json(table.to_json()), table);
    }
  }
}

TEST(TunePlan, CollectivesThatHaveAChoiceCanBeMeasured) {
  EXPECT_THAT(measurable_collectives(Backend::host), ElementsAre(Called::all_reduce, Called::reduce));
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    for (const Called each : measurable_collectives(backend)) {
      EXPECT_THAT(tunable_collectives(backend), Contains(each));
      EXPECT_NE(find_collective(to_string(each)), nullptr);
      EXPECT_THAT(measurable_collectives(Backend::cuda), Contains(each)) << "which the options rely on";
    }
  }
}

TEST(TunePlan, SizesAreThoseOfABlock) {
  TuneOptions options = gpus({});
  EXPECT_EQ(bench_size(options, Called::all_reduce, 1024), 1024u);
  EXPECT_EQ(bench_size(options, Called::all_gather, 1024), 4096u);
  EXPECT_EQ(bench_size(options, Called::reduce_scatter, 1024), 4096u);
  EXPECT_EQ(bench_size(options, Called::broadcast, 1024), 1024u);
  options.sizes = {4096, 1024, 4096};
  EXPECT_THAT(block_sizes(options, Called::all_gather), ElementsAre(1024, 4096));
}

TEST(TunePlan, AllBlocksTogetherHaveTheDefaultSizes) {
  TuneOptions options = gpus({});
  EXPECT_EQ(block_sizes(options, Called::all_reduce).front(), 1024u);
  EXPECT_EQ(block_sizes(options, Called::all_reduce).back(), 1u << 30);
  EXPECT_EQ(block_sizes(options, Called::all_gather).back(), 256u << 20);
  options.bench.ranks = 8;
  EXPECT_EQ(block_sizes(options, Called::all_to_all).back(), 64u << 20);
  options.bench.cuda = false;
  EXPECT_EQ(block_sizes(options, Called::reduce).back(), 16u << 20);
}

}  // namespace
}  // namespace onehop::cli
