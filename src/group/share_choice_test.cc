// SPDX-License-Identifier: Apache-2.0
#include "group/share_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ShareMethods supporting(std::initializer_list<ShareBy> kinds, std::string fabric = {}) {
  ShareMethods all{.fabric = std::move(fabric)};
  for (const ShareBy kind : kinds) all.add(kind);
  return all;
}

const ShareMethods kAll = supporting({ShareBy::posix_fd, ShareBy::fabric, ShareBy::ipc}, "clique 1");

ShareChoice choice(const std::function<void(Hello&)>& change) {
  std::vector<Hello> hellos(3);
  for (Hello& hello : hellos) {
    hello.rank = static_cast<std::int32_t>(&hello - hellos.data());
    hello.share_methods = kAll;
    change(hello);
  }
  return choose_share(hellos);
}
const auto kOpen = [](Hello&) {};

TEST(ChooseShare, TakesTheFirstWayThatWorksOnAllRanks) {
  EXPECT_EQ(choice(kOpen).share_by, ShareBy::fabric);
  const auto rank_2_has = [](ShareMethods usable) {
    return [usable = std::move(usable)](Hello& hello) {
      if (hello.rank == 2) hello.share_methods = usable;
    };
  };
  EXPECT_EQ(choice(rank_2_has(supporting({ShareBy::posix_fd, ShareBy::ipc}))).share_by, ShareBy::posix_fd);
  EXPECT_EQ(choice(rank_2_has(supporting({ShareBy::ipc}))).share_by, ShareBy::ipc);
  const ShareChoice none = choice(rank_2_has({}));
  EXPECT_EQ(none.share_by, ShareBy::automatic);
  EXPECT_THAT(none.refusal, AllOf(HasSubstr("no way to share memory works on all ranks"),
                                  HasSubstr("'fd' on rank 2"), HasSubstr("'ipc' on rank 2")));
}

TEST(ChooseShare, FabricHandlesReachTheSameFabricCliqueOnly) {
  const auto elsewhere = [](Hello& hello) {
    if (hello.rank == 1) hello.share_methods.fabric = "clique 2";
  };
  EXPECT_EQ(choice(elsewhere).share_by, ShareBy::posix_fd);
  const ShareChoice asked = choice([&](Hello& hello) {
    elsewhere(hello);
    if (hello.rank == 0) hello.share_by = ShareBy::fabric;
  });
  EXPECT_THAT(asked.refusal, HasSubstr("does not work on rank 1, in another fabric clique than rank 0"));
}

TEST(ChooseShare, OneRanksWordIsForAllThatLeaveItOpen) {
  for (const ShareBy kind : {ShareBy::posix_fd, ShareBy::fabric, ShareBy::ipc}) {
    EXPECT_EQ(choice([&](Hello& hello) {
                if (hello.rank == 1) hello.share_by = kind;
              }).share_by,
              kind);
  }
  const ShareChoice refused = choice([](Hello& hello) {
    if (hello.rank == 1) hello.share_by = ShareBy::fabric;
    if (hello.rank == 2) hello.share_methods = supporting({ShareBy::posix_fd});
  });
  EXPECT_THAT(refused.refusal, AllOf(HasSubstr("rank 1 asks for memory shared by 'fabric'"),
                                     HasSubstr("does not work on rank 2")));
}

TEST(ChooseShare, DifferentWordsAreRefusedWithBoth) {
  const ShareChoice refused = choice([](Hello& hello) {
    if (hello.rank == 0) hello.share_by = ShareBy::fabric;
    if (hello.rank == 2) hello.share_by = ShareBy::posix_fd;
  });
  EXPECT_THAT(refused.refusal, HasSubstr("ranks 0 and 2 differ in how memory is shared: 'fabric' and 'fd'"));
}

}  // namespace
}  // namespace onehop
