// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "onehop/error.h"

#include "memory/backend.h"

namespace onehop {
namespace {

TEST(HostBackend, AnImportSeesWhatTheOwnerWrites) {
  const auto backend = make_host_backend();
  Allocation mine = backend->create(100);
  EXPECT_EQ(mine.block->bytes(), backend->granularity());
  const auto theirs = backend->import(
      {.descriptor = os::UniqueFd(::fcntl(mine.handle.descriptor.get(), F_DUPFD_CLOEXEC, 0))}, 100);
  EXPECT_NE(theirs->data(), mine.block->data());
  EXPECT_EQ(theirs->data()[99], std::byte{0});
  mine.block->data()[99] = std::byte{7};
  EXPECT_EQ(theirs->data()[99], std::byte{7});
}

TEST(HostBackend, MemoryOutlivesItsHandleAndItsOwner) {
  const auto backend = make_host_backend();
  Allocation mine = backend->create(1);
  mine.block->data()[0] = std::byte{3};
  const auto theirs = backend->import(std::move(mine.handle), 1);
  mine.block.reset();
  EXPECT_EQ(theirs->data()[0], std::byte{3});
}

TEST(HostBackend, RefusesNothingAndTooMuchAndForeignSizes) {
  const auto backend = make_host_backend();
  EXPECT_THROW((void)backend->create(0), Error);
  EXPECT_THROW((void)backend->create(SIZE_MAX), Error);
  Allocation mine = backend->create(1);
  EXPECT_THROW((void)backend->import(std::move(mine.handle), backend->granularity() + 1), Error);
  EXPECT_THROW(
      (void)backend->import({.descriptor = os::UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))}, 1), Error);
}

}  // namespace
}  // namespace onehop
