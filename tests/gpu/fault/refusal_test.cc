// SPDX-License-Identifier: Apache-2.0
// Calls on GPUs with invalid arguments. If one rank refuses, the others wait in their kernels for a call that
// does not come, and must get the reason; the refusing rank's next call must not be paired with theirs. If
// all ranks refuse for the same reason, nothing has happened, and the group stays usable.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fault/world.h"
#include "gpu/on_gpus.h"

namespace onehop::fault::gpu_refusal_test {
namespace {

using std::chrono::seconds;
using testing::Gpu;
using testing::TempDir;

enum Event { kHeard };

constexpr std::size_t kCount = 3000;
constexpr double kMostDetectionMs = 250;

/// A rank, its memory, and its calls, which would all succeed.
struct Caller {
  Gpu gpu;
  std::uint32_t* in;
  std::uint32_t* out;

  explicit Caller(Rank rank)
      : gpu(testing::gpu_of(rank)),
        in(gpu.make<std::uint32_t>(kMaxDevices * kCount)),
        out(gpu.make<std::uint32_t>(kMaxDevices * kCount)) {}

  [[nodiscard]] Group join(const std::string& dir, std::size_t round, Rank rank, int n) const {
    JoinOptions options;
    options.name = fmt::format("round-{}", round);
    options.rank = rank;
    options.size = n;
    options.device = gpu.device();
    options.timeout = seconds{20};
    options.allow_overlapping_devices = testing::shared_gpus() > 0;
    return Group::join(file_store(dir), options);
  }
};

/// A valid call, which the odd rank changes.
struct Call {
  const void* in;
  void* out;
  std::size_t count = kCount;
  DType type = DType::u32;
  ReduceOp op = ReduceOp::sum;
  Rank root{0};
  CallOptions options{};
};

enum class Kind { all_reduce, all_gather, broadcast };

struct Refusal {
  const char* what;
  Kind kind;
  std::function<void(Call&, int n)> change;
};

std::vector<Refusal> refusals() {
  std::vector<Refusal> all;
  for (const Kind kind : {Kind::all_reduce, Kind::all_gather, Kind::broadcast}) {
    all.push_back({"no input", kind, [](Call& c, int) { c.in = nullptr, c.root = Rank{-2}; }});
    all.push_back({"no output", kind, [](Call& c, int) { c.out = nullptr; }});
    all.push_back({"an output that is not aligned", kind,
                   [](Call& c, int) { c.out = static_cast<std::byte*>(c.out) + 1; }});
    all.push_back({"an unknown type", kind, [](Call& c, int) { c.type = static_cast<DType>(77); }});
    all.push_back({"too large a count", kind, [](Call& c, int) { c.count = SIZE_MAX / 2; }});
    all.push_back({"a negative timeout", kind, [](Call& c, int) { c.options.timeout = Duration{-1}; }});
    all.push_back({"an unknown algorithm", kind,
                   [](Call& c, int) { c.options.algorithm = static_cast<Algorithm>(77); }});
    all.push_back({"a factor without use", kind, [](Call& c, int) { c.options.factor = 2; }});
  }
  all.push_back(
      {"an unknown reduction", Kind::all_reduce, [](Call& c, int) { c.op = static_cast<ReduceOp>(77); }});
  all.push_back({"a root that is no rank", Kind::broadcast, [](Call& c, int n) { c.root = Rank{n}; }});
  return all;
}

void make(Group& group, const Caller& caller, Kind kind, const Call& call) {
  const Stream stream = caller.gpu.stream();
  switch (kind) {
    case Kind::all_reduce:
      return (void)all_reduce(group, call.in, call.out, call.count, call.type, call.op, stream, call.options);
    case Kind::all_gather:
      return (void)all_gather(group, call.in, call.out, call.count, call.type, stream, call.options);
    case Kind::broadcast:
      // Only the root needs an input, so the rank whose input is invalid must be the root.
      return (void)broadcast(group, call.in, call.out, call.count, call.type,
                             call.root == Rank{-2} ? group.rank() : call.root, stream, call.options);
  }
}

class CudaRefusals : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string missing = testing::forked_gpus_unavailable(n());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  [[nodiscard]] static int n() { return GetParam(); }
};
std::string processes_name(const ::testing::TestParamInfo<int>& info) {
  return fmt::format("Processes{}", info.param);
}
INSTANTIATE_TEST_SUITE_P(, CudaRefusals, ::testing::Values(2, 3, 4), processes_name);

TEST_P(CudaRefusals, OfOneRankAreHeardByAllAndNoLaterCallTakesTheirPlace) {
  const std::vector<Refusal> all = refusals();
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Caller caller(rank);
    (void)caller.join(dir.path(), all.size(), rank, n());  // loads every kernel
    for (std::size_t round = 0; round < all.size(); ++round) {
      const Rank odd{static_cast<int>(round) % n()};
      Group group = caller.join(dir.path(), round, rank, n());
      group.barrier();
      Attempt& attempt = self.card(rank).attempts[round];
      Call call{.in = caller.in, .out = caller.out};
      if (rank == odd) {
        Attempt refused;
        refused.run([&] {
          all[round].change(call, n());
          make(group, caller, all[round].kind, call);
        });
        if (refused.state.load() != Attempt::failed || refused.error() != ErrorCode::invalid_argument ||
            refused.origin != odd.value) {
          throw std::logic_error(
              fmt::format("{} was not refused as it should be: {}", all[round].what, refused.text()));
        }
      }
      // The others' calls would be paired with the odd rank's next call.
      attempt.run([&] {
        for (int i = 0; i < 2; ++i) {
          make(group, caller, all[round].kind, {.in = caller.in, .out = caller.out});
          group.synchronize(caller.gpu.stream());
        }
        // The root of a broadcast waits for no rank: it gets the error within the interval of its watch.
        const auto end = std::chrono::steady_clock::now() + seconds{5};
        while (std::chrono::steady_clock::now() < end) {
          group.check();
          std::this_thread::yield();
        }
      });
      caller.gpu.synchronize_device();
      self.raise(kHeard);
      if (!self.await(kHeard, static_cast<std::uint32_t>(n() * static_cast<int>(round + 1)), seconds{30}))
        throw std::logic_error("not all ranks heard");
    }
  });
  ASSERT_TRUE(world.finish(seconds{55})) << "a process hung";
  for (Rank r{0}; r.value < n(); ++r.value) EXPECT_EQ(world.exit_of(r), 0) << "rank " << r.value;
  std::vector<double> delays;
  for (std::size_t round = 0; round < all.size(); ++round) {
    const int odd = static_cast<int>(round) % n();
    for (Rank r{0}; r.value < n(); ++r.value) {
      const Attempt& attempt = world.card(r).attempts[round];
      const std::string who =
          fmt::format("{} of rank {}, heard by rank {}: {}", all[round].what, odd, r.value, attempt.text());
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << who;
      EXPECT_EQ(attempt.error(), ErrorCode::invalid_argument) << who;
      EXPECT_EQ(attempt.origin, odd) << who;
      delays.push_back(attempt.call_ms());
    }
  }
  print_spread(fmt::format("{} ranks: refusal of one to Error on all", n()), Spread(delays));
  for (const double each : delays) EXPECT_LE(each, kMostDetectionMs + world.lateness_ms());
}

