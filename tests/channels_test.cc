// SPDX-License-Identifier: Apache-2.0
// The memory layout of channels (onehop/device/channel.h). Transfers through them are tested on GPUs:
// gpu/channels_test.cc.
#include <gtest/gtest.h>

#include <vector>

#include "onehop/device/channel.h"

namespace onehop::testing {
namespace {

DeviceView view_of(std::vector<std::byte>& first, std::vector<std::byte>& second) {
  DeviceView view;
  view.rank = 1;
  view.size = 2;
  view.bytes = first.size();
  view.peers[0] = first.data();
  view.peers[1] = second.data();
  return view;
}

TEST(Channels, LieWhereTheyFit) {
  std::vector<std::byte> first(10'000);
  std::vector<std::byte> second(10'000);
  const DeviceView view = view_of(first, second);
  constexpr std::size_t kNeeded = LLChannel::bytes(2, 100);
  const LLChannel channel = LLChannel::make(view, 10'000 - kNeeded, 100);  // 10'000 is a multiple of 16
  const ChannelSlots& slots = channel.slots;
  EXPECT_EQ(slots.words, 28u);  // rounded up to 16 bytes
  EXPECT_EQ(slots.slot_bytes, 224u);
  const std::byte* const inbox = slots.inbox;
  EXPECT_EQ(inbox + slots.parity_bytes + 2 * slots.slot_bytes, second.data() + 10'000)
      << "the last slot's end";
  EXPECT_EQ(slots.outbox[1], inbox + slots.slot_bytes) << "to itself";
  EXPECT_EQ(slots.outbox[0] - first.data(), slots.outbox[1] - second.data())
      << "the same offset on all ranks";
  EXPECT_EQ(LLChannel::bytes(2, 100) - LamportChannel::bytes(2, 100), 2u * 2 * 112);
}

TEST(Channels, AreRefusedWhereTheyDoNotFit) {
  std::vector<std::byte> first(10'000);
  std::vector<std::byte> second(10'000);
  const DeviceView view = view_of(first, second);
  constexpr std::size_t kNeeded = LamportChannel::bytes(2, 100);
  EXPECT_NO_THROW((void)LamportChannel::make(view, 10'000 - kNeeded, 100));
  EXPECT_THROW((void)LamportChannel::make(view, 10'000 - kNeeded + 16, 100), Error);
  EXPECT_THROW((void)LamportChannel::make(view, 8, 100), Error);
  EXPECT_THROW((void)LamportChannel::make(view, 20'000, 100), Error);
  EXPECT_THROW((void)LLChannel::make(view, 0, 10'000), Error);
}

}  // namespace
}  // namespace onehop::testing
