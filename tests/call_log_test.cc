// SPDX-License-Identifier: Apache-2.0
// Tests what a group reports about itself: ONEHOP_LOG, and ranges for profilers. Each test runs in a process
// of its own, since both settings are read once per process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "onehop/onehop.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Group> two_ranks(std::string name = "world") {
  JoinOptions options;
  options.name = std::move(name);
  options.timeout = std::chrono::seconds{27};
  return Group::join_local({DeviceId::host, DeviceId::host}, std::move(options));
}

void make_every_call() {
  std::vector<Group> groups = two_ranks("g");
  on_every_rank(groups, [](Group& group) {
    std::array<float, 8> in{};
    std::array<float, 8> out{};
    const Rank other{1 - group.rank().value};
    const std::array<std::size_t, 2> counts{1, 2};
    const std::array<std::size_t, 2> own_counts{group.rank() == Rank{0} ? 1U : 2U,
                                                group.rank() == Rank{0} ? 1U : 2U};
    const std::array<std::size_t, 2> offsets{0, 2};
    const auto f32 = DType::f32;
    (void)all_reduce(group, in.data(), out.data(), 4, f32, ReduceOp::max);
    (void)all_gather(group, in.data(), out.data(), 4, f32);
    (void)reduce_scatter(group, in.data(), out.data(), 4, f32, ReduceOp::sum);
    (void)broadcast(group, in.data(), out.data(), 3, f32, Rank{1});
    (void)reduce(group, in.data(), out.data(), 3, f32, ReduceOp::sum, Rank{1});
    (void)all_to_all(group, in.data(), out.data(), 4, f32);
    (void)gather(group, in.data(), out.data(), 4, f32, Rank{0});
    (void)scatter(group, in.data(), out.data(), 4, f32, Rank{0});
    (void)all_to_all_v(group, in.data(), {.counts = counts, .offsets = offsets}, out.data(),
                       {.counts = own_counts, .offsets = offsets}, f32);
    if (group.rank() == Rank{0}) {
      (void)send(group, in.data(), 5, f32, other);
    } else {
      (void)recv(group, out.data(), 5, f32, other);
    }
    group.barrier();
  });
}

/// Runs `statement` in a process with that variable and compares what it writes to stderr.
#define EXPECT_STDERR(variable, value, statement, pattern) \
  EXPECT_EXIT(                                             \
      {                                                    \
        (void)::setenv(variable, value, 1);                \
        statement;                                         \
        std::exit(0);                                      \
      },                                                   \
      ::testing::ExitedWithCode(0), pattern)

class Log : public ::testing::Test {
 protected:
  Log() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using Ranges = Log;

TEST_F(Log, InfoIsALineForEachRankThatJoinsAndOneForTheGroup) {
  EXPECT_STDERR("ONEHOP_LOG", "info", (void)two_ranks(),
                AllOf(ContainsRegex("info onehop.*joined 'world' as rank 0 of 2 in [0-9.]+ ms: host backend"),
                      ContainsRegex("onehop 0\\.[0-9.]+: joined 'world' as rank 1 of 2"),
                      ContainsRegex("memory shared by one mapping in one process, tuning shipped"),
                      ContainsRegex("group 'world': scratch 10M per rank, timeout 27000 ms"),
                      Not(ContainsRegex("group 'world'.*\n.*\n*.*group 'world'"))));
}

TEST_F(Log, InfoSaysWhatWasSplitOff) {
  EXPECT_STDERR(
      "ONEHOP_LOG", "info",
      {
        std::vector<Group> groups = Group::join_local({DeviceId::host, DeviceId::host, DeviceId::host});
        on_every_rank(groups, [](Group& group) { (void)group.split(group.rank() == Rank{2} ? -1 : 4); });
      },
      AllOf(ContainsRegex("split off 'world.4' as rank 0 of 2 in"),
            ContainsRegex("split off 'world.4' as rank 1 of 2 in"), Not(HasSubstr("all_reduce"))));
}

TEST_F(Log, DebugNamesTheAlgorithmAndTheBytesOfEveryCall) {
  EXPECT_STDERR("ONEHOP_LOG", "debug", make_every_call(),
                AllOf(HasSubstr("debug onehop["),
                      HasSubstr("rank 0 of 'g': all_reduce(count 4, f32, max): one-shot, 16 bytes"),
                      HasSubstr("rank 1 of 'g': all_reduce(count 4, f32, max): one-shot, 16 bytes"),
                      HasSubstr("rank 1 of 'g': all_gather(count 4, f32): one-shot, 32 bytes"),
                      HasSubstr("reduce_scatter(count 4, f32, sum): one-shot, 32 bytes"),
                      HasSubstr("broadcast(count 3, f32, root 1): one-shot, 12 bytes"),
                      HasSubstr(": reduce(count 3, f32, sum, root 1): one-shot, 12 bytes"),
                      HasSubstr("all_to_all(count 4, f32): one-shot, 32 bytes"),
                      HasSubstr("rank 0 of 'g': gather(count 4, f32, root 0): one-shot, 32 bytes"),
                      HasSubstr("scatter(count 4, f32, root 0): one-shot, "),
                      HasSubstr("all_to_all_v(f32): one-shot, 12 bytes"),
                      HasSubstr("rank 0 of 'g': send(count 5, f32) to rank 1: one-shot, 20 bytes"),
                      HasSubstr("rank 1 of 'g': recv(count 5, f32) from rank 0: one-shot, 20 bytes"),
                      HasSubstr("rank 1 of 'g': barrier()")));
}

TEST_F(Log, NothingIsWrittenUnlessSomethingIsWrong) {
  EXPECT_STDERR("ONEHOP_LOG", "", make_every_call(), ::testing::StrEq(""));
}

TEST_F(Log, AJoiningRankWarnsOfVariablesThatMakeNoSense) {
  EXPECT_STDERR("ONEHOP_CHECK", "maybe", make_every_call(),
                AllOf(ContainsRegex("warning onehop.*ONEHOP_CHECK='maybe'.*1 or 0"),
                      Not(ContainsRegex("ONEHOP_CHECK.*\n.*ONEHOP_CHECK"))));
}

#ifdef ONEHOP_FAKE_NVTX_TOOL
TEST_F(Ranges, ReachAProfilerForEveryCall) {
  EXPECT_STDERR("NVTX_INJECTION64_PATH", ONEHOP_FAKE_NVTX_TOOL, make_every_call(),
                AllOf(HasSubstr("nvtx: domain onehop"), HasSubstr("nvtx: begin all_reduce\n"),
                      HasSubstr("nvtx: begin all_to_all_v\n"), HasSubstr("nvtx: begin send\n"),
                      HasSubstr("nvtx: begin barrier\n"), HasSubstr("nvtx: end\n")));
}
#endif

}  // namespace
}  // namespace onehop