TEST_P(CudaRefusals, OfAllRanksForOneReasonLeaveTheGroupAsItWas) {
  const std::vector<Refusal> all = refusals();
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Caller caller(rank);
    Group group = caller.join(dir.path(), 0, rank, n());
    for (std::size_t i = 0; i < all.size(); ++i) {
      Attempt& attempt = self.card(rank).attempts[i];
      attempt.run([&] {
        Call call{.in = caller.in, .out = caller.out};
        all[i].change(call, n());
        if (call.root == Rank{-2}) call.root = Rank{0}, call.out = nullptr;  // only the root has an input
        make(group, caller, all[i].kind, call);
      });
      testing::expect_works(group, caller.gpu);
    }
    group.barrier();
  });
  ASSERT_TRUE(world.finish(seconds{55})) << "a process hung";
  for (Rank r{0}; r.value < n(); ++r.value) {
    EXPECT_EQ(world.exit_of(r), 0) << "rank " << r.value << ": the group did not stay usable";
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Attempt& attempt = world.card(r).attempts[i];
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << all[i].what << ": " << attempt.text();
      EXPECT_EQ(attempt.error(), ErrorCode::invalid_argument) << all[i].what << ": " << attempt.text();
    }
  }
}

// Each rank refuses for another reason, so no rank makes the call.
TEST_P(CudaRefusals, OfAllRanksForDifferentReasonsEndOnAll) {
  const TempDir dir;
  World world(n(), [&](World& self, Rank rank) {
    Caller caller(rank);
    Group group = caller.join(dir.path(), 0, rank, n());
    group.barrier();
    self.card(rank).attempts[0].run([&] {
      Call call{.in = caller.in, .out = caller.out};
      if (rank == Rank{0}) call.in = nullptr;
      if (rank != Rank{0}) call.type = static_cast<DType>(77);
      make(group, caller, Kind::all_reduce, call);
    });
    // The group need not work afterwards, but the call must end identically on all ranks.
    self.card(rank).attempts[1].run([&] { testing::expect_works(group, caller.gpu); });
    caller.gpu.synchronize_device();
    self.raise(kHeard);
    (void)self.await(kHeard, static_cast<std::uint32_t>(n()), seconds{30});
  });
  ASSERT_TRUE(world.finish(seconds{55})) << "a process hung";
  for (Rank r{0}; r.value < n(); ++r.value) {
    const auto& attempts = world.card(r).attempts;
    EXPECT_EQ(world.exit_of(r), 0) << "rank " << r.value;
    EXPECT_EQ(attempts[0].state.load(), Attempt::failed) << attempts[0].text();
    EXPECT_EQ(attempts[0].error(), ErrorCode::invalid_argument) << attempts[0].text();
    EXPECT_EQ(attempts[1].state.load(), world.card(Rank{0}).attempts[1].state.load()) << attempts[1].text();
    EXPECT_NE(attempts[1].state.load(), Attempt::broken) << attempts[1].text();
  }
}

}  // namespace
}  // namespace onehop::fault::gpu_refusal_test
