// SPDX-License-Identifier: Apache-2.0
#include "driver/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/driver_testing.h"

namespace onehop {
namespace {

TEST(Nvml, IsLookedForOnceAndSaysWhyItIsNotThere) {
  std::string why;
  const Nvml* const first = find_nvml(&why);
  EXPECT_EQ(first == nullptr, !why.empty());
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_EQ(find_nvml(), first);
}

TEST(Nvml, ATestCanReplaceItAndRestoreIt) {
  const Nvml* const real = find_nvml();
  const std::uint64_t before = driver_epoch();
  const FakeMachine machine;
  {
    const ScopedNvml scope(&machine.nvml);
    EXPECT_EQ(find_nvml(), &machine.nvml);
    EXPECT_NE(driver_epoch(), before);
  }
  {
    const ScopedNvml scope(nullptr, "NVML does not start: no driver");
    std::string why;
    EXPECT_EQ(find_nvml(&why), nullptr);
    EXPECT_EQ(why, "NVML does not start: no driver");
  }
  EXPECT_EQ(find_nvml(), real);
}

TEST(Nvml, ErrorsHaveATextAndANumber) {
  const FakeMachine machine;
  EXPECT_EQ(nvml_error_text(machine.nvml, kNvmlNotSupported), "some text (NVML error 3)");
  EXPECT_EQ(nvml_error_text(Nvml{}, kNvmlUnknown), "no text (NVML error 999)");
}

}  // namespace
}  // namespace onehop
