// SPDX-License-Identifier: Apache-2.0
// Joining with GPUs up to the point where kernels are needed: which GPUs are refused, and how memory is
// shared. The GPUs are fakes, one per process.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "onehop/onehop.h"

#include "memory/cuda_testing.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using testing::Exit;
using ::testing::HasSubstr;
using testing::Processes;
using testing::TempDir;

constexpr int kRanks = 2;

/// How the ranks' GPUs differ from fully equipped GPUs of compute capability 9.0.
struct Gpus {
  std::function<void(Rank, FakeCuda&)> change = [](Rank, FakeCuda&) {};
  std::function<DeviceId(Rank)> device = [](Rank rank) { return DeviceId{rank.value}; };
  std::function<ShareBy(Rank)> share_by = [](Rank) { return ShareBy::automatic; };
};

/// Joins and returns, for each rank, the error and how the fake saw memory being allocated. There are no
/// kernels, so a group whose memory is mapped fails with the result of MemHostRegister.
std::vector<std::string> join(const Gpus& gpus) {
  const TempDir store;
  Processes processes(kRanks, [&](Rank rank) -> std::string {
    FakeCuda cuda;
    cuda.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
    cuda.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = 0;
    cuda.fabric = true;
    gpus.change(rank, cuda);
    try {
      (void)Group::join(file_store(store.path()), {.rank = rank,
                                                   .size = kRanks,
                                                   .device = gpus.device(rank),
                                                   .timeout = seconds{20},
                                                   .scratch_bytes = 64 << 10,
                                                   .share_by = gpus.share_by(rank)});
    } catch (const Error& error) {
      const auto types = static_cast<unsigned>(cuda.last_request().requestedHandleTypes);
      return fmt::format("{}: {}; handles {}, opened {}", to_string(error.code()), error.message(), types,
                         cuda.openings());
    }
    return "joined";
  });
  std::vector<std::string> texts;
  for (const Exit& exit : processes.wait(seconds{40})) texts.push_back(exit.text);
  return texts;
}

/// All memory was allocated and mapped with this kind of handle.
auto shared_by(ShareBy kind) {
  const auto type =
      kind == ShareBy::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const std::string handles = fmt::format("handles {}, opened 0", static_cast<unsigned>(type));
  return Each(AllOf(HasSubstr("unsupported: "), HasSubstr("CUDA_ERROR_FAKE"),
                    HasSubstr(kind == ShareBy::ipc ? ", opened 1" : handles)));
}

TEST(JoiningWithGpus, SharesMemoryInTheWayThatIsAskedFor) {
  for (const ShareBy kind : {ShareBy::posix_fd, ShareBy::fabric, ShareBy::ipc}) {
    EXPECT_THAT(join({.share_by = [&](Rank) { return kind; }}), shared_by(kind)) << to_string(kind);
    // A request by one rank is enough.
    EXPECT_THAT(join({.share_by = [&](Rank rank) { return rank.value == 1 ? kind : ShareBy::automatic; }}),
                shared_by(kind))
        << to_string(kind);
    (void)::setenv("ONEHOP_SHARE", std::string(to_string(kind)).c_str(), 1);
    EXPECT_THAT(join({}), shared_by(kind)) << to_string(kind);
    (void)::unsetenv("ONEHOP_SHARE");
  }
}

TEST(JoiningWithGpus, ByItselfTakesTheFirstWayThatWorksOnAllRanks) {
  EXPECT_THAT(join({}), shared_by(ShareBy::fabric));
  EXPECT_THAT(join({.change = [](Rank rank, FakeCuda& cuda) { cuda.fabric = rank.value == 0; }}),
              shared_by(ShareBy::posix_fd));
  EXPECT_THAT(join({.change =
                        [](Rank rank, FakeCuda& cuda) {
                          cuda.fabric = false;
                          cuda.passable = rank.value == 0;
                        }}),
              shared_by(ShareBy::ipc));
}

TEST(JoiningWithGpus, IsRefusedOnAllRanksThatNameDifferentWays) {
  EXPECT_THAT(join({.share_by = [](Rank rank) { return rank.value == 0 ? ShareBy::fabric : ShareBy::ipc; }}),
              Each(HasSubstr("refused: ranks 0 and 1 differ in how memory is shared: 'fabric' and 'ipc'")));
}

TEST(JoiningWithGpus, IsRefusedOnAllRanksWhereTheWayThatIsNamedDoesNotWork) {
  EXPECT_THAT(join({.change = [](Rank rank, FakeCuda& cuda) { cuda.fabric = rank.value == 0; },
                    .share_by = [](Rank) { return ShareBy::fabric; }}),
              Each(HasSubstr("unsupported: rank 1: device 1 cannot share memory by 'fabric': cuMemCreate")));
}

TEST(JoiningWithGpus, ADeviceOlderThanComputeCapability8IsRefusedOnAllRanks) {
  EXPECT_THAT(join({.change =
                        [](Rank rank, FakeCuda& cuda) {
                          if (rank.value == 0) return;
                          cuda.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 7;
                          cuda.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = 5;
                        }}),
              Each(HasSubstr("unsupported: rank 1: device 1 has compute capability 7.5; onehop needs 8.0 or "
                             "newer")));
  EXPECT_THAT(join({.change =
                        [](Rank, FakeCuda& cuda) {
                          cuda.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 8;
                        }}),
              shared_by(ShareBy::fabric))
      << "8.0 itself";
}

TEST(JoiningWithGpus, ALimitOfBlocksThatMakesNoSenseIsRefusedOnAllRanks) {
  const char* const variable = "ONEHOP_MAX_BLOCKS";
  const auto join_with = [&](const char* value) {
    return join({.change = [=](Rank rank, FakeCuda&) {
      if (rank.value == 1) (void)::setenv(variable, value, 1);
    }});
  };
  for (const char* const value : {"0", "-1", "many", "65536"}) {
    EXPECT_THAT(join_with(value), Each(AllOf(HasSubstr("invalid_argument: rank 1: "), HasSubstr(variable),
                                             HasSubstr(value), HasSubstr("1"))))
        << value;
  }
  EXPECT_THAT(join_with("1"), shared_by(ShareBy::fabric));
}

TEST(JoiningWithGpus, TwoRanksOnOneDeviceAreRefusedUnlessTheVariableAllowsIt) {
  const Gpus same{.device = [](Rank) { return DeviceId{0}; }};
  const char* const variable = "ONEHOP_ALLOW_OVERLAPPING_DEVICES";
  EXPECT_THAT(join(same), Each(HasSubstr("refused: ranks 0 and 1 use the same GPU")));
  (void)::setenv(variable, "0", 1);
  EXPECT_THAT(join(same), Each(HasSubstr("refused: ranks 0 and 1 use the same GPU")));
  (void)::setenv(variable, "1", 1);
  EXPECT_THAT(join(same), shared_by(ShareBy::fabric));
  (void)::setenv(variable, "maybe", 1);
  EXPECT_THAT(join(same), Each(HasSubstr("ONEHOP_ALLOW_OVERLAPPING_DEVICES='maybe' must be 1 or 0")));
  (void)::unsetenv(variable);
}

}  // namespace
}  // namespace onehop
