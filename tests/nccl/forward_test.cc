// SPDX-License-Identifier: Apache-2.0
// What libonehop_nccl.so forwards, to a library that stands for NCCL. One process per case (ctest), since NCCL is looked for
// once.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "api.h"

namespace onehop::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void use(const char* library) {
  ::setenv("ONEHOP_NCCL_LIBRARY", library, 1);
}

/// How many calls the fake has had.
int calls_of(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr);
  return reinterpret_cast<int (*)()>(::dlsym(handle, "fake_nccl_calls"))();
}

using ManyArguments = double(int, double, long, float, int, double, int, double, int, double, int, double,
                             int, double, int, double, int, double, int);

double sum_of_weights() {
  double sum = 0;
  for (int i = 1; i <= 19; ++i) sum += i * i;
  return sum;
}

TEST(NcclForwarding, PassesArgumentsInRegistersAndOnTheStack) {
  use(ONEHOP_FAKE_NCCL);
  auto* const put = function<ManyArguments>("ncclPutSignal");
  for (int i = 0; i < 2; ++i)  // the first call finds the function, the second one jumps
    EXPECT_EQ(put(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19), sum_of_weights());
  EXPECT_EQ(function<ManyArguments>("pncclPutSignal")(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                                      17, 18, 19),
            sum_of_weights());
}

TEST(NcclForwarding, PassesLargeArgumentsAndResults) {
  struct Id {
    std::array<char, 128> bytes;
  };
  struct Large {
    std::array<long, 5> values;
  };
  use(ONEHOP_FAKE_NCCL);
  Id id{};
  id.bytes.front() = 1;
  id.bytes.back() = 2;
  auto* const get = function<Large(Id, long)>("ncclWinGetUserPtr");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(get(id, 3).values, (std::array<long, 5>{1, 2, 3, 4, 5}));
}

TEST(NcclForwarding, PassesVariableArguments) {
  use(ONEHOP_FAKE_NCCL);
  auto* const signal = function<double(int, ...)>("ncclSignal");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(signal(3, 0.5, 1.25, 2.0), 3.75);
}

TEST(NcclForwarding, ThreadsMayMakeTheFirstCallTogether) {
  use(ONEHOP_FAKE_NCCL);
  auto* const put = function<ManyArguments>("ncclPutSignal");
  std::vector<double> results(8);
  std::vector<std::thread> threads;
  for (double& result : results)
    threads.emplace_back(
        [&] { result = put(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19); });
  for (std::thread& each : threads) each.join();
  EXPECT_THAT(results, ::testing::Each(sum_of_weights()));
}

TEST(NcclForwarding, CallsTheNamesThatNoOtherLibraryReplaces) {
  use(ONEHOP_FAKE_NCCL);
  int version = -1;
  EXPECT_EQ(function<int(int*)>("ncclGetVersion")(&version), 0);
  EXPECT_EQ(version, 22809);
  EXPECT_EQ(last_error(), "the real last error");
  EXPECT_STREQ(function<const char*(int)>("ncclGetErrorString")(5), "the real text");
}

TEST(NcclForwarding, AFunctionThatAnOlderLibraryLacksIsAnErrorThatNamesTheVersion) {
  use(ONEHOP_OLD_FAKE_NCCL);
  int version = -1;
  EXPECT_EQ(function<int(int*)>("ncclGetVersion")(&version), 0);
  EXPECT_EQ(version, 22703) << "it has no names with p";
  EXPECT_EQ(function<int()>("ncclAlltoAll")(), 5);
  EXPECT_THAT(last_error(), AllOf(HasSubstr("ncclAlltoAll is missing in NCCL 2.27.3"),
                                  HasSubstr(ONEHOP_OLD_FAKE_NCCL), HasSubstr("install a newer NCCL")));
  EXPECT_EQ(function<int()>("ncclAlltoAll")(), 5) << "and so is the second call";
}

TEST(NcclForwarding, AFunctionThatIsMissingAndReturnsAStructReturnsZeros) {
  struct Members {
    int ranks, rank, stride;
  };
  use(ONEHOP_OLD_FAKE_NCCL);
  const Members members = function<Members(void*)>("ncclTeamWorld")(nullptr);
  EXPECT_EQ(members.ranks, 0);
  EXPECT_EQ(members.rank, 0);
  EXPECT_EQ(members.stride, 0);
  EXPECT_THAT(last_error(), HasSubstr("ncclTeamWorld is missing"));
}

TEST(NcclForwarding, AMissingLibraryIsNamedWithTheVariable) {
  use("/nonexistent/libnccl.so.2");
  ::testing::internal::CaptureStderr();
  int version = -1;
  EXPECT_EQ(function<int(int*)>("ncclGetVersion")(&version), 0);
  EXPECT_EQ(version, 23203) << "the newest whose functions are there";
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("no NCCL is used: ONEHOP_NCCL_LIBRARY="), HasSubstr("/nonexistent/libnccl.so.2")));
  EXPECT_EQ(function<int()>("ncclCommGrow")(), 5);
  EXPECT_THAT(last_error(),
              AllOf(HasSubstr("ncclCommGrow needs NCCL"), HasSubstr("/nonexistent/libnccl.so.2")));
}

TEST(NcclForwarding, ALibraryThatIsNotNcclIsRefused) {
  use("libm.so.6");
  EXPECT_EQ(function<int()>("ncclCommGrow")(), 5);
  EXPECT_THAT(last_error(), HasSubstr("libm.so.6 is not NCCL"));
}

TEST(NcclForwarding, TheLibraryIsNotItsOwnNccl) {
  use(ONEHOP_NCCL);
  EXPECT_EQ(function<int()>("ncclCommGrow")(), 5);
  EXPECT_THAT(last_error(), HasSubstr("is this library"));
}

TEST(NcclForwarding, OffForwardsEverythingAndSaysSo) {
  use(ONEHOP_FAKE_NCCL);
  ::setenv("ONEHOP_NCCL", "off", 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(function<int()>("ncclAllReduce")(), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("ONEHOP_NCCL=off, forwarding everything to " ONEHOP_FAKE_NCCL " (2.28.9)"));
  EXPECT_EQ(calls_of(ONEHOP_FAKE_NCCL), 2) << "one of them for the version";
}

TEST(NcclForwarding, OffWithoutALibraryStillHasTexts) {
  use("/nonexistent/libnccl.so.2");
  ::setenv("ONEHOP_NCCL", "off", 1);
  EXPECT_EQ(function<int()>("ncclAllReduce")(), 5);
  EXPECT_THAT(last_error(), HasSubstr("ncclAllReduce needs NCCL"));
  EXPECT_STREQ(function<const char*(int)>("ncclGetErrorString")(5), "invalid usage");
}

TEST(NcclForwarding, FindsADirectory) {
  use(ONEHOP_NCCL_DIRECTORY);
  int version = -1;
  EXPECT_EQ(function<int(int*)>("ncclGetVersion")(&version), 0);
  EXPECT_EQ(version, 22703);
}

}  // namespace
}  // namespace onehop::nccl
