// SPDX-License-Identifier: Apache-2.0
// Communicators of libonehop_nccl.so without NCCL, on the host backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "barrier.h"
#include "support/ranks.h"

namespace onehop::nccl {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ncclDataType_t and ncclRedOp_t.
constexpr DataType kInt32{2};
constexpr DataType kInt64{4};
constexpr DataType kFloat{7};
constexpr RedOp kSum{0};
constexpr RedOp kMax{2};
constexpr RedOp kAvg{4};

class NcclCommunicator : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("ONEHOP_NCCL", "alone", 1);  // there may be one here
    ::setenv("ONEHOP_NCCL_DEVICE", "cpu", 1);
    ::setenv("ONEHOP_NCCL_TIMEOUT", "30", 1);
    ::setenv("ONEHOP_LOG", "off", 1);
  }
};

void expect_success(Result result) {
  EXPECT_EQ(result, Result::success) << last_error();
}

/// Runs `body` on a thread per rank, each with a communicator of its own.
void on_threads(int size, const std::function<void(const Api&, Comm, int rank)>& body) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Comm comm = nullptr;
      expect_success(api.init_rank(&comm, size, id, rank));
      if (comm == nullptr) return;
      body(api, comm, rank);
      expect_success(api.finalize(comm));
      expect_success(api.destroy(comm));
    });
  }
  for (std::thread& each : threads) each.join();
}

/// Of this thread: all ranks of a communicator.
std::vector<Comm> all_ranks(const Api& api, int size) {
  std::vector<Comm> comms(static_cast<std::size_t>(size));
  expect_success(api.init_all(comms.data(), size, nullptr));
  return comms;
}

template <class T>
void expect_reductions(int type) {
  on_threads(2, [&](const Api& api, Comm comm, int rank) {
    const std::array<T, 2> in = rank == 0 ? std::array<T, 2>{3, 10} : std::array<T, 2>{5, 4};
    const std::array<std::array<T, 2>, 5> expected = {{{8, 14}, {15, 40}, {5, 10}, {3, 4}, {4, 7}}};
    for (int op = 0; op < 5; ++op) {
      std::array<T, 2> out{};
      expect_success(api.all_reduce(in.data(), out.data(), 2, DataType{type}, RedOp{op}, comm, nullptr));
      EXPECT_EQ(out, expected[static_cast<std::size_t>(op)]) << "type " << type << ", reduction " << op;
    }
  });
}

TEST_F(NcclCommunicator, ReducesAllTypesWithAllReductions) {
  expect_reductions<std::int8_t>(0);
  expect_reductions<std::uint8_t>(1);
  expect_reductions<std::int32_t>(2);
  expect_reductions<std::uint32_t>(3);
  expect_reductions<std::int64_t>(4);
  expect_reductions<std::uint64_t>(5);
  expect_reductions<float>(7);
  expect_reductions<double>(8);
}

TEST_F(NcclCommunicator, ReducesSmallFloats) {
  on_threads(2, [&](const Api& api, Comm comm, int) {
    // Type, one, two.
    const std::array<std::array<std::uint16_t, 3>, 2> halves = {{{6, 0x3c00, 0x4000}, {9, 0x3f80, 0x4000}}};
    for (const auto& [type, one, two] : halves) {
      std::uint16_t out = 0;
      expect_success(api.all_reduce(&one, &out, 1, DataType{type}, kSum, comm, nullptr));
      EXPECT_EQ(out, two) << "type " << type;
    }
    const std::array<std::array<std::uint8_t, 3>, 2> bytes = {{{10, 0x38, 0x40}, {11, 0x3c, 0x40}}};
    for (const auto& [type, one, two] : bytes) {
      std::uint8_t out = 0;
      expect_success(api.all_reduce(&one, &out, 1, DataType{type}, kSum, comm, nullptr));
      EXPECT_EQ(out, two) << "type " << int{type};
    }
  });
}

TEST_F(NcclCommunicator, IntegerAveragesWrapTheSumAsNcclDoes) {
  on_threads(3, [&](const Api& api, Comm comm, int) {
    const std::int8_t in = 100;
    std::int8_t out = 0;
    expect_success(api.all_reduce(&in, &out, 1, DataType{0}, kAvg, comm, nullptr));
    EXPECT_EQ(out, (300 - 256) / 3);
  });
}

