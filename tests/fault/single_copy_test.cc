// SPDX-License-Identifier: Apache-2.0
// Promises A and E of docs/reliability.md when a rank reads a peer's private memory: the peer dies before or
// while it is read, or gives up and writes to it. The reader never succeeds with a wrong result.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "fault/world.h"
#include "group/host_rank.h"
#include "group/state.h"
#include "os/fault_point.h"
#include "os/process_memory.h"
#include "support/ranks.h"

namespace onehop::fault::single_copy_test {
namespace {

using std::chrono::seconds;
using testing::TempDir;

enum Event { kGivenUp };

constexpr std::size_t kCount = 1 << 20;  // several pieces of a message
constexpr DType kType = DType::i32;
constexpr Rank kOwner{0};
constexpr Rank kReader{1};

struct Case {
  const char* point;  ///< which the reader passes before it reads
  std::function<void(Group&, std::vector<std::int32_t>&, const CallOptions&)> call;
};

std::vector<Case> cases() {
  return {{"broadcast.data",
           [](Group& group, auto& data, const CallOptions& options) {
             (void)broadcast(group, data.data(), data.data(), kCount, kType, kOwner, {}, options);
           }},
          {"recv.data",
           [](Group& group, auto& data, const CallOptions& options) {
             if (group.rank() == kOwner) {
               (void)send(group, data.data(), kCount, kType, kReader, {}, options);
             } else {
               (void)recv(group, data.data(), kCount, kType, kOwner, {}, options);
             }
           }},
          {"recv.data#3",  // a part has been read
           [](Group& group, auto& data, const CallOptions& options) {
             if (group.rank() == kOwner) {
               (void)send(group, data.data(), kCount, kType, kReader, {}, options);
             } else {
               (void)recv(group, data.data(), kCount, kType, kOwner, {}, options);
             }
           }}};
}

World* g_world = nullptr;

void kill_owner() {
  const pid_t owner = g_world->pid(kOwner);
  (void)::kill(owner, SIGKILL);
  // Its memory goes before its sockets do. A part of this program that is never written is at the same address
  // in all ranks.
  std::byte byte{};
  while (os::read_process(owner, reinterpret_cast<std::uint64_t>(&kOwner), &byte, 1) == 0)
    std::this_thread::sleep_for(std::chrono::microseconds{100});
}
void await_owner() {
  (void)g_world->await(kGivenUp, 1, seconds{20});
}

/// The owner's call waits as long as `patience`. `before_reading` runs in the reader.
void run(World& world, Rank rank, const std::string& store, const Case& of, Duration patience,
         void (*before_reading)()) {
  Attempt& attempt = world.card(rank).attempts[0];
  attempt.run([&] {
    (void)::setenv("ONEHOP_SINGLE_COPY", "1", 1);  // even on one processor
    if (rank == kReader) {
      arm_fault(of.point, rank, "none", world.card(rank));
      g_world = &world;
      os::detail::g_before_fault = before_reading;
    }
    Group group = Group::join(file_store(store), {.rank = rank, .size = 2});
    world.card(rank).figures[0] = HostRank::of(group.state()).single_copy().works() ? 1 : 0;
    std::vector<std::int32_t> data(kCount, rank == kOwner ? 7 : 0);
    try {
      of.call(group, data, {.algorithm = {}, .timeout = rank == kOwner ? patience : kDefaultTimeout});
    } catch (const Error&) {
      std::fill(data.begin(), data.end(), 1000);  // the memory is the caller's again
      if (rank == kOwner) world.raise(kGivenUp);
      throw;
    }
    if (std::any_of(data.begin(), data.end(), [](std::int32_t x) { return x != 7; }))
      throw std::logic_error("the call succeeded with a wrong result");
  });
}

TEST(SingleCopy, OfARankThatDiedNamesIt) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.point);
    const TempDir store;
    World world(2, [&](World& inside, Rank rank) {
      run(inside, rank, store.path(), each, kDefaultTimeout, kill_owner);
    });
    ASSERT_TRUE(world.finish(seconds{60}));
    if (world.card(kReader).figures[0] == 0) GTEST_SKIP() << "single copies do not work here";
    EXPECT_EQ(world.exit_of(kOwner), -SIGKILL);
    const Attempt& attempt = world.card(kReader).attempts[0];
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
    EXPECT_EQ(attempt.error(), ErrorCode::peer_lost) << attempt.text();
    EXPECT_EQ(attempt.origin, kOwner.value) << attempt.text();
  }
}

TEST(SingleCopy, DoesNotSucceedWithWhatAPeerWroteAfterGivingUp) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.point);
    const TempDir store;
    World world(2, [&](World& inside, Rank rank) {
      run(inside, rank, store.path(), each, Duration{200}, await_owner);
    });
    ASSERT_TRUE(world.finish(seconds{60}));
    if (world.card(kReader).figures[0] == 0) GTEST_SKIP() << "single copies do not work here";
    for (const Rank r : {kOwner, kReader}) {
      const Attempt& attempt = world.card(r).attempts[0];
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value << ": " << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::timeout) << "rank " << r.value << ": " << attempt.text();
      EXPECT_EQ(attempt.origin, kReader.value) << "rank " << r.value << ": " << attempt.text();
    }
  }
}

}  // namespace
}  // namespace onehop::fault::single_copy_test
