// SPDX-License-Identifier: Apache-2.0
#include "collective/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "onehop/error.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

std::array<std::byte, 64> g_messages;

CollectiveCall transfer(Collective collective, int peer, std::size_t count, std::size_t at) {
  CollectiveCall call;
  call.collective = collective;
  call.in = collective == Collective::send ? g_messages.data() + at : nullptr;
  call.out = collective == Collective::recv ? g_messages.data() + at : nullptr;
  call.count = count;
  call.type = DType::i32;
  call.root = Rank{peer};
  return call;
}
CollectiveCall send_to(int peer, std::size_t count, std::size_t at = 0) {
  return transfer(Collective::send, peer, count, at);
}
CollectiveCall recv_from(int peer, std::size_t count, std::size_t at = 0) {
  return transfer(Collective::recv, peer, count, at);
}
std::vector<CollectiveCall> sorted(std::vector<CollectiveCall> transfers, int rank, int ranks) {
  sort_by_pair(transfers, rank, ranks);
  return transfers;
}

TEST(SortByPair, KeepsTheOrderWithinAPairAndStartsWithTheNextRank) {
  const std::vector<CollectiveCall> order =
      sorted({recv_from(0, 1), send_to(1, 2), send_to(2, 3), recv_from(2, 4), send_to(0, 5), send_to(2, 6),
              recv_from(1, 7), recv_from(2, 8)},
             1, 3);
  std::vector<std::size_t> counts;
  for (const CollectiveCall& each : order) counts.push_back(each.count);
  EXPECT_THAT(counts, ::testing::ElementsAre(3, 6, 4, 8,  // rank 2
                                             5, 1,        // rank 0
                                             2, 7));      // itself
}

TEST(RequireOwnMatch, TakesWhatARankSendsItselfIfItReceivesTheSame) {
  EXPECT_NO_THROW(require_own_match(sorted({send_to(1, 3)}, 0, 2), Rank{0}));
  EXPECT_NO_THROW(require_own_match(
      sorted({recv_from(0, 3), recv_from(0, 4), send_to(1, 9), send_to(0, 3), send_to(0, 4)}, 0, 2),
      Rank{0}));
}

TEST(RequireOwnMatch, NamesWhatDoesNotMatch) {
  const auto message = [](std::vector<CollectiveCall> transfers) {
    try {
      require_own_match(sorted(std::move(transfers), 0, 2), Rank{0});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.origin(), Rank{0});
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message({send_to(0, 3), recv_from(0, 4)}),
              HasSubstr("sends 3 i32 to rank 0, which receives 4 i32"));
  EXPECT_THAT(message({recv_from(0, 4), send_to(1, 4)}),
              HasSubstr("sends itself 0 times and receives from itself 1"));
}

TEST(ToRounds, PutTheKthTransferOfEachPairIntoTheKthRound) {
  const std::vector<Transfers> rounds =
      to_rounds(sorted({send_to(1, 1, 0), send_to(1, 2, 8), recv_from(1, 3, 16), send_to(2, 4, 24),
                        recv_from(2, 5), recv_from(2, 6)},
                       0, 3));
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[0][1].in, g_messages.data());
  EXPECT_EQ(rounds[0][1].sent, 4U);
  EXPECT_EQ(rounds[0][1].out, g_messages.data() + 16);
  EXPECT_EQ(rounds[0][1].received, 12U);
  EXPECT_EQ(rounds[0][2].in, g_messages.data() + 24);
  EXPECT_EQ(rounds[0][2].sent, 16U);
  EXPECT_EQ(rounds[0][2].received, 20U);
  EXPECT_EQ(rounds[1][1].in, g_messages.data() + 8);
  EXPECT_EQ(rounds[1][1].sent, 8U);
  EXPECT_EQ(rounds[1][1].received, 0U);
  EXPECT_EQ(rounds[1][2].sent, 0U);
  EXPECT_EQ(rounds[1][2].received, 24U);
}

TEST(ToRounds, LeaveOutWhatMovesNothing) {
  EXPECT_TRUE(to_rounds(std::vector{send_to(1, 0), recv_from(1, 0)}).empty());
  const std::vector<Transfers> rounds = to_rounds(std::vector{send_to(1, 0), send_to(1, 7), send_to(1, 0)});
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0][1].sent, 28U);
}

}  // namespace
}  // namespace onehop