TEST_F(NcclCommunicator, MovesBlocks) {
  constexpr int kRanks = 3;
  on_threads(kRanks, [&](const Api& api, Comm comm, int rank) {
    const std::array<int, 2> in = {10 * rank, 10 * rank + 1};
    std::array<int, 2 * kRanks> out{};
    expect_success(api.all_gather(in.data(), out.data(), 2, kInt32, comm, nullptr));
    EXPECT_THAT(out, ElementsAre(0, 1, 10, 11, 20, 21));

    std::array<int, 2> one{};
    expect_success(api.reduce_scatter(out.data(), one.data(), 2, kInt32, kSum, comm, nullptr));
    EXPECT_THAT(one, ElementsAre(3 * 10 * rank, 3 * (10 * rank + 1)));

    const std::array<int, kRanks> mine = {100 * rank, 100 * rank + 1, 100 * rank + 2};
    std::array<int, kRanks> others{};
    expect_success(api.all_to_all(mine.data(), others.data(), 1, kInt32, comm, nullptr));
    EXPECT_THAT(others, ElementsAre(rank, 100 + rank, 200 + rank));
  });
}

TEST_F(NcclCommunicator, AnAllToAllInPlaceIsMadeOfACopy) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 2);
  std::array<std::array<int, 2>, 2> data = {{{1, 2}, {3, 4}}};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < 2; ++i)
    expect_success(api.all_to_all(data[i].data(), data[i].data(), 1, kInt32, comms[i], nullptr));
  expect_success(api.group_end());
  EXPECT_THAT(data, ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
  for (Comm each : comms) expect_success(api.destroy(each));
}

// Programs pass whatever they have where NCCL does not look.
TEST_F(NcclCommunicator, IgnoresBuffersThatOnlyTheRootNeeds) {
  constexpr int kRanks = 3;
  constexpr int kRoot = 1;
  auto* const no_memory = reinterpret_cast<int*>(0x3);
  on_threads(kRanks, [&](const Api& api, Comm comm, int rank) {
    const bool is_root = rank == kRoot;
    int data = rank + 5;
    int out = -1;
    expect_success(api.broadcast(is_root ? &data : no_memory, &out, 1, kInt32, kRoot, comm, nullptr));
    EXPECT_EQ(out, kRoot + 5);
    expect_success(api.bcast(&data, 1, kInt32, kRoot, comm, nullptr));
    EXPECT_EQ(data, kRoot + 5);

    int sum = 0;
    expect_success(api.reduce(&data, is_root ? &sum : nullptr, 1, kInt32, kSum, kRoot, comm, nullptr));
    EXPECT_EQ(sum, is_root ? kRanks * (kRoot + 5) : 0);

    std::array<int, kRanks> all{};
    expect_success(api.gather(&rank, is_root ? all.data() : no_memory, 1, kInt32, kRoot, comm, nullptr));
    EXPECT_THAT(all, is_root ? ElementsAre(0, 1, 2) : ElementsAre(0, 0, 0));
    const std::array<int, kRanks> parts = {7, 8, 9};
    expect_success(api.scatter(is_root ? parts.data() : no_memory, &out, 1, kInt32, kRoot, comm, nullptr));
    EXPECT_EQ(out, 7 + rank);
  });
}

TEST_F(NcclCommunicator, WhatIsMovedMayBeOfAnotherTypeOnEachRank) {
  on_threads(2, [&](const Api& api, Comm comm, int rank) {
    const DataType type{rank == 0 ? 7 : 0};  // float, int8
    const std::size_t per_float = rank == 0 ? 1 : sizeof(float);
    std::array<float, 4> data{};
    if (rank == 0) data = {1, 2, 3, 4};
    expect_success(rank == 0 ? api.send(data.data(), 4, type, 1, comm, nullptr)
                             : api.recv(data.data(), 4 * per_float, type, 0, comm, nullptr));
    EXPECT_THAT(data, ElementsAre(1, 2, 3, 4));
    const auto mine = static_cast<float>(rank + 5);
    std::array<float, 2> all{};
    expect_success(api.all_gather(&mine, all.data(), per_float, type, comm, nullptr));
    EXPECT_THAT(all, ElementsAre(5, 6));
  });
}

