// SPDX-License-Identifier: Apache-2.0
#include "backend/host/peer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "os/process_id.h"

namespace onehop::host {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const os::Id& own_id() {
  static const os::Id id = os::process_id();
  return id;
}
ProcessNotice own_notice() {
  return make_notice(own_id(), Wish::where_faster);
}

/// A notice of a process that has ended.
ProcessNotice notice_of_dead() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  (void)::waitpid(child, nullptr, 0);
  ProcessNotice notice = own_notice();
  notice.process = os::random_id();
  notice.pid = child;
  return notice;
}

struct Marks {
  std::array<ReadMarks, 3> each;
  std::array<ReadMarks*, 3> of_all{&each[0], &each[1], &each[2]};
};

TEST(SingleCopy, DoesNotWorkUnlessTheGroupFoundThatItDoes) {
  const SingleCopy none;
  EXPECT_FALSE(none.works());
  EXPECT_FALSE(none.can_show({}));
  EXPECT_NE(none.obstacle(), "");
  const SingleCopy refused("no");
  EXPECT_FALSE(refused.works());
  EXPECT_EQ(refused.obstacle(), "no");
}

TEST(SingleCopy, NeedsNoSystemCallAmongThreadsOfOneProcess) {
  std::array notices{own_notice(), own_notice(), own_notice()};
  for (ProcessNotice& each : notices) each.pid = 0;  // would be refused
  EXPECT_EQ(find_obstacle(notices, 1), "");
  Marks marks;
  const SingleCopy copies(notices, marks.of_all, 1);
  EXPECT_TRUE(copies.works());
  EXPECT_TRUE(copies.one_process());
  const std::string text = "abc";
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  EXPECT_TRUE(copies.can_show({data, text.size()}));
  std::string copy = "???";
  copies.read(2, data, copy.data(), copy.size());
  EXPECT_EQ(copy, text);
}

TEST(SingleCopy, OfWithdrawnDataNamesItsRank) {
  const std::array notices{own_notice(), own_notice(), own_notice()};
  Marks marks;
  const SingleCopy owner(notices, marks.of_all, 1);
  const SingleCopy reader(notices, marks.of_all, 2);
  owner.withdraw();
  const std::byte data{7};
  std::byte copy{};
  try {
    reader.read(1, &data, &copy, 1);
    FAIL() << "read withdrawn data";
  } catch (const Unreadable& unreadable) {
    EXPECT_EQ(unreadable.rank, 1);
    EXPECT_EQ(unreadable.error, ECANCELED);
  }
  EXPECT_EQ(copy, std::byte{0});
  reader.withdraw();  // does not wait for the read that was refused
}

TEST(SingleCopy, OwnersFreeTheirDataWhenNobodyReadsIt) {
  const std::array notices{own_notice(), own_notice(), own_notice()};
  constexpr std::size_t kBytes = 3 * kReadPiece + 5;
  for (int round = 0; round < 50; ++round) {
    Marks marks;
    std::vector<std::byte> data(kBytes, std::byte{7});
    const std::byte* const shown = data.data();
    std::atomic<int> started{0};
    const auto read_all = [&](int rank) {
      const SingleCopy reader(notices, marks.of_all, rank);
      std::vector<std::byte> copy(kBytes);
      started.fetch_add(1);
      try {
        for (int again = 0; again < 1000; ++again) {
          reader.read(0, shown, copy.data(), kBytes);
          ASSERT_TRUE(std::ranges::all_of(copy, [](std::byte each) { return each == std::byte{7}; }));
        }
        FAIL() << "the data was not withdrawn";
      } catch (const Unreadable& unreadable) {
        EXPECT_EQ(unreadable.error, ECANCELED);
      }
    };
    std::thread first(read_all, 1);
    std::thread second(read_all, 2);
    while (started.load() < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds{round * 20});
    SingleCopy(notices, marks.of_all, 0).withdraw();
    std::ranges::fill(data, std::byte{1});  // as its owner may now
    data = {};
    first.join();
    second.join();
  }
}

TEST(SingleCopy, IsNotTriedIfARankSwitchedItOffOrProcessesShareProcessors) {
  std::array notices{own_notice(), own_notice(), own_notice()};
  EXPECT_EQ(find_objection(notices, false), "");
  notices[1] = notice_of_dead();
  EXPECT_EQ(find_objection(notices, true), "");
  EXPECT_THAT(find_objection(notices, false), HasSubstr("ranks share processors"));
  notices[0] = make_notice(own_id(), Wish::always);
  EXPECT_EQ(find_objection(notices, false), "");
  notices[2] = make_notice(own_id(), Wish::never);
  EXPECT_EQ(find_objection(notices, true), "rank 2 has ONEHOP_SINGLE_COPY=0");
}

TEST(SingleCopy, IsRefusedWithTheReason) {
  std::array notices{own_notice(), notice_of_dead()};
  EXPECT_THAT(find_obstacle(notices, 0), HasSubstr("rank 0 cannot read the memory of rank 1: "));
  // A number that another process has got meanwhile, or in a namespace that looks the same.
  notices[1].pid = ::getpid();
  EXPECT_THAT(find_obstacle(notices, 0), AnyOf(HasSubstr("its process id names another process"),
                                               HasSubstr("(ENOSYS)"), HasSubstr("(EPERM)")));
  notices[1].pid_namespace = notices[0].pid_namespace + 1;
  EXPECT_THAT(find_obstacle(notices, 0), HasSubstr("it is in another PID namespace"));
}

TEST(SingleCopy, FromAProcessThatHasEndedNamesItsRank) {
  const std::array notices{own_notice(), notice_of_dead()};
  Marks marks;
  const SingleCopy copies(notices, std::span(marks.of_all).first(2), 0);
  EXPECT_FALSE(copies.one_process());
  std::byte copy{};
  try {
    copies.read(1, &copy, &copy, 1);
    FAIL() << "read the memory of a process that has ended";
  } catch (const Unreadable& unreadable) {
    EXPECT_EQ(unreadable.rank, 1);
    EXPECT_TRUE(unreadable.error == ESRCH || unreadable.error == EPERM || unreadable.error == ENOSYS)
        << unreadable.error;
  }
}

}  // namespace
}  // namespace onehop::host
