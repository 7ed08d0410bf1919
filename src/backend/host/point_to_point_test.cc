// SPDX-License-Identifier: Apache-2.0
#include "backend/host/point_to_point.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace onehop::host {
namespace {

/// The memory of all ranks, and each rank's PointToPoint.
class World {
 public:
  World(int ranks, std::size_t scratch_bytes) : bells_(static_cast<std::size_t>(ranks)) {
    const std::size_t bytes = PointToPoint::area_bytes(ranks, scratch_bytes);
    for (os::Doorbell& bell : bells_) {
      areas_.emplace_back(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{128})));
      std::memset(areas_.back().get(), 0, bytes);
      members_.push_back({.bell = &bell, .area = areas_.back().get()});
    }
    for (int r = 0; r < ranks; ++r) pairs_.emplace_back(r, members_, scratch_bytes);
  }
  [[nodiscard]] PointToPoint& rank(int r) { return pairs_[static_cast<std::size_t>(r)]; }

 private:
  struct Free {
    void operator()(std::byte* area) const { ::operator delete (area, std::align_val_t{128}); }
  };
  std::vector<os::Doorbell> bells_;
  std::vector<std::unique_ptr<std::byte, Free>> areas_;
  std::vector<PointToPoint::Member> members_;
  std::vector<PointToPoint> pairs_;
};

void put(PointToPoint& from, int to, const std::string& text, const Message& message = {}) {
  from.put(to, message, reinterpret_cast<const std::byte*>(text.data()), text.size());
}
std::string take(PointToPoint& at, int from, std::size_t bytes) {
  std::string text(bytes, '?');
  at.take(from, reinterpret_cast<std::byte*>(text.data()), bytes);
  return text;
}

TEST(PointToPoint, ChunksArriveInOrderWithTheMessageThatTheyArePartOf) {
  World world(2, 64 << 10);
  EXPECT_FALSE(world.rank(1).has_chunk(0));
  put(world.rank(0), 1, "first", {.count = 5, .dtype = 7});
  put(world.rank(0), 1, "second", {.count = 6, .dtype = 2});
  ASSERT_TRUE(world.rank(1).has_chunk(0));
  EXPECT_EQ(world.rank(1).message(0), (Message{.count = 5, .dtype = 7}));
  EXPECT_EQ(take(world.rank(1), 0, 5), "first");
  ASSERT_TRUE(world.rank(1).has_chunk(0));
  EXPECT_EQ(world.rank(1).message(0), (Message{.count = 6, .dtype = 2}));
  EXPECT_EQ(take(world.rank(1), 0, 6), "second");
  EXPECT_FALSE(world.rank(1).has_chunk(0));
  EXPECT_FALSE(world.rank(0).has_chunk(1));
}

TEST(PointToPoint, ASlotIsFreeAgainWhenItsChunkWasTaken) {
  World world(3, 64 << 10);
  for (std::size_t i = 0; i < PointToPoint::kSlots; ++i) {
    ASSERT_TRUE(world.rank(2).has_room(0));
    put(world.rank(2), 0, std::to_string(i));
  }
  EXPECT_FALSE(world.rank(2).has_room(0));
  EXPECT_TRUE(world.rank(2).has_room(1)) << "pairs do not know of each other";
  for (std::size_t i = 0; i < 5 * PointToPoint::kSlots; ++i) {
    ASSERT_TRUE(world.rank(0).has_chunk(2));
    EXPECT_EQ(take(world.rank(0), 2, 1), std::to_string(i % 10));
    ASSERT_TRUE(world.rank(2).has_room(0));
    put(world.rank(2), 0, std::to_string((i + PointToPoint::kSlots) % 10));
    EXPECT_FALSE(world.rank(2).has_room(0));
  }
}

TEST(PointToPoint, RingsOfAllPairsAreApartInAnyNumberOfRanks) {
  for (const int ranks : {2, 3, 8, 64}) {
    for (const std::size_t scratch : {std::size_t{64} << 10, std::size_t{10} << 20}) {
      World world(ranks, scratch);
      const std::size_t bytes = world.rank(0).slot_bytes();
      const auto letter = [&](int from, int to, std::size_t i) {
        return std::string(bytes, static_cast<char>(from * 31 + to * 7 + static_cast<int>(i)));
      };
      // Only neighbors, because all pairs would take long: their rings are adjacent.
      const auto each = [&](auto&& body) {
        for (int from = 0; from < ranks; ++from) {
          for (int to = 0; to < ranks; ++to) {
            if (from != to && (ranks <= 8 || from % 21 == 0)) body(from, to);
          }
        }
      };
      for (std::size_t i = 0; i < PointToPoint::kSlots; ++i)
        each([&](int from, int to) { put(world.rank(from), to, letter(from, to, i)); });
      for (std::size_t i = 0; i < PointToPoint::kSlots; ++i) {
        each([&](int from, int to) { ASSERT_EQ(take(world.rank(to), from, bytes), letter(from, to, i)); });
      }
    }
  }
}

TEST(PointToPoint, SlotsOfARankTakeAQuarterOfItsScratchMemoryAndAreWorthTheirCounting) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    for (const std::size_t scratch :
         {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{10} << 20, std::size_t{1} << 30}) {
      const std::size_t slot = PointToPoint::slot_bytes(ranks, scratch);
      const std::size_t all = slot * PointToPoint::kSlots * static_cast<std::size_t>(ranks - 1);
      EXPECT_EQ(slot % 64, 0U);
      EXPECT_GE(slot, 1U << 10);
      EXPECT_LE(slot, 64U << 10);
      EXPECT_TRUE(slot == 1 << 10 || all <= scratch / 4) << ranks << " ranks, " << scratch;
    }
  }
}

}  // namespace
}  // namespace onehop::host