TEST_F(NcclCommunicator, SplitsByColorInTheOrderOfKeys) {
  on_threads(3, [&](const Api& api, Comm comm, int rank) {
    Comm part = nullptr;
    EXPECT_EQ(api.split(comm, -2, 0, &part, nullptr), Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr("color -2"));
    expect_success(api.split(comm, rank == 1 ? -1 : 7, -rank, &part, nullptr));
    ASSERT_EQ(part == nullptr, rank == 1);
    if (part == nullptr) return;
    std::array<int, 2> said{};
    expect_success(api.count(part, &said[0]));
    expect_success(api.user_rank(part, &said[1]));
    EXPECT_THAT(said, ElementsAre(2, rank == 2 ? 0 : 1));
    std::array<int, 2> ranks{};
    expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, part, nullptr));
    EXPECT_THAT(ranks, ElementsAre(2, 0));
    expect_success(api.destroy(part));
  });
}

TEST_F(NcclCommunicator, ShrinksWithoutTheRanksThatAreExcluded) {
  on_threads(4, [&](const Api& api, Comm comm, int rank) {
    Comm part = nullptr;
    expect_success(api.split(comm, rank == 3 ? -1 : 0, -rank, &part, nullptr));  // ranks 2, 1 and 0
    if (part == nullptr) return;
    const int excluded = 0;
    for (int round = 0; round < 3 && rank != 2; ++round) {
      Comm rest = nullptr;
      expect_success(api.shrink(part, &excluded, 1, &rest, nullptr, 0));
      std::array<int, 3> said{};
      expect_success(api.count(rest, &said[0]));
      expect_success(api.user_rank(rest, &said[1]));
      expect_success(api.cuda_device(rest, &said[2]));
      EXPECT_THAT(said, ElementsAre(2, 1 - rank, 0));
      std::array<int, 2> ranks{};
      expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, rest, nullptr));
      EXPECT_THAT(ranks, ElementsAre(1, 0));
      expect_success(api.destroy(rest));
    }
    int sum = 1;
    expect_success(api.all_reduce(&sum, &sum, 1, kInt32, kSum, part, nullptr));
    EXPECT_EQ(sum, 3) << "the parent goes on";
    expect_success(api.destroy(part));
  });
}

TEST_F(NcclCommunicator, OneThreadShrinksSeveralRanksInAGroup) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const std::array<int, 2> excluded = {2, 0};
  std::array<Comm, 3> rest{};
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt32, kSum, comms[2], nullptr); });
  expect_success(api.group_start());
  for (const std::size_t i : {0, 1})
    expect_success(api.shrink(comms[i], excluded.data(), 1, &rest[i], nullptr, kShrinkAbort));
  expect_success(api.shrink(comms[1], excluded.data(), 2, &rest[2], nullptr, kShrinkAbort));
  expect_success(api.group_end());
  waiting.join();
  EXPECT_EQ(result, Result::remote_error) << "the calls of the parent have ended";
  std::array<int, 3> counts{};
  for (std::size_t i = 0; i < 3; ++i) expect_success(api.count(rest[i], &counts[i]));
  EXPECT_THAT(counts, ElementsAre(2, 2, 1));
  for (Comm each : rest) expect_success(api.destroy(each));
  for (Comm each : comms) expect_success(api.abort(each));
}

