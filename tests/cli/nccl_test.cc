// Finding NCCL: what can be tried where there is none. One process per case (ctest), since it is looked for
// once.
#include "bench/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "onehop/error.h"

namespace onehop::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FindNccl, RefusesToLoadItWhileMulticastIsAllowed) {
  ::setenv("NCCL_NVLS_ENABLE", "1", 1);
  std::string why;
  EXPECT_THROW((void)find_nccl(why), Error);
}

TEST(FindNccl, ForbiddingMulticastOverrulesTheUser) {
  ::setenv("NCCL_NVLS_ENABLE", "1", 1);
  forbid_nccl_multicast();
  EXPECT_STREQ(::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST(FindNccl, ALibraryThatIsNotThereIsNamedWithTheRemedy) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", "/nonexistent/libnccl.so.2", 1);
  std::string why;
  EXPECT_EQ(find_nccl(why), nullptr);
  EXPECT_THAT(why, AllOf(HasSubstr("/nonexistent/libnccl.so.2"), HasSubstr("ONEHOP_NCCL_LIBRARY")));
}

TEST(FindNccl, ALibraryThatIsNotNcclIsRefused) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", "libm.so.6", 1);
  std::string why;
  EXPECT_EQ(find_nccl(why), nullptr);
  EXPECT_THAT(why, HasSubstr("is not NCCL"));
}

}  // namespace
}  // namespace onehop::cli
