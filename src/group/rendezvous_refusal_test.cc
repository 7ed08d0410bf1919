// SPDX-License-Identifier: Apache-2.0
// The decision of a rendezvous: which ranks cannot form a group, and why.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "group/rendezvous.h"
#include "group/sample_hellos.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReasonToRefuse, ThereIsNoneForRanksThatFit) {
  EXPECT_EQ(reason_to_refuse(hellos(1)), std::nullopt);
  EXPECT_EQ(reason_to_refuse(hellos(2)), std::nullopt);
  EXPECT_EQ(reason_to_refuse(hellos(kMaxDevices)), std::nullopt);
  EXPECT_EQ(reason_to_refuse(hellos(kMaxHostRanks, [](Hello& hello) { hello.device = "host"; })),
            std::nullopt);
  EXPECT_EQ(reason_to_refuse(hellos(2,
                                    [](Hello& hello) {
                                      hello.device = "GPU-0";
                                      hello.overlap = true;
                                    })),
            std::nullopt);
  // As in containers on one machine.
  EXPECT_EQ(
      reason_to_refuse(hellos(3, [](Hello& hello) { hello.hostname = fmt::format("c{}", hello.rank); })),
      std::nullopt);
}

TEST(ReasonToRefuse, NamesRanksAndValues) {
  struct Row {
    const char* what;
    int size;
    std::function<void(Hello&)> change;
    std::vector<std::string> words;
  };
  const auto of_rank_2 = [](auto&& change) {
    return [change](Hello& hello) {
      if (hello.rank == 2) change(hello);
    };
  };
  const Row rows[] = {
      {"too many GPUs", kMaxDevices + 1, [](Hello&) {}, {"at most 8", "got 9", "GPUs"}},
      {"too many host ranks",
       kMaxHostRanks + 1,
       [](Hello& h) { h.device = "host"; },
       {"at most 64", "got 65"}},
      {"versions",
       3,
       of_rank_2([](Hello& h) { h.version = "0.2.0"; }),
       {"ranks 0 and 2", "version", "0.1.0", "0.2.0"}},
      {"sizes", 3, of_rank_2([](Hello& h) { h.size = 4; }), {"ranks 0 and 2", "size", "3 and 4"}},
      {"hosts",
       3,
       of_rank_2([](Hello& h) { h.boot_id = "other", h.hostname = "beta"; }),
       {"ranks 0 and 2", "different machines", "alpha", "beta"}},
      {"hosts of one name",
       3,
       of_rank_2([](Hello& h) { h.boot_id = "other"; }),
       {"ranks 0 and 2", "different machines", "alpha and alpha"}},
      {"users", 3, of_rank_2([](Hello& h) { h.uid = 0; }), {"ranks 0 and 2", "user", "1000 and 0"}},
      {"kinds of device",
       3,
       of_rank_2([](Hello& h) { h.device = "host"; }),
       {"ranks 0 and 2", "GPU-0 and host"}},
      {"scratch",
       3,
       of_rank_2([](Hello& h) { h.scratch_bytes = 65536; }),
       {"ranks 0 and 2", "scratch_bytes", "65536"}},
      {"methods of sharing",
       3,
       [](Hello& h) {
         if (h.rank > 0) h.share_by = h.rank == 1 ? ShareBy::posix_fd : ShareBy::ipc;
       },
       {"ranks 1 and 2", "how memory is shared", "'fd' and 'ipc'", "ONEHOP_SHARE"}},
      {"ONEHOP_CHECK",
       3,
       of_rank_2([](Hello& h) { h.checks_calls = true; }),
       {"ranks 0 and 2", "ONEHOP_CHECK: 0 and 1", "same value"}},
      {"one GPU twice",
       3,
       of_rank_2([](Hello& h) { h.device = "GPU-1"; }),
       {"ranks 1 and 2", "GPU-1", "ONEHOP_ALLOW_OVERLAPPING_DEVICES"}},
      {"overlap allowed by one alone",
       3,
       of_rank_2([](Hello& h) { h.device = "GPU-1", h.overlap = true; }),
       {"GPU-1"}},
  };
  for (const Row& row : rows) {
    const std::optional<std::string> reason = reason_to_refuse(hellos(row.size, row.change));
    ASSERT_TRUE(reason.has_value()) << row.what;
    EXPECT_EQ(reason->find('\n'), std::string::npos);
    for (const std::string& word : row.words) EXPECT_THAT(*reason, HasSubstr(word)) << row.what;
  }
}

TEST(ReasonUnverified, ThereIsNoneWhenEveryPairPassedBothWays) {
  EXPECT_EQ(reason_unverified(hellos(3), outcomes_but(2, 1, true)), std::nullopt);
  EXPECT_EQ(reason_unverified(hellos(1), {}), std::nullopt);
  const auto shared = hellos(2, [](Hello& hello) { hello.device = "GPU-0"; });
  EXPECT_EQ(reason_unverified(shared, {}), std::nullopt) << "a GPU reaches itself";
}

TEST(ReasonUnverified, NamesTheFirstPairThatIsMissingOrFailed) {
  const auto missing = reason_unverified(hellos(3), outcomes_but(2, 1, std::nullopt));
  ASSERT_TRUE(missing.has_value());
  EXPECT_THAT(*missing, AllOf(HasSubstr("GPU GPU-2 of rank 2 reaches GPU GPU-1 of rank 1"),
                              HasSubstr("not verified since this machine was booted"),
                              HasSubstr("run 'onehop p2p-check'")));
  const auto failed = reason_unverified(hellos(3), outcomes_but(0, 2, false));
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT(*failed, AllOf(HasSubstr("GPU GPU-0 of rank 0 reaches GPU GPU-2 of rank 2"),
                             HasSubstr("failed its last check"), HasSubstr("'onehop p2p-check'")));
}

}  // namespace
}  // namespace onehop
