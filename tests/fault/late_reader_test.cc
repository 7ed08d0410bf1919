// SPDX-License-Identifier: Apache-2.0
// Promise E of docs/reliability.md in its hardest case: a rank reads a peer's symmetric memory after the
// peer's call has failed, when the memory belongs to its owner again.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stdexcept>
#include <vector>

#include "fault/world.h"
#include "os/fault_point.h"
#include "support/ranks.h"

namespace onehop::fault::late_reader_test {
namespace {

using testing::TempDir;

enum Event { kGivenUp };

constexpr std::size_t kCount = 64 << 10;  // floats: selects two-shot, which reads in place
constexpr Rank kImpatient{0};
constexpr Rank kLate{1};

World* g_world = nullptr;

void reduce(World& world, Rank rank, const std::string& store_path) {
  Attempt& attempt = world.card(rank).attempts[0];
  attempt.run([&] {
    // The late rank stops after it has seen its peer arrive, and before it reads the peer's input.
    if (rank == kLate) {
      arm_fault("all_reduce.data", rank, "none", world.card(rank));
      g_world = &world;
      os::detail::g_before_fault = [] { (void)g_world->await(kGivenUp, 1, std::chrono::seconds{20}); };
    }
    Group group = Group::join(file_store(store_path), {.rank = rank, .size = 2});
    const SymmetricBuffer in = group.allocate(kCount * sizeof(float));
    const std::span<float> mine(reinterpret_cast<float*>(in.local()), kCount);
    std::fill(mine.begin(), mine.end(), 1.0F);
    std::vector<float> out(kCount);
    try {
      (void)all_reduce(group, mine.data(), out.data(), kCount, DType::f32, ReduceOp::sum, {},
                       {.algorithm = Algorithm::two_shot,
                        .timeout = rank == kImpatient ? std::chrono::milliseconds{200} : kDefaultTimeout});
    } catch (const Error&) {
      std::fill(mine.begin(), mine.end(), 1000.0F);  // the memory is the caller's again
      world.raise(kGivenUp);
      throw;
    }
    if (std::any_of(out.begin(), out.end(), [](float x) { return x != 2.0F; }))
      throw std::logic_error("all_reduce succeeded with a wrong result");
  });
}

TEST(LateReader, DoesNotSucceedWithWhatAPeerWroteAfterGivingUp) {
  const TempDir store;
  World world(2, [&](World& inside, Rank rank) { reduce(inside, rank, store.path()); });
  ASSERT_TRUE(world.finish(std::chrono::seconds{60}));
  for (const Rank r : {kImpatient, kLate}) {
    const Attempt& attempt = world.card(r).attempts[0];
    EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value << ": " << attempt.text();
    EXPECT_EQ(attempt.error(), ErrorCode::timeout) << "rank " << r.value << ": " << attempt.text();
    EXPECT_EQ(attempt.origin, kLate.value) << "rank " << r.value << ": " << attempt.text();
  }
}

}  // namespace
}  // namespace onehop::fault::late_reader_test
