// SPDX-License-Identifier: Apache-2.0
// Promise A: every blocking call ends within its deadline + 100 ms. In each kind of wait, a rank waits many
// times for another one that never does its part; every overshoot is measured. A rank that leaves properly is
// missed at once, and not only at the deadline.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault::deadlines_test {
namespace {

using std::chrono::seconds;
using testing::TempDir;

constexpr Duration kTimeout{60};

/// What calls move: made before a call is timed, since filling megabytes takes a sanitizer tens of milliseconds.
struct Data {
  std::vector<float> in = std::vector<float>(kMany, 1);
  std::vector<float> out = std::vector<float>(kMany);

  static constexpr std::size_t kMany = 1'000'000;  // 4 MB
};

struct Wait {
  const char* name;
  std::function<void(Group&, SymmetricBuffer&, Data&)> call;  ///< only rank 0 makes it
};

std::vector<Wait> waits() {
  const CallOptions options{.algorithm = {}, .timeout = kTimeout};
  const auto all_reduce_of = [options](std::size_t count) {
    return [=](Group& group, SymmetricBuffer&, Data& data) {
      all_reduce(group, std::span(data.in).first(count), ReduceOp::sum, {}, options);
    };
  };
  return {
      {"Group::barrier", [](Group& group, SymmetricBuffer&, Data&) { group.barrier(kTimeout); }},
      {"SymmetricBuffer::barrier",
       [](Group&, SymmetricBuffer& buffer, Data&) { buffer.barrier(0, kTimeout); }},
      {"wait_signal",
       [](Group&, SymmetricBuffer& buffer, Data&) { buffer.wait_signal(Rank{1}, 0, kTimeout); }},
      {"all_reduce of 4 KB", all_reduce_of(1000)},
      {"all_reduce of 4 MB", all_reduce_of(Data::kMany)},
      {"recv", [=](Group& group, SymmetricBuffer&,
                   Data& data) { (void)recv(group, data.out.data(), 1, DType::f32, Rank{1}, {}, options); }},
      {"send of 4 MB",
       [=](Group& group, SymmetricBuffer&, Data& data) {
         (void)send(group, data.in.data(), data.in.size(), DType::f32, Rank{1}, {}, options);
       }},
      {"send and recv of 4 MB in a GroupCall",
       [=](Group& group, SymmetricBuffer&, Data& data) {
         GroupCall scope;
         (void)send(group, data.in.data(), data.in.size(), DType::f32, Rank{1}, {}, options);
         (void)recv(group, data.out.data(), data.out.size(), DType::f32, Rank{1}, {}, options);
         scope.end();
       }},
      {"recv_fd",
       [](Group& group, SymmetricBuffer&, Data&) { (void)group.channel().recv_fd(Rank{1}, kTimeout); }},
      {"all_gather_fds",
       [](Group& group, SymmetricBuffer&, Data&) { (void)group.channel().all_gather_fds(0, kTimeout); }},
      {"broadcast_fds", [](Group& group, SymmetricBuffer&,
                           Data&) { (void)group.channel().broadcast_fds(-1, Rank{1}, kTimeout); }},
      {"channel all_gather",
       [](Group& group, SymmetricBuffer&, Data&) { (void)group.channel().all_gather("x", kTimeout); }},
      {"send_fd to a rank that does not read",
       [](Group& group, SymmetricBuffer&, Data&) {
         while (true) group.channel().send_fd(Rank{1}, 0, kTimeout);
       }},
  };
}

TEST(Deadlines, NoCallOutlastsItsDeadlineBy100Milliseconds) {
  const std::vector<Wait> kinds = waits();
  const int repeats = kSanitized ? 2 : 5;
  std::vector<double> overshoots;
  double lateness = 0;
  for (const Wait& wait : kinds) {
    SCOPED_TRACE(wait.name);
    std::vector<double> own;
    for (int i = 0; i < repeats; ++i) {
      const TempDir dir;
      World world(2, [&](World& self, Rank rank) {
        Group group =
            Group::join(file_store(dir.path()), {.rank = rank, .size = 2, .scratch_bytes = 1 << 20});
        SymmetricBuffer buffer = group.allocate(4096);
        Attempt& attempt = self.card(rank).attempts[0];
        if (rank.value == 0) {
          attempt.run([&] {
            Data data;
            attempt.begin_call();
            wait.call(group, buffer, data);
          });
          self.raise(0);
        }
        if (!self.await(0, 1, seconds{20})) throw std::logic_error("the waiting rank never ended");
      });
      ASSERT_TRUE(world.finish(seconds{30}));
      const Attempt& attempt = world.card(Rank{0}).attempts[0];
      ASSERT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
      EXPECT_EQ(attempt.origin, 1) << attempt.text();
      // Sends succeed until the socket is full; only the last one waited.
      if (std::string_view(wait.name).starts_with("send_fd")) continue;
      own.push_back(attempt.call_ms() - static_cast<double>(kTimeout.count()));
      EXPECT_GE(own.back(), -1) << "gave up early";
      EXPECT_LE(own.back(), 100 + world.lateness_ms());
      lateness = std::max(lateness, world.lateness_ms());
    }
    overshoots.insert(overshoots.end(), own.begin(), own.end());
    if (!own.empty()) print_spread(fmt::format("  {}, overshoot", wait.name), Spread(own));
  }
  print_spread("promise A, a rank that does not come: overshoot of a 60 ms deadline, all calls",
               Spread(overshoots));
  fmt::print("the machine was at most {:.1f} ms late\n", lateness);
}

TEST(Deadlines, JoiningAndStoresKeepTheirs) {
  std::vector<double> overshoots;
  double lateness = 0;
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> kinds = {
      {"join without rank 1",
       [](const std::string& dir) {
         (void)Group::join(file_store(dir), {.rank = Rank{0}, .size = 2, .timeout = kTimeout});
       }},
      {"join without rank 0",
       [](const std::string& dir) {
         (void)Group::join(file_store(dir), {.rank = Rank{1}, .size = 2, .timeout = kTimeout});
       }},
      {"channel without rank 1",
       [](const std::string& dir) { (void)IpcChannel::connect(file_store(dir), "c", Rank{0}, 2, kTimeout); }},
      {"file store get", [](const std::string& dir) { (void)file_store(dir)->get("k", kTimeout); }},
      {"memory store get", [](const std::string&) { (void)memory_store()->get("k", kTimeout); }},
  };
  for (const auto& [name, call] : kinds) {
    SCOPED_TRACE(name);
    std::vector<double> own;
    for (int i = 0; i < (kSanitized ? 2 : 5); ++i) {
      const TempDir dir;
      World world(1, [&, &body = call](World& self, Rank rank) {
        self.card(rank).attempts[0].run([&] { body(dir.path()); });
      });
      ASSERT_TRUE(world.finish(seconds{20}));
      const Attempt& attempt = world.card(Rank{0}).attempts[0];
      ASSERT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
      own.push_back(attempt.call_ms() - static_cast<double>(kTimeout.count()));
      EXPECT_LE(own.back(), 100 + world.lateness_ms()) << attempt.text();
      lateness = std::max(lateness, world.lateness_ms());
    }
    overshoots.insert(overshoots.end(), own.begin(), own.end());
    print_spread(fmt::format("  {}, overshoot", name), Spread(own));
  }
  print_spread("promise A, joining and stores: overshoot of a 60 ms deadline", Spread(overshoots));
  fmt::print("the machine was at most {:.1f} ms late\n", lateness);
}

// The steps of joining share one deadline. Rank 2 joins 200 ms late, and rank 1 stops after that, before it
// allocates.
TEST(Deadlines, JoiningHasOneDeadlineForAllItsSteps) {
  const TempDir dir;
  constexpr Duration kJoin{2000};
  World world(3, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    if (rank.value == 1) arm_fault("allocate", rank, "stop", card);
    if (rank.value == 2) arm_fault("announce", rank, "delay", card);
    card.attempts[0].run([&] {
      (void)Group::join(file_store(dir.path()),
                        {.rank = rank, .size = 3, .timeout = kJoin, .scratch_bytes = 1 << 20});
    });
    self.raise(0);
  });
  ASSERT_TRUE(world.await(0, 2, seconds{20}));
  ASSERT_EQ(::kill(world.pid(Rank{1}), SIGKILL), 0);
  ASSERT_TRUE(world.finish(seconds{20}));
  for (const Rank r : {Rank{0}, Rank{2}}) {
    const Attempt& attempt = world.card(r).attempts[0];
    EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
    EXPECT_EQ(attempt.origin, 1) << attempt.text();
    EXPECT_LE(attempt.call_ms(), static_cast<double>(kJoin.count()) + 100 + world.lateness_ms())
        << attempt.text();
  }
}

