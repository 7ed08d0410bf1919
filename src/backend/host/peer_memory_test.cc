// SPDX-License-Identifier: Apache-2.0
#include "backend/host/peer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

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
  const SingleCopy copies(notices, 1);
  EXPECT_TRUE(copies.works());
  EXPECT_TRUE(copies.one_process());
  const std::string text = "abc";
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  EXPECT_TRUE(copies.can_show({data, text.size()}));
  std::string copy = "???";
  copies.read(2, data, copy.data(), copy.size());
  EXPECT_EQ(copy, text);
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
  const SingleCopy copies(notices, 0);
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
