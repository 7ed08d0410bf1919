// SPDX-License-Identifier: Apache-2.0
// 'onehop p2p-check' on whatever machine this is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace onehop::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(P2pCheck, WithoutAGpuSaysSoInOneLine) {
  CommandOptions options;
  options.environment = {{"CUDA_VISIBLE_DEVICES", ""}};  // hides them where there are some
  for (const char* argument : {"--quick", "--devices=0,1", "--json=-"}) {
    const Result result = run({"p2p-check", argument}, options);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(lines_of(result.err), SizeIs(1));
    EXPECT_THAT(result.err, AnyOf(HasSubstr("no GPU can be used: "), HasSubstr("built without CUDA")));
  }
}

}  // namespace
}  // namespace onehop::test
