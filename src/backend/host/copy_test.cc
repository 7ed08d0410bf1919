// SPDX-License-Identifier: Apache-2.0
#include "backend/host/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace onehop::host {
namespace {

constexpr unsigned char kGuard = 0xa5;

TEST(Copy, StreamingCopiesEveryByteAndNoOther) {
  for (const std::size_t bytes : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u, 4096u, 10007u}) {
    for (const std::size_t to : {0u, 1u, 16u, 31u, 63u}) {
      for (const std::size_t from : {0u, 1u, 8u}) {
        std::vector<unsigned char> src(from + bytes);
        for (std::size_t i = 0; i < bytes; ++i) src[from + i] = static_cast<unsigned char>(i * 7 + 1);
        std::vector<unsigned char> dst(64 + to + bytes + 64, kGuard);
        std::vector<unsigned char> expected = dst;
        std::copy(src.begin() + static_cast<std::ptrdiff_t>(from), src.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(64 + to));
        copy_streaming(dst.data() + 64 + to, src.data() + from, bytes);
        ASSERT_EQ(dst, expected) << bytes << " bytes to +" << to << " from +" << from;
      }
    }
  }
}

TEST(Copy, OntoItselfChangesNothing) {
  std::vector<unsigned char> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i);
  const std::vector<unsigned char> before = data;
  copy(data.data(), data.data(), data.size());
  copy_streaming(data.data(), data.data(), data.size());
  EXPECT_EQ(data, before);
}

TEST(Copy, NothingFromNowhereIsAllowed) {
  copy(nullptr, nullptr, 0);
  unsigned char byte = 7;
  copy(&byte, nullptr, 0);
  copy_streaming(&byte, nullptr, 0);
  EXPECT_EQ(byte, 7);
}

}  // namespace
}  // namespace onehop::host
