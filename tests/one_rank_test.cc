// SPDX-License-Identifier: Apache-2.0
// Groups of one rank: everything that works in larger groups works there. (The conformance suite checks the
// results of the collectives.)
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_shared;
using testing::expect_usable;
using ::testing::HasSubstr;
using testing::run_process_group;
using testing::run_thread_group;
using testing::TempDir;

Group join_alone(const std::shared_ptr<Store>& store = memory_store(), JoinOptions options = {}) {
  options.rank = Rank{0};
  options.size = 1;
  return Group::join(store, options);
}

void expect_everything_works(Group& group) {
  EXPECT_EQ(group.rank(), Rank{0});
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.id().size(), 32u);
  expect_usable(group);
  group.barrier();
  EXPECT_THAT(group.all_gather("alone"), ElementsAre("alone"));
  const SymmetricBuffer buffer = group.allocate(100'000);
  expect_shared(group, buffer);
  EXPECT_EQ(buffer.peer(Rank{0}), buffer.local());
  EXPECT_EQ(buffer.view().peers[0], buffer.local());
  group.synchronize({});
  EXPECT_NO_THROW(group.check());
}

TEST(OneRank, JoinsOverEveryStore) {
  const TempDir directory;
  const std::unique_ptr<TcpStoreServer> server = TcpStoreServer::start({});
  for (const std::shared_ptr<Store>& store :
       {memory_store(), file_store(directory.path()), tcp_store("127.0.0.1", server->port())}) {
    Group group = join_alone(store);
    expect_everything_works(group);
    // Leaves, and joins again over the same store.
    group.leave();
    Group another = join_alone(store);
    EXPECT_NE(another.id(), group.id());
    expect_usable(another);
  }
}

TEST(OneRank, JoinsFromTheEnvironmentAndLocally) {
  run_process_group(1, [](Group& started) {
    const TempDir directory;
    (void)::setenv("ONEHOP_RANK", "0", 1);
    (void)::setenv("ONEHOP_SIZE", "1", 1);
    (void)::setenv("ONEHOP_STORE", ("file:" + directory.path()).c_str(), 1);
    Group group = Group::from_env();
    expect_everything_works(group);
    expect_everything_works(started);
  });
  std::vector<Group> groups = Group::join_local({DeviceId::host});
  ASSERT_EQ(groups.size(), 1u);
  on_every_rank(groups, expect_everything_works);
}

TEST(OneRank, RefusesTheOptionsThatLargerGroupsRefuse) {
  const auto refusal = [](auto&& change) {
    JoinOptions options;
    change(options);
    return error_of([&] { (void)join_alone(memory_store(), options); }).message();
  };
  EXPECT_THAT(refusal([](JoinOptions& o) { o.scratch_bytes = 100; }), HasSubstr("scratch_bytes 100"));
  EXPECT_THAT(refusal([](JoinOptions& o) { o.timeout = milliseconds{-5}; }), HasSubstr("-5 ms"));
  EXPECT_THAT(refusal([](JoinOptions& o) { o.tuning = "/there/is/none.json"; }), HasSubstr("none.json"));
  for (const std::size_t scratch : {std::size_t{64} << 10, std::size_t{1} << 20}) {
    JoinOptions options;
    options.scratch_bytes = scratch;
    Group group = join_alone(memory_store(), options);
    expect_everything_works(group);
  }
}

TEST(OneRank, SplitMakesGroupsOfOne) {
  const auto body = [](Group& group) {
    // Rank 1 is alone, the others are together.
    std::optional<Group> part = group.split(group.rank() == Rank{1} ? 9 : 0);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->size(), group.rank() == Rank{1} ? 1 : 2);
    if (group.rank() == Rank{1}) expect_everything_works(*part);
    expect_usable(*part);
    std::optional<Group> own = group.split(group.rank().value);
    ASSERT_TRUE(own.has_value());
    expect_everything_works(*own);
    std::optional<Group> again = own->split(3);
    ASSERT_TRUE(again.has_value());
    own->leave();
    expect_everything_works(*again);
    EXPECT_FALSE(again->split(-1).has_value());
    expect_usable(group);
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

TEST(OneRank, SignalsItself) {
  Group group = join_alone();
  const SymmetricBuffer buffer = group.allocate(64);
  buffer.barrier(3);
  buffer.put_signal(Rank{0}, 3);
  buffer.put_signal(Rank{0}, 3);
  buffer.wait_signal(Rank{0}, 3);
  buffer.wait_signal(Rank{0}, 3);
  const Error error = error_of([&] { buffer.wait_signal(Rank{0}, 3, milliseconds{60}); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.message(), HasSubstr("rank 0 waited 60 ms for rank 0"));
  buffer.put_signal(Rank{0}, 3);
  buffer.wait_signal(Rank{0}, 3);
  EXPECT_EQ(error_of([&] { (void)buffer.peer(Rank{1}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { buffer.put_signal(Rank{1}); }).code(), ErrorCode::invalid_argument);
}

TEST(OneRank, HasPoolsAndPassesDescriptors) {
  Group group = join_alone();
  SymmetricPool pool(group.allocate(1 << 20));
  std::byte* const data = pool.allocate(1000);
  EXPECT_EQ(pool.offset_of(data), 0u);
  pool.free(data);
  EXPECT_THAT(group.channel().all_gather_fds(0), ElementsAre(0));
  EXPECT_EQ(group.channel().broadcast_fds(0, Rank{0}), 0);
  EXPECT_EQ(group.channel().broadcast_fds(-1, Rank{0}), -1);
  IpcChannel channel = IpcChannel::connect(memory_store(), "alone", Rank{0}, 1);
  EXPECT_THAT(channel.all_gather("x"), ElementsAre("x"));
  channel.barrier();
  EXPECT_EQ(error_of([&] { (void)group.register_buffer(data, 10); }).code(), ErrorCode::unsupported);
  expect_usable(group);
}

TEST(OneRank, MakesCallsInAGroupCallAndCountsThem) {
  Group group = join_alone();
  std::vector<int> a(1000);
  std::iota(a.begin(), a.end(), 1);
  std::vector<int> b(1000);
  std::vector<int> c(1000);
  std::vector<int> d(1000);
  GroupCall scope;
  (void)all_gather(group, a, b);
  (void)all_reduce(group, a, c, ReduceOp::premul_sum, {}, {.algorithm = {}, .timeout = {}, .factor = -3});
  (void)send(group, a, Rank{0});
  (void)recv(group, d, Rank{0});
  scope.end();
  EXPECT_EQ(b, a);
  EXPECT_EQ(d, a);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(c[i], -3 * a[i]);
  EXPECT_THAT(group.usage(), ElementsAre(0, 4, 0));
}

TEST(OneRank, ReachesItselfOutsideOfAGroupCallAsLittleAsInLargerGroups) {
  Group group = join_alone();
  std::vector<int> data(10);
  const Error error = error_of([&] { (void)send(group, data, Rank{0}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("only in a GroupCall"));
}

TEST(OneRank, EndsByAbortAndByLeaving) {
  Group aborted = join_alone();
  aborted.abort("enough");
  const Error error = error_of([&] { expect_usable(aborted); });
  EXPECT_EQ(error.code(), ErrorCode::aborted);
  EXPECT_EQ(error.message(), "rank 0 aborted the group: enough");
  EXPECT_EQ(error_of([&] { aborted.barrier(); }).message(), error.message());
  Group left = join_alone();
  left.leave();
  EXPECT_THAT(error_of([&] { expect_usable(left); }).message(), HasSubstr("has left the group"));
}

}  // namespace
}  // namespace onehop
