// SPDX-License-Identifier: Apache-2.0
// How host ranks cut messages, and where the chunks lie in their staging areas.
#include "backend/host/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "backend/selector_testing.h"

namespace onehop::choices {
namespace {

using ::testing::SizeIs;

TEST(HostChunk, FitsTheStagingAreaAndEveryElementSize) {
  for (const std::size_t staging :
       {64 * kKiB, 65 * kKiB + 1, 100 * kKiB + 63, kMiB, 10 * kMiB, std::uint64_t{1} << 34}) {
    const host::StagingLayout layout(staging);
    for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
      std::vector<std::optional<std::size_t>> chosen_chunks{std::nullopt};
      for (const auto& choice :
           candidate_choices(Backend::host, all_reduce, ranks, TypeClass::any, Buffers::any)) {
        if (choice) chosen_chunks.push_back(choice->chunk);
      }
      ASSERT_THAT(chosen_chunks, SizeIs(9));
      for (const Algorithm kind : kKinds) {
        for (const std::optional<std::size_t>& wanted : chosen_chunks) {
          const std::size_t chunk = host::chunk_of(kind, wanted, staging, ranks);
          ASSERT_TRUE(chunk > 0 && chunk % 64 == 0) << chunk;
          ASSERT_LE(chunk, wanted.value_or(chunk));
          const std::size_t part = host::Part(chunk, ranks, 0).bytes;
          for (const std::uint64_t step : {0, 1, 2, 3, 30, 31, 32, 33, 126, 127, 255}) {
            const std::uint64_t odd = step % 2;
            const std::size_t input = layout.input_offset(step, chunk);
            ASSERT_GE(input, odd * layout.input_bytes);
            ASSERT_LE(input + chunk, (odd + 1) * layout.input_bytes);
            if (kind == Algorithm::one_shot) continue;
            const std::size_t result = layout.result_offset(step, part) - 2 * layout.input_bytes;
            ASSERT_GE(result, odd * layout.result_bytes);
            ASSERT_LE(result + part, (odd + 1) * layout.result_bytes);
          }
          ASSERT_LE(2 * (layout.input_bytes + layout.result_bytes), staging);
        }
      }
    }
  }
}

TEST(HostStaging, SlotsOfAParityFollowEachOtherThroughTheRotation) {
  const host::StagingLayout layout(10 * kMiB);
  constexpr std::uint64_t kSlots = host::kRotation / (64 * kKiB);
  std::set<std::size_t> places;
  for (std::uint64_t i = 0; i < kSlots; ++i) places.insert(layout.input_offset(2 * i, 60 * kKiB));
  EXPECT_THAT(places, SizeIs(kSlots));
  EXPECT_EQ(*places.rbegin() - *places.begin(), host::kRotation - 64 * kKiB);
  EXPECT_EQ(layout.input_offset(2 * kSlots, 60 * kKiB), layout.input_offset(0, 60 * kKiB));
}

TEST(HostChunk, IsTheChosenOneWhereItFits) {
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, {}, 10 * kMiB, 2), 128 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::two_shot, {}, 10 * kMiB, 2), 256 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, 512 * kKiB, 10 * kMiB, 2), 512 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::two_shot, 64 * kKiB, 10 * kMiB, 2), 64 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, 512 * kKiB, 64 * kKiB, 2), 24 * kKiB);
}

TEST(HostPart, CoversTheChunkInWholeLinesInRankOrder) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    for (std::size_t bytes = 0; bytes < 10000; bytes += bytes < 300 ? 1 : 97) {
      std::size_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const host::Part part(bytes, ranks, r);
        ASSERT_EQ(part.offset, next);
        ASSERT_TRUE(part.offset % 64 == 0 || part.bytes == 0);
        next += part.bytes;
      }
      ASSERT_EQ(next, bytes);
    }
  }
}

}  // namespace
}  // namespace onehop::choices
