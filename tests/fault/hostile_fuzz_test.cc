// SPDX-License-Identifier: Apache-2.0
// A member of a group that writes anything anywhere in the memory that the group shares, while all ranks make
// random calls. The others get errors, or wrong data. They do not crash or hang, and write nothing outside their
// buffers, as far as the address sanitizer sees it.
//
//   ONEHOP_HOSTILE_SEED=N    runs the rounds of that seed (default: a random one, which is printed)
//   ONEHOP_HOSTILE_ROUNDS=N  number of rounds (default: as many as take a few seconds)
//   ONEHOP_HOSTILE_ROUND=N   the first round
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fault/chaos_calls.h"
#include "fault/chaos_plan.h"
#include "fault/world.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop::fault::hostile_fuzz_test {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using testing::TempDir;

constexpr Duration kTimeout{kSanitized ? 1500 : 600};
constexpr int kCalls = 100;    ///< of a round
constexpr int kTogether = 25;  ///< rounds of the same processes
constexpr std::size_t kBytes = 64 << 10;

enum Event { kRoundEnded };
enum Figure { kRounds, kErrors, kWrong, kCompleted, kLongestMs };

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// All memory that this process shares with others through descriptors: every rank's, as every rank maps it.
class SharedMemory {
 public:
  SharedMemory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" rw-s ") == std::string::npos || line.find("/memfd:onehop") == std::string::npos)
        continue;
      char* end = nullptr;
      const auto first = static_cast<std::uintptr_t>(std::strtoull(line.c_str(), &end, 16));
      const auto last = static_cast<std::uintptr_t>(std::strtoull(end + 1, nullptr, 16));
      ranges_.push_back({reinterpret_cast<std::byte*>(first), last - first});
    }
    if (ranges_.empty()) throw std::logic_error("this process shares no memory");
  }

  /// Writes 1 to 8 bytes somewhere.
  void damage(Random& random) const {
    std::byte* const at = place(random);
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    switch (random.below(9)) {
      case 0:
        word = random.next();
        break;
      case 1:
        word = 0;
        break;
      case 2:
        word = ~std::uint64_t{0};
        break;
      case 3:
        word = random.below(17);
        break;
      case 4:
        word ^= std::uint64_t{1} << random.below(64);
        break;
      case 5:
        word += 1;
        break;
      case 6:
        word -= 1;
        break;
      case 7:
        word = (std::uint64_t{1} << random.below(64)) - random.below(2);
        break;
      case 8:
        std::memcpy(&word, place(random), 8);
        break;
    }
    std::memcpy(at, &word, std::size_t{1} << random.below(4));
  }

 private:
  struct Range {
    std::byte* data;
    std::size_t bytes;
  };
  /// Mostly where something is, and often near the beginning: what ranks tell each other fills only a small part.
  [[nodiscard]] std::byte* place(Random& random) const {
    const Range& range = ranges_[random.below(ranges_.size())];
    const std::size_t bytes = random.one_in(2) ? range.bytes : std::min<std::size_t>(range.bytes, 16 << 10);
    std::byte* at = range.data;
    for (int tries = random.one_in(8) ? 1 : 512; tries > 0; --tries) {
      at = range.data + random.below(bytes / 8) * 8;
      std::uint64_t word = 0;
      std::memcpy(&word, at, 8);
      if (word != 0) break;
    }
    return at;
  }

  std::vector<Range> ranges_;
};