TEST_F(NcclCommunicator, ShrinkingWaitsForARankThatRemainsUntilItsTimeout) {
  ::setenv("ONEHOP_NCCL_TIMEOUT", "10", 1);  // enough for the ranks of one process to join
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const int excluded = 0;
  Comm rest = nullptr;
  EXPECT_EQ(api.shrink(comms[2], &excluded, 1, &rest, nullptr, 0), Result::remote_error);
  EXPECT_THAT(last_error(),
              AllOf(HasSubstr("ncclCommShrink: "), HasSubstr("rank 1 waited 10000 ms"), HasSubstr("rank 0")));
  EXPECT_EQ(rest, nullptr);
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, RanksThatCannotBeExcludedAreNamed) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  Comm rest = nullptr;
  const auto expect_refused = [&](std::vector<int> excluded, const char* text) {
    EXPECT_EQ(api.shrink(comms[1], excluded.data(), static_cast<int>(excluded.size()), &rest, nullptr, 0),
              Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr(text));
    EXPECT_EQ(rest, nullptr);
  };
  expect_refused({0, 3}, "ncclCommShrink: rank 3 of 3 ranks is excluded");
  expect_refused({-1}, "rank -1 of 3 ranks is excluded");
  expect_refused({0, 1}, "rank 1 makes the call that excludes it");
  expect_refused({2, 2}, "rank 2 is excluded twice");
  const int excluded = 0;
  EXPECT_EQ(api.shrink(comms[1], &excluded, 0, &rest, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("0 ranks are excluded"));
  EXPECT_EQ(api.shrink(comms[1], nullptr, 1, &rest, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("excludeRanksList is NULL"));
  EXPECT_EQ(api.shrink(comms[1], &excluded, 1, nullptr, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("newcomm is NULL"));
  EXPECT_EQ(api.shrink(nullptr, &excluded, 1, &rest, nullptr, 0), Result::invalid_argument);
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, SplitsInOneGroupAreMadeInTheirOrder) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  for (int round = 0; round < 20; ++round) {
    std::array<Comm, 3> all{};
    std::array<Comm, 3> alone{};
    expect_success(api.group_start());
    for (std::size_t i = 0; i < 3; ++i) {
      expect_success(api.split(comms[i], 0, 0, &all[i], nullptr));
      expect_success(api.split(comms[i], static_cast<int>(i), 0, &alone[i], nullptr));
    }
    expect_success(api.group_end());
    for (std::size_t i = 0; i < 3; ++i) {
      std::array<int, 2> said{};
      expect_success(api.count(all[i], &said[0]));
      expect_success(api.count(alone[i], &said[1]));
      EXPECT_THAT(said, ElementsAre(3, 1));
      expect_success(api.destroy(all[i]));
      expect_success(api.destroy(alone[i]));
    }
  }
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, CallsInPlaceAndOfNothing) {
  on_threads(2, [&](const Api& api, Comm comm, int rank) {
    std::array<int, 2> data{};
    data[static_cast<std::size_t>(rank)] = rank + 1;
    expect_success(
        api.all_gather(&data[static_cast<std::size_t>(rank)], data.data(), 1, kInt32, comm, nullptr));
    EXPECT_THAT(data, ElementsAre(1, 2));
    expect_success(api.all_reduce(data.data(), data.data(), 2, kInt32, kSum, comm, nullptr));
    EXPECT_THAT(data, ElementsAre(2, 4));
    expect_success(api.reduce_scatter(data.data(), &data[static_cast<std::size_t>(rank)], 1, kInt32, kMax,
                                      comm, nullptr));
    EXPECT_THAT(data, ElementsAre(2, 4));
    expect_success(api.all_reduce(nullptr, nullptr, 0, kInt32, kSum, comm, nullptr));
  });
}

TEST_F(NcclCommunicator, OneThreadSetsUpAllRanksInAGroup) {
  constexpr int kRanks = 4;
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  std::array<Comm, kRanks> comms{};
  expect_success(api.group_start());
  for (int rank = 0; rank < kRanks; ++rank)
    expect_success(api.init_rank_config(&comms[static_cast<std::size_t>(rank)], kRanks, id, rank, nullptr));
  Result state = Result::success;
  expect_success(api.async_error(comms[0], &state));
  EXPECT_EQ(state, Result::in_progress) << "nothing runs before the end";
  expect_success(api.group_end());

  std::array<int, kRanks> data = {1, 2, 3, 4};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < kRanks; ++i) {
    expect_success(api.group_start());
    expect_success(api.all_reduce(&data[i], &data[i], 1, kInt32, kSum, comms[i], nullptr));
    expect_success(api.group_end());
  }
  EXPECT_THAT(data, ElementsAre(1, 2, 3, 4)) << "only the outermost end starts the calls";
  expect_success(api.group_end());
  EXPECT_THAT(data, Each(10));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, RanksMeetAtTheFirstOfSeveralIds) {
  const Api api;
  std::array<UniqueId, 2> ids{};
  for (UniqueId& each : ids) expect_success(api.get_unique_id(&each));
  std::array<Comm, 2> comms{};
  EXPECT_EQ(api.init_rank_scalable(&comms[0], 2, 0, 2, nullptr, nullptr), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("ncclCommInitRankScalable: commIds is NULL"));
  for (const int count : {-1, 0, 3}) {
    EXPECT_EQ(api.init_rank_scalable(&comms[0], 2, 0, count, ids.data(), nullptr), Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr(std::to_string(count) + " unique ids for 2 ranks"));
  }
  expect_success(api.group_start());
  for (int rank = 0; rank < 2; ++rank)
    expect_success(
        api.init_rank_scalable(&comms[static_cast<std::size_t>(rank)], 2, rank, 2, ids.data(), nullptr));
  expect_success(api.group_end());
  std::array<int, 2> data = {1, 2};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < 2; ++i)
    expect_success(api.all_reduce(&data[i], &data[i], 1, kInt32, kSum, comms[i], nullptr));
  expect_success(api.group_end());
  EXPECT_THAT(data, Each(3));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, SendsAndReceivesOfAGroupProgressTogether) {
  constexpr std::size_t kCount = 1 << 20;  // more than is buffered
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  std::vector<std::vector<int>> in;
  std::vector<std::vector<int>> out(3, std::vector<int>(kCount));
  for (int rank = 0; rank < 3; ++rank) in.emplace_back(kCount, rank + 1);
  expect_success(api.group_start());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const int next = static_cast<int>(rank + 1) % 3;
    const int previous = static_cast<int>(rank + 2) % 3;
    expect_success(api.send(in[rank].data(), kCount, kInt32, next, comms[rank], nullptr));
    expect_success(api.recv(out[rank].data(), kCount, kInt32, previous, comms[rank], nullptr));
  }
  expect_success(api.group_end());
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_THAT(out[rank], Each(static_cast<int>((rank + 2) % 3) + 1));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, InitAllMakesOneRankPerDevice) {
  const Api api;
  const std::array<int, 2> devices = {3, 1};
  std::array<Comm, 2> comms{};
  expect_success(api.init_all(comms.data(), 2, devices.data()));
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    std::array<int, 3> said{};
    expect_success(api.count(comms[i], &said[0]));
    expect_success(api.user_rank(comms[i], &said[1]));
    expect_success(api.cuda_device(comms[i], &said[2]));
    EXPECT_THAT(said, ElementsAre(2, rank, devices[i]));
    expect_success(api.destroy(comms[i]));
  }
}

