// SPDX-License-Identifier: Apache-2.0
// Identity of GPUs, for ranks that number them differently, see only some of them, or use the same one twice.
// Ranks are processes that set CUDA_VISIBLE_DEVICES before they use CUDA.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_devices_test {
namespace {

using std::chrono::seconds;

struct Sight {
  std::string visible;  ///< CUDA_VISIBLE_DEVICES; empty: unchanged
  int device = 0;
};

/// Joins with each rank's numbering. A rank reports the Error it got, or "" after the group has worked.
std::vector<std::string> join_with(const std::vector<Sight>& sights, bool overlapping = false) {
  const TempDir dir;
  const int n = static_cast<int>(sights.size());
  Processes processes(n, [&](Rank rank) -> std::string {
    const Sight& sight = sights[static_cast<std::size_t>(rank.value)];
    if (!sight.visible.empty()) (void)::setenv("CUDA_VISIBLE_DEVICES", sight.visible.c_str(), 1);
    JoinOptions options = on_gpus();
    options.rank = rank;
    options.size = n;
    options.device = DeviceId{sight.device};
    options.allow_overlapping_devices = overlapping;
    try {
      Group group = Group::join(file_store(dir.path()), options);
      Gpu gpu(group.device());
      expect_works(group, gpu);
      const SymmetricBuffer buffer = group.allocate(1 << 20);
      buffer.barrier(gpu.stream());
      group.synchronize(gpu.stream());
      group.barrier();
    } catch (const Error& error) {
      return fmt::format("{} of rank {}: {}", to_string(error.code()), error.origin().value, error.message());
    }
    return "";
  });
  std::vector<std::string> texts;
  for (const Exit& exit : processes.wait(seconds{60})) {
    EXPECT_EQ(exit.code, 0) << "signal " << exit.signal << ": " << exit.text;
    texts.push_back(exit.text);
  }
  return texts;
}

TEST(CudaDevices, RanksMayNumberThemDifferently) {
  ONEHOP_NEED_FORKED_GPUS(2);
  EXPECT_THAT(join_with({{.visible = "1,0", .device = 0}, {.visible = "0,1", .device = 0}}),
              ::testing::Each(""));
}

TEST(CudaDevices, RanksMaySeeOnlyTheirOwn) {
  ONEHOP_NEED_FORKED_GPUS(2);
  const int n = gpus_unavailable(4, Sharing::no).empty() ? 4 : 2;
  std::vector<Sight> sights;
  for (int r = 0; r < n; ++r) sights.push_back({.visible = std::to_string(r), .device = 0});
  EXPECT_THAT(join_with(sights), ::testing::Each(""));
}

TEST(CudaDevices, TheSameOneTwiceIsRefusedOnAllRanksWhateverItsNumber) {
  ONEHOP_NEED_FORKED_GPUS(1);
  std::vector<std::vector<Sight>> numberings = {{{.visible = "", .device = 0}, {.visible = "", .device = 0}}};
  if (gpus_unavailable(2, Sharing::no).empty())
    numberings.push_back({{.visible = "0,1", .device = 0}, {.visible = "1,0", .device = 1}});
  for (const std::vector<Sight>& numbering : numberings) {
    const std::vector<std::string> texts = join_with(numbering);
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_THAT(texts[0], ::testing::StartsWith(fmt::format("{} of rank", to_string(ErrorCode::refused))));
    EXPECT_THAT(texts[0], ::testing::HasSubstr("GPU-"));
  }
}

TEST(CudaDevices, TheSameOneTwiceWorksWhereItIsAllowed) {
  ONEHOP_NEED_FORKED_GPUS(1);
  EXPECT_THAT(join_with({{.visible = "", .device = 0}, {.visible = "", .device = 0}}, true),
              ::testing::Each(""));
}

TEST(CudaDevices, OneThatDoesNotExistIsEveryRanksErrorAndNamesTheCount) {
  ONEHOP_NEED_FORKED_GPUS(1);
  const std::vector<std::string> texts =
      join_with({{.visible = "", .device = 0}, {.visible = "", .device = 99}});
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0], ::testing::HasSubstr("device 99 does not exist: this process sees"));
  EXPECT_THAT(texts[0], ::testing::HasSubstr("of rank 1"));
}

TEST(CudaDevices, NoneVisibleIsAClearError) {
  ONEHOP_NEED_FORKED_GPUS(1);
  const std::vector<std::string> texts =
      join_with({{.visible = "", .device = 0}, {.visible = "-1", .device = 0}});
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0], ::testing::HasSubstr("CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace onehop::testing::gpu_devices_test
