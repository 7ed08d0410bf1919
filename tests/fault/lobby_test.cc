// SPDX-License-Identifier: Apache-2.0
// A process of the same user floods the listening sockets of ranks that join. It delays no rank, and no rank
// is declared dead.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "fault/world.h"
#include "group/connect_mesh.h"
#include "os/random.h"
#include "os/socket.h"
#include "support/ranks.h"

namespace onehop::fault::lobby_test {
namespace {

using std::chrono::seconds;
using testing::TempDir;

constexpr int kRanks = 4;
constexpr int kFlooders = 2;
constexpr int kRounds = kSanitized ? 5 : 20;

/// Connects to every rank repeatedly without sending anything, until the ranks are done.
void flood(World& world, const std::vector<std::string>& paths) {
  std::deque<os::UniqueFd> open;
  int attempts = 0;
  while (!world.await(0, kRanks, Duration{0})) {
    for (const std::string& path : paths) {
      os::UniqueFd socket;
      if (os::try_connect_unix(path, socket) == os::ConnectStatus::connected)
        open.push_back(std::move(socket));
    }
    while (open.size() > 512) open.pop_front();
    if (++attempts == 1000) world.raise(1);
  }
}

TEST(Lobby, AFloodOfSilentConnectionsKeepsNoRankFromJoining) {
  const TempDir base;
  std::vector<std::string> paths;
  std::vector<os::UniqueFd> listeners;
  for (int r = 0; r < kRanks; ++r) {
    paths.push_back(base.path() + "/" + std::to_string(r));
    listeners.push_back(os::listen_unix(paths.back()));
  }
  std::array<os::Id, kRounds> ids;
  for (os::Id& id : ids) id = os::random_id();
  World world(kRanks + kFlooders, [&](World& self, Rank rank) {
    if (rank.value >= kRanks) {
      flood(self, paths);
      return;
    }
    const int listener = listeners[static_cast<std::size_t>(rank.value)].get();
    if (!self.await(1, kFlooders, seconds{20})) return;
    self.card(rank).attempts[0].run([&] {
      for (const os::Id& id : ids) {
        const Deadline deadline = Deadline::after(seconds{10});
        const MeshPlan plan{.id = id, .rank = rank, .paths = paths, .listener = listener};
        const auto mesh = connect_mesh(plan, deadline);
        (void)mesh->all_gather("", deadline, "test");
        (void)mesh->all_gather("", deadline, "test");  // no rank leaves before all have seen that
      }
    });
    self.raise(0);
  });
  ASSERT_TRUE(world.finish(seconds{60}));
  for (Rank r{0}; r.value < kRanks; ++r.value) {
    const Attempt& attempt = world.card(r).attempts[0];
    EXPECT_EQ(attempt.state.load(), Attempt::succeeded) << "rank " << r.value << ": " << attempt.text();
  }
  fmt::print("{} joins of {} ranks under a flood: {:.0f} ms\n", kRounds, kRanks,
             world.card(Rank{0}).attempts[0].call_ms());
}

}  // namespace
}  // namespace onehop::fault::lobby_test
