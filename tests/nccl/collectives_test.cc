// SPDX-License-Identifier: Apache-2.0
// What the calls of a communicator do without NCCL: data, reductions, hints, and the memory they are given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "without_nccl.h"

namespace onehop::nccl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclCollectives : public WithoutNccl {};

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

TEST_F(NcclCollectives, ReducesAllTypesWithAllReductions) {
  expect_reductions<std::int8_t>(0);
  expect_reductions<std::uint8_t>(1);
  expect_reductions<std::int32_t>(2);
  expect_reductions<std::uint32_t>(3);
  expect_reductions<std::int64_t>(4);
  expect_reductions<std::uint64_t>(5);
  expect_reductions<float>(7);
  expect_reductions<double>(8);
}

TEST_F(NcclCollectives, ReducesSmallFloats) {
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

TEST_F(NcclCollectives, IntegerAveragesWrapTheSumAsNcclDoes) {
  on_threads(3, [&](const Api& api, Comm comm, int) {
    const std::int8_t in = 100;
    std::int8_t out = 0;
    expect_success(api.all_reduce(&in, &out, 1, DataType{0}, kAvg, comm, nullptr));
    EXPECT_EQ(out, (300 - 256) / 3);
  });
}

TEST_F(NcclCollectives, MovesBlocks) {
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

TEST_F(NcclCollectives, AnAllToAllInPlaceIsMadeOfACopy) {
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
TEST_F(NcclCollectives, IgnoresBuffersThatOnlyTheRootNeeds) {
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

TEST_F(NcclCollectives, WhatIsMovedMayBeOfAnotherTypeOnEachRank) {
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

TEST_F(NcclCollectives, CallsInPlaceAndOfNothing) {
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

TEST_F(NcclCollectives, SendsAndReceivesOfAGroupProgressTogether) {
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

TEST_F(NcclCollectives, AReductionThatIsMissingIsAnError) {
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

TEST_F(NcclCollectives, AFactorOfEachRankMultipliesItsInput) {
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

TEST_F(NcclCollectives, ReductionsOfTheProgramAreChecked) {
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

TEST_F(NcclCollectives, HintsOfACallAreIgnored) {
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

TEST_F(NcclCollectives, WhatACallDemandsOfNcclIsRefused) {
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

TEST_F(NcclCollectives, MemoryIsAllocatedAndNeedsNoRegistration) {
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
    // Host memory is not shared, so calls carry it as ordinary memory.
    void* symmetric = &symmetric;
    expect_success(api.window_register(comm, data, kCount * sizeof(int), &symmetric, kCollSymmetric));
    EXPECT_EQ(symmetric, nullptr);
    expect_success(api.group_start());
    symmetric = &symmetric;
    expect_success(api.window_register(comm, data, kCount * sizeof(int), &symmetric, kCollSymmetric));
    expect_success(api.group_end());
    EXPECT_EQ(symmetric, nullptr);
    expect_success(api.all_reduce(data, data, kCount, kInt32, kSum, comm, nullptr));
    EXPECT_EQ(data[kCount - 1], 4 * static_cast<int>(kCount - 1) + 2);
    EXPECT_EQ(api.window_deregister(comm, data), Result::invalid_argument);
    EXPECT_EQ(api.window_register(comm, data, 1, nullptr, kCollSymmetric), Result::invalid_argument);
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

// With a driver, which does not know this memory, and without one.
TEST_F(NcclCollectives, AFailureOfTheDriverIsAnUnhandledCudaError) {
  ::setenv("ONEHOP_NCCL_DEVICE", "cuda", 1);
  const Api api;
  int on_the_stack = 0;
  EXPECT_EQ(api.mem_free(&on_the_stack), Result::unhandled_cuda_error);
  EXPECT_THAT(last_error(), HasSubstr("ncclMemFree: cuPointerGetAttribute: CUDA error"));
  ::setenv("ONEHOP_NCCL_DEVICE", "cpu", 1);
}

}  // namespace
}  // namespace onehop::nccl
