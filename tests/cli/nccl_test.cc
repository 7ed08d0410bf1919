// SPDX-License-Identifier: Apache-2.0
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

TEST(LoadNccl, RefusesToLoadItWhileMulticastIsAllowed) {
  ::setenv("ONEHOP_NCCL_LIBRARY", ONEHOP_FAKE_NCCL, 1);
  std::string why;
  for (const char* setting : {"1", "2"}) {
    ::setenv("NCCL_NVLS_ENABLE", setting, 1);
    EXPECT_THROW((void)load_nccl("", why), Error);
    EXPECT_THROW((void)find_nccl("", why), Error);
  }
  ::unsetenv("NCCL_NVLS_ENABLE");
  EXPECT_THROW((void)load_nccl("", why), Error) << "NCCL would use it by itself";
}

TEST(LoadNccl, ForbiddingMulticastOverrulesTheUser) {
  ::setenv("NCCL_NVLS_ENABLE", "1", 1);
  forbid_nccl_multicast();
  EXPECT_STREQ(::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST(LoadNccl, ALibraryThatIsNotThereIsNamedWithTheRemedy) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", "/nonexistent/libnccl.so.2", 1);
  std::string why;
  EXPECT_FALSE(load_nccl("", why));
  EXPECT_THAT(why, AllOf(HasSubstr("/nonexistent/libnccl.so.2"), HasSubstr("ONEHOP_NCCL_LIBRARY")));
}

TEST(LoadNccl, ALibraryThatIsNotNcclIsRefused) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", "libm.so.6", 1);
  std::string why;
  EXPECT_FALSE(load_nccl("", why));
  EXPECT_THAT(why, HasSubstr("is not NCCL"));
}

TEST(LoadNccl, FunctionsAreFoundByNameAndErrorsAreOneLine) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", ONEHOP_FAKE_NCCL, 1);
  std::string why = "left over";
  const std::optional<Nccl> nccl = load_nccl("", why);
  ASSERT_TRUE(nccl) << why;
  EXPECT_EQ(why, "");
  EXPECT_EQ(nccl->version(), "2.28.9");
  EXPECT_EQ(nccl->explain(3, nullptr), "internal error (first line second line)");
  EXPECT_FALSE(nccl->has_windows()) << "this one can register windows but not allocate memory for them";
  NcclUniqueId id{};
  NcclComm comm = nullptr;
  ASSERT_EQ(nccl->get_unique_id(&id), 0);
  ASSERT_EQ(nccl->comm_init_rank(&comm, 4, id, 2), 0) << "the id goes by value, as NCCL takes it";
  EXPECT_EQ(nccl->comm_init_rank(&comm, 4, NcclUniqueId{}, 2), 4);
  EXPECT_TRUE(nccl->all_to_all != nullptr && nccl->gather != nullptr && nccl->scatter != nullptr);
}

TEST(LoadNccl, ANamedLibraryIsLoadedWhateverTheVariableSays) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", "/nonexistent", 1);
  std::string why;
  EXPECT_TRUE(load_nccl(ONEHOP_FAKE_NCCL, why)) << why;
  EXPECT_FALSE(load_nccl("/elsewhere", why));
  EXPECT_THAT(why, AllOf(HasSubstr("/elsewhere"), HasSubstr("--peer NAME=LIBRARY")));
}

TEST(FindNccl, IsAskedForOnce) {
  forbid_nccl_multicast();
  ::setenv("ONEHOP_NCCL_LIBRARY", ONEHOP_FAKE_NCCL, 1);
  std::string why;
  const Nccl* const first = find_nccl("", why);
  ASSERT_NE(first, nullptr) << why;
  ::setenv("ONEHOP_NCCL_LIBRARY", "/nonexistent", 1);
  EXPECT_EQ(find_nccl("", why), first);
  const Nccl* const named = find_nccl(ONEHOP_FAKE_NCCL, why);
  EXPECT_TRUE(named != nullptr && named != first) << why;
}

}  // namespace
}  // namespace onehop::cli
