// SPDX-License-Identifier: Apache-2.0
#include "os/untrusted.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace onehop::os {
namespace {

struct Record {
  std::uint64_t first = 0;
  std::uint8_t small[6] = {};
  std::int16_t last = 0;
  std::uint64_t again = 0;
};

TEST(Untrusted, KeepsValuesOfAnySize) {
  Untrusted<Record> record;
  EXPECT_EQ(record.read().first + record.read().again, 0u) << "zero memory is the value of zero bytes";
  record.write({.first = 1, .small = {2, 3, 4, 5, 6, 7}, .last = -8, .again = 9});
  const Record read = record.read();
  EXPECT_EQ(read.first, 1u);
  EXPECT_EQ(read.small[5], 7);
  EXPECT_EQ(read.last, -8);
  EXPECT_EQ(read.again, 9u);
  Untrusted<std::uint8_t> byte;
  byte.write(200);
  EXPECT_EQ(byte.read(), 200);
  static_assert(sizeof record == sizeof(Record) && sizeof byte == 1);
}

TEST(Untrusted, ComparesTheBitsOfAMask) {
  using Words = Untrusted<Record>::Words;
  Untrusted<Record> record;
  const Record value{.first = 0x10, .small = {1, 2, 3, 4, 5, 6}, .last = 7, .again = 8};
  record.write(value);
  EXPECT_TRUE((record.equals<Words{~0ull, ~0ull, ~0ull}>(value)));
  Record other = value;
  other.first ^= 0x2;
  EXPECT_FALSE((record.equals<Words{~0ull, 0, 0}>(other)));
  EXPECT_TRUE((record.equals<Words{~2ull, ~0ull, ~0ull}>(other)));
  other = value;
  other.again = 0;
  EXPECT_TRUE((record.equals<Words{~0ull, ~0ull, 0}>(other)));
  EXPECT_FALSE((record.equals<Words{0, 0, 8}>(other)));
}

TEST(Untrusted, ACopyStaysAsItWasReadWhateverAnotherWrites) {
  Untrusted<Record> record;
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    auto* const word = reinterpret_cast<std::atomic<std::uint64_t>*>(&record);
    for (std::uint64_t i = 0; !ended; i = (i + 1) % 256) word->store(i * 0x0101010101010101);
  });
  for (int i = 0; i < 20'000; ++i) {
    const Record copy = record.read();
    // Words are whole: all bytes of the first one are equal.
    const std::uint64_t seen = copy.first;
    EXPECT_EQ(seen % 0x0101010101010101, 0u);
    std::this_thread::yield();
    EXPECT_EQ(copy.first, seen);
  }
  ended = true;
  writer.join();
}

}  // namespace
}  // namespace onehop::os