TEST_F(NcclCommunicator, AReductionThatIsMissingIsAnError) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 1);
  int data = 3;
  EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, RedOp{5}, comms[0], nullptr), Result::invalid_argument);
  EXPECT_THAT(last_error(),
              HasSubstr("ncclAllReduce: reduction 5 is neither sum, prod, max, min or avg (0 to 4) nor one "
                        "that the program made"));
  EXPECT_EQ(api.all_reduce(&data, &data, 1, DataType{12}, kSum, comms[0], nullptr), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("data type 12"));
  expect_success(api.destroy(comms[0]));
}

TEST_F(NcclCommunicator, AFactorOfEachRankMultipliesItsInput) {
  for (const Residence residence : {Residence::host, Residence::device}) {
    on_threads(3, [&](const Api& api, Comm comm, int rank) {
      const std::array<float, 3> in = {1, 2, 4};
      std::array<float, 3> out{};
      float factor = static_cast<float>(rank) + 0.5F;
      RedOp op{};
      expect_success(api.create_pre_mul_sum(&op, &factor, kFloat, residence, comm));
      if (residence == Residence::host) factor = 100;  // was read
      expect_success(api.all_reduce(in.data(), out.data(), 3, kFloat, op, comm, nullptr));
      EXPECT_THAT(out, ElementsAre(4.5F, 9.0F, 18.0F));
      expect_success(api.reduce_scatter(in.data(), out.data(), 1, kFloat, op, comm, nullptr));
      EXPECT_EQ(out[0], 4.5F * in[static_cast<std::size_t>(rank)]);
      expect_success(api.reduce(in.data(), out.data(), 3, kFloat, op, 1, comm, nullptr));
      if (rank == 1) {
        EXPECT_THAT(out, ElementsAre(4.5F, 9.0F, 18.0F));
      }
      // In a group, what is destroyed is kept until its call has been made.
      expect_success(api.group_start());
      expect_success(api.all_reduce(in.data(), out.data(), 3, kFloat, op, comm, nullptr));
      expect_success(api.destroy_reduction(op, comm));
      expect_success(api.group_end());
      EXPECT_THAT(out, ElementsAre(4.5F, 9.0F, 18.0F));
    });
  }
}

