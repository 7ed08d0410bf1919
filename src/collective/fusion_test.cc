// SPDX-License-Identifier: Apache-2.0
// Which all-reduces of a GroupCall share a launch on GPUs.
#include "collective/fusion.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/algorithms/push/push_algorithms.h"

namespace onehop {
namespace {

constexpr std::size_t kKiB = 1 << 10;
constexpr std::size_t kMiB = 1 << 20;

/// A group of GPUs, and what its calls have in common.
struct Setting {
  explicit Setting(int ranks_, const Tuning& own = {})
      : ranks(ranks_), selector(own, Backend::cuda, ranks_, Links::nvlink) {}

  [[nodiscard]] std::size_t count(const std::vector<std::size_t>& bytes) const {
    std::vector<CollectiveCall> calls;
    for (const std::size_t each : bytes) {
      CollectiveCall call;
      call.collective = Collective::all_reduce;
      call.type = type;
      call.count = each / size_of(type);
      call.options.algorithm = algorithm;
      call.ranks = ranks;
      calls.push_back(call);
    }
    return count_fitting(selector, calls);
  }

  int ranks;
  Selector selector;
  DType type = DType::u8;
  std::optional<Algorithm> algorithm{};
};

TEST(CountFitting, TakesSmallCallsUpToTheLimitOfOneShotAndASlot) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    const Setting setting(ranks);
    // One-shot sends the message to all peers. With 2 ranks it has no limit, but a slot has.
    const std::size_t one_shot = ranks == 2 ? kNoLimit : 768 * kKiB / static_cast<std::size_t>(ranks - 1);
    const std::size_t limit = std::min(one_shot, cuda::kLLSlotBytes) / 8 * 8;
    EXPECT_EQ(setting.count({8, 1, 100, 4 * kKiB}), 4u);
    EXPECT_EQ(setting.count({limit - 8, 8}), 2u);
    EXPECT_EQ(setting.count({limit - 8, 8, 1}), 2u);
    EXPECT_EQ(setting.count({limit - 8, 9}), 1u) << "every message begins with a packet of its own";
    EXPECT_EQ(setting.count({limit - 7, 8}), 1u);
    EXPECT_EQ(setting.count({limit, 1}), 1u);
    EXPECT_EQ(setting.count({100, 64 * kMiB, 100}), 1u);
    EXPECT_EQ(setting.count({64 * kMiB, 100, 100}), 1u);
    EXPECT_EQ(setting.count({100, 100, 64 * kMiB}), 2u);
    EXPECT_EQ(setting.count({100}), 1u);
  }
}

TEST(CountFitting, TakesFloatsThatWouldUseLamportBuffersAlone) {
  Setting setting(4);
  setting.type = DType::f32;
  EXPECT_EQ(setting.count({64 * kKiB, 64 * kKiB, 128 * kKiB, 4}), 3u);
}

TEST(CountFitting, TakesALimitedNumberOfMessagesAndAnyNumberOfEmptyCalls) {
  const Setting setting(2);
  const std::vector<std::size_t> full(cuda::kMaxFused, 40);
  EXPECT_EQ(setting.count(full), cuda::kMaxFused);
  std::vector<std::size_t> more = full;
  more.push_back(0);
  EXPECT_EQ(setting.count(more), cuda::kMaxFused + 1);
  more.push_back(1);
  EXPECT_EQ(setting.count(more), cuda::kMaxFused + 1);
  EXPECT_EQ(setting.count(std::vector<std::size_t>(100)), 1u) << "nothing to launch";
  EXPECT_EQ(setting.count({0, 8}), 2u);
  EXPECT_EQ(setting.count({8, 0}), 2u);
  EXPECT_EQ(setting.count({0, 64 * kMiB}), 1u);
}

TEST(CountFitting, TakesNoCallThatUsesTwoShot) {
  Setting setting(4);
  setting.algorithm = Algorithm::two_shot;
  EXPECT_EQ(setting.count({8, 8}), 1u);
  setting.algorithm = Algorithm::one_shot;
  EXPECT_EQ(setting.count({8, 8}), 2u);
  EXPECT_EQ(setting.count({8, kMiB}), 1u) << "more than a slot";
}

TEST(CountFitting, FollowsTheGroupsOwnTable) {
  const auto own = [](std::uint64_t up_to, const char* algorithm) {
    return Tuning{.device = "",
                  .rows = {{.backend = Backend::cuda,
                            .ranks = 4,
                            .up_to = up_to,
                            .choice = AlgorithmChoice{.algorithm = algorithm}}}};
  };
  EXPECT_EQ(Setting(4, own(kNoLimit, "streaming_two_shot")).count({8, 8}), 1u);
  EXPECT_EQ(Setting(4, own(16, "streaming_two_shot")).count({24, 8}), 1u);
  EXPECT_EQ(Setting(4, own(kMiB, "ll_one_shot")).count({128 * kKiB, 128 * kKiB, 8}), 2u);
}

TEST(CountFitting, LeavesCallsOfImpossibleSizeAlone) {
  const Setting setting(2);
  EXPECT_EQ(setting.count({8, SIZE_MAX}), 1u);
  EXPECT_EQ(setting.count({SIZE_MAX, 8}), 1u);
}

}  // namespace
}  // namespace onehop
