// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onehop/device_memory.h"
#include "onehop/error.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

IpcHandle example() {
  IpcHandle handle;
  handle.process.fill(0x11);
  handle.allocation = 0x2222;
  handle.address = 0x7f0000000000;
  handle.allocation_bytes = 4096;
  handle.offset = 1024;
  handle.bytes = 3072;
  handle.device.fill(0x33);
  handle.handle.fill(0x44);
  return handle;
}

std::string refusal(const std::string& bytes) {
  try {
    (void)IpcHandle::from_bytes(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::protocol);
    return error.message();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(IpcHandle, TravelsAsTheDocumentedBytes) {
  const std::string bytes = example().to_bytes();
  EXPECT_EQ(bytes.size(), 144U);
  EXPECT_EQ(bytes.substr(0, 9), std::string("OHIP\1\0\0\0\x11", 9));
  EXPECT_EQ(bytes.substr(24, 8), std::string("\x22\x22\0\0\0\0\0\0", 8));
  EXPECT_EQ(IpcHandle::from_bytes(bytes), example());
}

TEST(IpcHandle, EveryTruncationAndEveryExtraByteIsRefused) {
  const std::string bytes = example().to_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) (void)refusal(bytes.substr(0, size));
  EXPECT_THAT(refusal(bytes + '\0'), HasSubstr("at the end"));
}

TEST(IpcHandle, OtherFormatsAndVersionsAreNamed) {
  std::string bytes = example().to_bytes();
  bytes[4] = 2;
  EXPECT_THAT(refusal(bytes), HasSubstr("version 2, this onehop knows 1"));
  bytes[0] = 'X';
  EXPECT_THAT(refusal(bytes), HasSubstr("not one of onehop's"));
}

TEST(IpcHandle, ARangeOutsideItsAllocationIsRefused) {
  const auto changed = [](auto&& change) {
    IpcHandle handle = example();
    change(handle);
    return handle.to_bytes();
  };
  (void)refusal(changed([](IpcHandle& handle) { handle.bytes = 0; }));
  (void)refusal(changed([](IpcHandle& handle) { handle.bytes = 3073; }));
  (void)refusal(changed([](IpcHandle& handle) { handle.offset = 4097; }));
  EXPECT_THAT(refusal(changed([](IpcHandle& handle) {
                handle.offset = 4096;
                handle.bytes = UINT64_MAX - 4095;  // the sum is 0
              })),
              HasSubstr("not within an allocation of 4096 bytes"));
}

TEST(MemoryKind, HasAName) {
  EXPECT_EQ(to_string(MemoryKind::host), "host");
  EXPECT_EQ(to_string(MemoryKind::other), "other");
  EXPECT_EQ(to_string(static_cast<MemoryKind>(99)), "unknown");
}

}  // namespace
}  // namespace onehop