/// Damages it until destroyed.
class Vandal {
 public:
  explicit Vandal(Random random)
      : thread_([this, random, shared = SharedMemory()]() mutable {
          const auto pace = microseconds{(1 << random.below(10)) - 1};
          while (!stop_) {
            shared.damage(random);
            pace.count() == 0 ? std::this_thread::yield() : std::this_thread::sleep_for(pace);
          }
        }) {}
  ~Vandal() {
    stop_ = true;
    thread_.join();
  }
  Vandal(const Vandal&) = delete;
  Vandal& operator=(const Vandal&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// One call of every rank. Throws std::logic_error if its result is wrong.
void call(Group& group, SymmetricBuffer& buffer, Random& together) {
  const int n = group.size();
  const Rank next{(group.rank().value + 1) % n};
  const Rank previous{(group.rank().value + n - 1) % n};
  const std::size_t kind = together.below(10);
  const std::size_t count = 1 + together.size_up_to(50'000);
  const int channel = static_cast<int>(together.below(4));
  if (kind < 5) {
    CheckedCollective collective(together, group);
    collective.call(group);
    collective.verify();
  } else if (kind == 5) {
    const std::vector<float> out(count, 1);
    std::vector<float> in(count);
    GroupCall scope;
    (void)send(group, out.data(), count, DType::f32, next);
    (void)recv(group, in.data(), count, DType::f32, previous);
    scope.end();
  } else if (kind == 6) {
    const Algorithm algorithm = together.one_in(2) ? Algorithm::one_shot : Algorithm::two_shot;
    const std::size_t most = std::min(count, kBytes / 8);
    auto* const data = reinterpret_cast<float*>(buffer.local());
    (void)all_reduce(group, data, data + kBytes / 8, most, DType::f32, ReduceOp::sum, {},
                     {.algorithm = algorithm, .timeout = {}});
  } else if (kind == 7) {
    buffer.put_signal(next, channel);
    buffer.wait_signal(previous, channel, kTimeout);
  } else if (kind == 8) {
    buffer.barrier(channel, kTimeout);
  } else {
    group.barrier();
  }
}

/// Keeps the longest time in milliseconds.
class Timer {
 public:
  explicit Timer(double& longest) : longest_(longest) {}
  ~Timer() { longest_ = std::max(longest_, static_cast<double>(now_ns() - begin_) / 1e6); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& longest_;
  const std::int64_t begin_ = now_ns();
};

/// What a rank does in one round. `hostile`: it damages shared memory meanwhile.
void take_part(const std::string& store, std::uint64_t seed, std::uint64_t round, Rank rank, int n,
               bool hostile, std::array<double, 8>& figures) {
  Random together(seed, round);
  ++figures[kRounds];
  try {
    JoinOptions options;
    options.name = fmt::format("round-{}", round);
    options.rank = rank;
    options.size = n;
    options.timeout = kTimeout;
    options.scratch_bytes = 64 << 10;
    Group group = Group::join(file_store(store), options);
    SymmetricBuffer buffer = group.allocate(kBytes);
    group.barrier();
    std::optional<Vandal> vandal;
    if (hostile) vandal.emplace(Random(seed, round, 1));
    for (int i = 0; i < kCalls; ++i) {
      Timer timer(figures[kLongestMs]);
      try {
        call(group, buffer, together);
      } catch (const std::logic_error&) {
        ++figures[kWrong];
      }
    }
    ++figures[kCompleted];
  } catch (const Error&) {
    ++figures[kErrors];
  }
}

TEST(HostileMember, ThatWritesAnythingAnywhereCrashesNoOther) {
#if ONEHOP_THREAD_SANITIZED
  GTEST_SKIP() << "what it does are data races";
#endif
  const std::uint64_t seed = number_from("ONEHOP_HOSTILE_SEED", std::random_device()());
  const std::uint64_t rounds = number_from("ONEHOP_HOSTILE_ROUNDS", 2 * kTogether);
  std::uint64_t round = number_from("ONEHOP_HOSTILE_ROUND", 0);
  const std::uint64_t end = round + rounds;
  std::array<double, 4> totals{};
  double longest_ms = 0;
  while (round < end && !HasFailure()) {
    const std::uint64_t begin = round;
    const auto many = static_cast<std::uint32_t>(std::min<std::uint64_t>(kTogether, end - round));
    const int n = 2 + static_cast<int>(Random(seed, begin, 2).below(2));
    const Rank hostile{static_cast<int>(Random(seed, begin, 3).below(static_cast<std::size_t>(n)))};
    const TempDir store;
    World world(n, [&](World& self, Rank rank) {
      for (std::uint32_t i = 0; i < many; ++i) {
        self.card(rank).attempts[0].run([&] {
          take_part(store.path(), seed, begin + i, rank, n, rank == hostile, self.card(rank).figures);
        });
        self.raise(kRoundEnded);
        // A hostile rank may have damaged what it relies on itself.
        if (!self.await(kRoundEnded, (i + 1) * static_cast<std::uint32_t>(n), seconds{10})) return;
      }
    });
    SCOPED_TRACE(
        fmt::format("ONEHOP_HOSTILE_SEED={} ONEHOP_HOSTILE_ROUND={} ONEHOP_HOSTILE_ROUNDS={}, {} ranks, rank "
                    "{} is hostile",
                    seed, begin, many, n, hostile.value));
    EXPECT_TRUE(world.finish(seconds{20 + 3 * many})) << "a rank hung";
    for (Rank r{0}; r.value < n; ++r.value) {
      if (r == hostile) continue;
      EXPECT_EQ(world.exit_of(r), 0) << "rank " << r.value << " crashed";
      EXPECT_EQ(world.card(r).attempts[0].state.load(), Attempt::succeeded)
          << world.card(r).attempts[0].text();
      for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += world.card(r).figures[i];
      longest_ms = std::max(longest_ms, world.card(r).figures[kLongestMs]);
    }
    round += many;
  }
  EXPECT_GT(totals[kRounds], 0);
  EXPECT_LE(longest_ms, static_cast<double>(kTimeout.count()) + 5000);
  // Unless hostile ranks ended at once.
  EXPECT_TRUE(totals[kRounds] < 20 || totals[kErrors] + totals[kWrong] > 0) << "nothing was damaged";
  fmt::print(
      "hostile member: seed {}, {} rounds; of {} of the others, {} ended with an error and {} made all "
      "calls; "
      "{} wrong results; the longest call took {:.0f} ms\n",
      seed, round - (end - rounds), totals[kRounds], totals[kErrors], totals[kCompleted], totals[kWrong],
      longest_ms);
}

}  // namespace
}  // namespace onehop::fault::hostile_fuzz_test