TEST_F(NcclCommunicator, ReductionsOfTheProgramAreChecked) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 1);
  const std::int64_t factor = 1'000'000'000'000'000'003;
  RedOp op{};
  EXPECT_EQ(api.create_pre_mul_sum(&op, nullptr, kInt64, Residence::host, comms[0]),
            Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("ncclRedOpCreatePreMulSum: scalar is NULL"));
  EXPECT_EQ(api.create_pre_mul_sum(&op, &factor, kInt64, Residence{2}, comms[0]), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("residence 2 is neither"));
  EXPECT_EQ(api.create_pre_mul_sum(&op, &factor, DataType{12}, Residence::host, comms[0]),
            Result::invalid_argument);
  EXPECT_EQ(api.destroy_reduction(kSum, comms[0]), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("ncclRedOpDestroy: reduction 0 is none that the program made"));
  expect_success(api.create_pre_mul_sum(&op, &factor, kInt64, Residence::host, comms[0]));
  RedOp other{};
  expect_success(api.create_pre_mul_sum(&other, &factor, kInt64, Residence::host, comms[0]));
  EXPECT_NE(op, other);
  int small = 3;
  EXPECT_EQ(api.all_reduce(&small, &small, 1, kInt32, op, comms[0], nullptr), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("was made for data type 4, and the call has 2"));
  std::int64_t value = 3;
  expect_success(api.all_reduce(&value, &value, 1, kInt64, op, comms[0], nullptr));
  EXPECT_EQ(value, 3 * factor);
  expect_success(api.destroy_reduction(op, comms[0]));
  EXPECT_EQ(api.all_reduce(&value, &value, 1, kInt64, op, comms[0], nullptr), Result::invalid_argument);
  expect_success(api.destroy(comms[0]));
}

TEST_F(NcclCommunicator, AnErrorInAGroupIsTheResultOfItsEndAndNothingRuns) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 1);
  int in = 3;
  int out = 0;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm other = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&other, 1, id, 0));
  expect_success(api.all_reduce(&in, &out, 1, kInt32, kSum, comms[0], nullptr));
  EXPECT_EQ(api.all_reduce(&in, &out, 1, kInt32, RedOp{99}, comms[0], nullptr), Result::invalid_argument);
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(other, nullptr);
  expect_success(api.all_reduce(&in, &out, 1, kInt32, kSum, comms[0], nullptr));
  EXPECT_EQ(out, 3) << "the next calls are made at once";
  expect_success(api.destroy(comms[0]));
}

TEST_F(NcclCommunicator, AProgramMayCleanUpBeforeAFailedGroupEnds) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm first = nullptr;
  Comm second = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&first, 1, id, 0));
  EXPECT_EQ(api.init_rank(&second, 1, id, 1), Result::invalid_argument);
  expect_success(api.abort(first));
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_EQ(second, nullptr);
}

TEST_F(NcclCommunicator, WrongArgumentsAreNamed) {
  const Api api;
  Comm comm = nullptr;
  EXPECT_EQ(api.group_end(), Result::invalid_usage);
  EXPECT_THAT(last_error(), HasSubstr("ncclGroupStart"));
  UniqueId id{};
  EXPECT_EQ(api.init_rank(&comm, 2, id, 2), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("rank 2 of 2 ranks"));
  EXPECT_EQ(api.init_rank(&comm, 1, id, 0), Result::internal_error);
  EXPECT_THAT(last_error(), HasSubstr("ncclGetUniqueId of libonehop_nccl did not make it"));
  const std::vector<Comm> comms = all_ranks(api, 1);
  expect_success(api.destroy(comms[0]));
  EXPECT_EQ(api.destroy(comms[0]), Result::invalid_argument) << "a second time";
  int count = 0;
  EXPECT_EQ(api.count(comms[0], &count), Result::invalid_argument);
  EXPECT_EQ(api.count(nullptr, &count), Result::invalid_argument);
}

TEST_F(NcclCommunicator, AbortEndsTheCallOfAnotherThread) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 2);
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt32, kSum, comms[0], nullptr); });
  expect_success(api.abort(comms[0]));
  waiting.join();
  EXPECT_NE(result, Result::success);
  Result state = Result::success;
  expect_success(api.async_error(comms[1], &state));
  EXPECT_EQ(state, Result::remote_error);
  expect_success(api.abort(comms[1]));
}

TEST_F(NcclCommunicator, AnAbortDuringTheSetUpFailsIt) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm comm = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&comm, 2, id, 0));
  std::thread other([&, aborted = comm] {
    expect_success(api.abort(aborted));
    Comm late = nullptr;
    Result result = api.init_rank(&late, 2, id, 1);  // may hear of it already
    if (result == Result::success) {
      int data = 0;
      result = api.all_reduce(&data, &data, 1, kInt32, kSum, late, nullptr);
      expect_success(api.abort(late));
    }
    EXPECT_EQ(result, Result::remote_error);
  });
  EXPECT_EQ(api.group_end(), Result::remote_error);
  // Of either thread, whichever came last.
  EXPECT_THAT(last_error(), AnyOf(HasSubstr("rank 0 was aborted while it was set up"),
                                  HasSubstr("rank 0 aborted the group: the set-up")));
  other.join();
}

