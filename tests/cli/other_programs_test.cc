// SPDX-License-Identifier: Apache-2.0
#include "bench/other_programs.h"

#include <gtest/gtest.h>

namespace onehop::cli {
namespace {

TEST(OtherPrograms, AreWhatIsBusyBesidesTheOwnThreads) {
  const OtherPrograms others;
  const double before = thread_seconds();
  double used = 0;
  while (used < 1.1) used = thread_seconds() - before;
  // This thread counts as another program unless it is named as our own. The kernel counts in ticks of 10 ms, and on a busy
  // machine this thread has only a part of a processor.
  const double without = others.processors(used);  // first: the kernel counts on meanwhile
  const double with_this = others.processors(0);
  if (with_this == 0) GTEST_SKIP() << "the kernel does not tell";
  EXPECT_GT(with_this, without);
  EXPECT_GE(without, 0);
}

TEST(OtherPrograms, AreNotCountedInAMoment) {
  EXPECT_EQ(OtherPrograms().processors(0), 0);
}

TEST(OtherPrograms, AreNamedIfTheyTakeHalfAProcessor) {
  EXPECT_EQ(describe_others(0.49), "");
  EXPECT_EQ(describe_others(0.5).rfind("other programs used 0.5 of ", 0), 0u) << describe_others(0.5);
}

}  // namespace
}  // namespace onehop::cli
