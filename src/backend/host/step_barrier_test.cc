// SPDX-License-Identifier: Apache-2.0
// Tests the orderings of docs/memory-model.md between threads. What was stored before a step or a chunk is
// visible to a thread that waited for it, and is not overwritten while it is read. On x86 weaker orderings
// would pass unnoticed; ThreadSanitizer, which follows the declared orderings, reports them there.
#include "backend/host/step_barrier.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "backend/host/point_to_point.h"

namespace onehop::host {
namespace {

constexpr Duration kLimit{60'000};
constexpr std::size_t kWords = 64;
using Words = std::array<std::uint64_t, kWords>;

/// Zeroed shared memory of each rank.
template <class T>
class Shared {
 public:
  explicit Shared(int ranks) : parts_(std::make_unique<T[]>(static_cast<std::size_t>(ranks))) {}
  [[nodiscard]] T& of(int rank) { return parts_[static_cast<std::size_t>(rank)]; }

 private:
  std::unique_ptr<T[]> parts_;
};

template <class Body>
void run_ranks(int ranks, Body&& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& each : threads) each.join();
}

void fill(std::byte* slot, std::uint64_t value) {
  Words words;
  words.fill(value);
  std::memcpy(slot, words.data(), sizeof words);
}

/// Number of words that differ from `value`.
int differing(const std::byte* slot, std::uint64_t value) {
  Words words;
  std::memcpy(words.data(), slot, sizeof words);
  int count = 0;
  for (const std::uint64_t each : words) count += each == value ? 0 : 1;
  return count;
}

TEST(StepBarrier, WhoWaitedForAStepReadsWhatWasStagedForIt) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kSteps = 300;
  struct Staging {
    alignas(64) std::array<std::byte, 2 * sizeof(Words)> bytes{};
  };
  for (const bool core_each : {false, true}) {  // yielding the core at once, and spinning first
    Shared<SegmentHeader> headers(kRanks);
    Shared<Staging> staging(kRanks);
    std::vector<StepBarrier::Member> members;
    for (int r = 0; r < kRanks; ++r)
      members.push_back({.header = &headers.of(r), .staging = staging.of(r).bytes.data()});
    std::atomic<int> wrong{0};
    std::atomic<int> late{0};
    run_ranks(kRanks, [&](int rank) {
      StepBarrier barrier(rank, members, sizeof(Staging), os::SpinPolicy::for_ranks(core_each));
      os::CallDeadline deadline(kLimit);
      (void)deadline.arm();
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        const std::size_t slot = barrier.next_step() % 2 * sizeof(Words);
        fill(barrier.staging(rank) + slot, step * kRanks + static_cast<std::uint64_t>(rank));
        const CallRecord call{.count = step};
        barrier.publish(&call);
        for (int r = 0; r < kRanks; ++r) {
          if (r == rank) continue;
          if (!barrier.wait(r, deadline, [] {})) {
            ++late;
            return;
          }
          wrong += differing(barrier.staging(r) + slot, step * kRanks + static_cast<std::uint64_t>(r));
          wrong += barrier.call(r).count == step ? 0 : 1;
        }
      }
    });
    EXPECT_EQ(late, 0);
    EXPECT_EQ(wrong, 0);
  }
}

/// Passes chunks from rank 0 to rank 1, or in both directions at once.
void pass_chunks(bool both_ways) {
  constexpr std::uint64_t kChunks = 500;
  constexpr std::size_t kScratch = 64 << 10;
  struct Area {
    alignas(128) std::array<std::byte, 64 << 10> bytes{};
  };
  ASSERT_LE(PointToPoint::area_bytes(2, kScratch), sizeof(Area));
  Shared<os::Doorbell> bells(2);
  Shared<Area> areas(2);
  std::vector<PointToPoint::Member> members;
  for (int r = 0; r < 2; ++r) members.push_back({.bell = &bells.of(r), .area = areas.of(r).bytes.data()});
  std::atomic<int> wrong{0};
  std::atomic<int> late{0};
  run_ranks(2, [&](int rank) {
    PointToPoint pairs(rank, members, kScratch);
    const int other = 1 - rank;
    const auto wait_until = [&](auto&& ready) {
      os::CallDeadline deadline(kLimit);
      const bool came = os::wait_on(bells.of(rank), {.tight = 1}, deadline, ready, [] {});
      late += came ? 0 : 1;
      return came;
    };
    std::array<std::byte, sizeof(Words)> chunk{};
    const auto message = [](std::uint64_t i) {
      return Message{.count = i, .dtype = static_cast<std::uint8_t>(i % 12)};
    };
    for (std::uint64_t i = 0; i < kChunks; ++i) {
      if (both_ways || rank == 0) {
        if (!wait_until([&] { return pairs.has_room(other); })) return;
        fill(chunk.data(), 2 * i + static_cast<std::uint64_t>(rank));
        pairs.put(other, message(i), chunk.data(), chunk.size());
      }
      if (both_ways || rank == 1) {
        if (!wait_until([&] { return pairs.has_chunk(other); })) return;
        wrong += pairs.message(other) == message(i) ? 0 : 1;
        pairs.take(other, chunk.data(), chunk.size());
        wrong += differing(chunk.data(), 2 * i + static_cast<std::uint64_t>(other));
      }
    }
  });
  EXPECT_EQ(late, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(PointToPoint, WhoSeesAChunkReadsItAndItsMessageAsTheyWereSent) {
  pass_chunks(true);
}

TEST(PointToPoint, ASlotIsNotWrittenBeforeItsChunkHasBeenRead) {
  pass_chunks(false);
}

}  // namespace
}  // namespace onehop::host