/// Runs `body` on processes, each with a rank of one communicator.
std::vector<testing::Exit> on_processes(int size,
                                        const std::function<void(const Api&, Comm, int rank, Store&)>& body) {
  const testing::TempDir directory;
  testing::Processes ranks(size, [&](Rank rank) {
    const Api api;
    const auto store = file_store(directory.path());
    UniqueId id{};
    if (rank.value == 0) {
      expect_success(api.get_unique_id(&id));
      store->set("id", {id.bytes, UniqueId::kBytes});
    } else {
      const std::string bytes = store->get("id");
      std::memcpy(id.bytes, bytes.data(), UniqueId::kBytes);
    }
    Comm comm = nullptr;
    expect_success(api.init_rank(&comm, size, id, rank.value));
    body(api, comm, rank.value, *store);
    return std::string{};
  });
  return ranks.wait(std::chrono::seconds{50});
}

TEST_F(NcclCommunicator, ProcessesFindEachOtherByTheIdAndNoticeADeath) {
  const std::vector<testing::Exit> exits =
      on_processes(3, [](const Api& api, Comm comm, int rank, Store& store) {
        int data = rank + 1;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr));
        EXPECT_EQ(data, 6);
        // Not while another rank may still be in that call.
        store.add("reduced", 1);
        if (rank == 2) {
          while (store.add("reduced", 0) < 3) std::this_thread::sleep_for(std::chrono::milliseconds{1});
          ::raise(SIGKILL);
        }
        EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr), Result::remote_error);
        EXPECT_THAT(last_error(), HasSubstr("rank 2"));
        Result state = Result::success;
        expect_success(api.async_error(comm, &state));
        EXPECT_EQ(state, Result::remote_error);
        expect_success(api.abort(comm));
      });
  EXPECT_EQ(exits[0].code, 0) << exits[0].text;
  EXPECT_EQ(exits[1].code, 0) << exits[1].text;
  EXPECT_EQ(exits[2].signal, SIGKILL);
}

TEST_F(NcclCommunicator, ProcessesGoOnWithoutTheOneThatMadeTheIdAndDied) {
  const std::vector<testing::Exit> exits =
      on_processes(4, [](const Api& api, Comm comm, int rank, Store& store) {
        int data = 1;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr));
        barrier(store, "reduced", 4);  // no rank is in that call any more
        if (rank == 0) ::raise(SIGKILL);
        EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr), Result::remote_error);
        Comm rest = nullptr;
        int excluded = 0;
        expect_success(api.shrink(comm, &excluded, 1, &rest, nullptr, kShrinkAbort));
        std::array<int, 3> ranks{};
        expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, rest, nullptr));
        EXPECT_THAT(ranks, ElementsAre(1, 2, 3));
        barrier(store, "gathered", 3);
        // The next one to die is rank 2 of 3.
        if (rank == 3) ::raise(SIGKILL);
        excluded = 2;
        Comm last = nullptr;
        expect_success(api.shrink(rest, &excluded, 1, &last, nullptr, kShrinkAbort));
        data = rank;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, last, nullptr));
        EXPECT_EQ(data, 3);
        barrier(store, "reduced again", 2);
        for (Comm each : {last, rest, comm}) expect_success(api.abort(each));
      });
  for (const std::size_t i : {0, 3}) EXPECT_EQ(exits[i].signal, SIGKILL);
  for (const std::size_t i : {1, 2}) EXPECT_EQ(exits[i].code, 0) << exits[i].text;
}