TEST(Deadlines, ARankThatLeavesIsMissedAtOnce) {
  const std::vector<Wait> kinds = {
      {"Group::barrier", [](Group& group, SymmetricBuffer&, Data&) { group.barrier(); }},
      {"SymmetricBuffer::barrier",
       [](Group&, SymmetricBuffer& buffer, Data&) { buffer.barrier(0, seconds{30}); }},
      {"wait_signal",
       [](Group&, SymmetricBuffer& buffer, Data&) { buffer.wait_signal(Rank{1}, 0, seconds{30}); }},
      {"all_reduce",
       [](Group& group, SymmetricBuffer&, Data& data) { all_reduce(group, std::span(data.in)); }},
      {"recv", [](Group& group, SymmetricBuffer&,
                  Data& data) { (void)recv(group, data.out.data(), 1, DType::f32, Rank{1}); }},
      {"send of 4 MB",
       [](Group& group, SymmetricBuffer&, Data& data) {
         (void)send(group, data.in.data(), data.in.size(), DType::f32, Rank{1});
       }},
      {"all_gather", [](Group& group, SymmetricBuffer&, Data&) { (void)group.all_gather("x"); }},
      {"allocate", [](Group& group, SymmetricBuffer&, Data&) { (void)group.allocate(1); }},
  };
  std::vector<double> detections;
  for (const Wait& wait : kinds) {
    SCOPED_TRACE(wait.name);
    const TempDir dir;
    World world(2, [&](World& self, Rank rank) {
      Group group = Group::join(file_store(dir.path()), {.rank = rank, .size = 2, .scratch_bytes = 1 << 20});
      SymmetricBuffer buffer = group.allocate(4096);
      Data data;
      group.barrier();
      if (rank.value == 0) {
        self.card(rank).attempts[0].run([&] { wait.call(group, buffer, data); });
      } else {
        self.card(rank).attempts[0].run([&] {
          self.card(rank).struck_ns.store(now_ns());
          group.leave();
        });
      }
    });
    ASSERT_TRUE(world.finish(seconds{40}));
    const Attempt& attempt = world.card(Rank{0}).attempts[0];
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
    EXPECT_EQ(attempt.error(), ErrorCode::peer_lost) << attempt.text();
    EXPECT_EQ(attempt.origin, 1) << attempt.text();
    const std::int64_t both = std::max(attempt.call_began_ns, world.card(Rank{1}).struck_ns.load());
    detections.push_back(static_cast<double>(attempt.ended_ns - both) / 1e6);
    EXPECT_LE(detections.back(), 250 + world.lateness_ms()) << attempt.text();
  }
  print_spread("promise B, a rank that leaves: goodbye to Error", Spread(detections));
}

}  // namespace
}  // namespace onehop::fault::deadlines_test