// Many programs never destroy their communicators.
TEST_F(NcclCommunicator, AProcessThatExitsAfterItsCallsIsNotTakenForDead) {
  const std::vector<testing::Exit> exits = on_processes(2, [](const Api& api, Comm comm, int rank, Store&) {
    std::array<int, 2> sent{};
    if (rank == 1) {
      expect_success(api.send(sent.data(), 2, kInt32, 0, comm, nullptr));
      std::exit(::testing::Test::HasFailure() ? 1 : 0);  // NOLINT(concurrency-mt-unsafe)
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    Result state = Result::internal_error;
    expect_success(api.async_error(comm, &state));
    EXPECT_EQ(state, Result::success);
    expect_success(api.recv(sent.data(), 2, kInt32, 1, comm, nullptr));
    EXPECT_EQ(api.recv(sent.data(), 2, kInt32, 1, comm, nullptr), Result::remote_error);
    EXPECT_THAT(last_error(), HasSubstr("left"));
  });
  for (const testing::Exit& each : exits) EXPECT_EQ(each.code, 0) << each.text;
}

TEST_F(NcclCommunicator, HintsOfACallAreIgnored) {
  on_threads(2, [](const Api& api, Comm comm, int rank) {
    CallConfig config = call_config();
    config.most_blocks = 4;
    config.algorithms = "";
    int data = 1 + rank;
    expect_success(api.all_reduce_config(&data, &data, 1, kInt32, kSum, comm, nullptr, &config));
    EXPECT_EQ(data, 3);
    expect_success(api.all_reduce_config(&data, &data, 1, kInt32, kMax, comm, nullptr, nullptr));
    EXPECT_EQ(data, 3);
    const int own = 10 + rank;
    std::array<int, 2> all{};
    expect_success(api.gather_config(&own, all.data(), 1, kInt32, 1, comm, nullptr, &config));
    EXPECT_THAT(all, rank == 1 ? ElementsAre(10, 11) : ElementsAre(0, 0));
    config.algorithms = "ring";
    config.algorithms_are_forced = 0;  // only preferred
    expect_success(api.all_reduce_config(&data, &data, 1, kInt32, kMax, comm, nullptr, &config));
    // Of a version without these members.
    config.algorithms_are_forced = 1;
    config.size = offsetof(CallConfig, algorithms);
    expect_success(api.all_reduce_config(&data, &data, 1, kInt32, kMax, comm, nullptr, &config));
  });
}

TEST_F(NcclCommunicator, WhatACallDemandsOfNcclIsRefused) {
  on_threads(2, [](const Api& api, Comm comm, int) {
    int data = 1;
    CallConfig chooses = call_config();
    chooses.algorithms = "ring";
    CallConfig records = call_config();
    records.launched = &data;
    for (const CallConfig& config : {chooses, records, CallConfig{}}) {
      EXPECT_EQ(api.all_reduce_config(&data, &data, 1, kInt32, kSum, comm, nullptr, &config),
                Result::invalid_usage);
      EXPECT_THAT(last_error(), HasSubstr("ncclAllReduceConfig: "));
    }
    expect_success(api.group_start());
    EXPECT_EQ(api.all_reduce_config(&data, &data, 1, kInt32, kSum, comm, nullptr, &chooses),
              Result::invalid_usage);
    expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr));
    EXPECT_EQ(api.group_end(), Result::invalid_usage) << "and makes none of the calls";
    EXPECT_EQ(data, 1);
  });
}

TEST_F(NcclCommunicator, MemoryIsAllocatedAndNeedsNoRegistration) {
  on_threads(2, [](const Api& api, Comm comm, int rank) {
    constexpr std::size_t kCount = 1000;
    void* memory = nullptr;
    expect_success(api.mem_alloc(&memory, kCount * sizeof(int)));
    ASSERT_NE(memory, nullptr);
    auto* const data = static_cast<int*>(memory);
    std::iota(data, data + kCount, rank);
    void* handle = &handle;
    void* window = &window;
    expect_success(api.enroll(comm, data, kCount * sizeof(int), &handle));
    expect_success(api.window_register(comm, data, kCount * sizeof(int), &window, 0));
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(window, nullptr);
    expect_success(api.all_reduce(data, data, kCount, kInt32, kSum, comm, nullptr));
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 2 * static_cast<int>(i) + 1);
    EXPECT_EQ(api.deregister(comm, data), Result::invalid_argument);
    EXPECT_EQ(api.enroll(nullptr, data, 1, &handle), Result::invalid_argument);
    expect_success(api.deregister(comm, handle));
    expect_success(api.window_deregister(comm, window));
    expect_success(api.mem_free(memory));
  });
  const Api api;
  expect_success(api.mem_free(nullptr));
  EXPECT_EQ(api.mem_alloc(nullptr, 1), Result::invalid_argument);
}

TEST_F(NcclCommunicator, TheLastErrorIsThatOfAnyThread) {
  std::thread([] { EXPECT_EQ(Api{}.group_end(), Result::invalid_usage); }).join();
  EXPECT_THAT(last_error(), HasSubstr("ncclGroupStart"));
}

}  // namespace
}  // namespace onehop::nccl
