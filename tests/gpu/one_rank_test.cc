// SPDX-License-Identifier: Apache-2.0
// Groups of one GPU, beyond what the conformance suite tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "onehop/group.h"

#include "conformance/suite.h"
#include "gpu/on_gpus.h"
#include "support/errors.h"

namespace onehop::testing::gpu_one_rank_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 100'003;

Group join_alone() {
  JoinOptions options = on_gpus();
  options.rank = Rank{0};
  options.size = 1;
  return Group::join(memory_store(), options);
}

TEST(CudaOneRank, JoinsByItselfAndLocally) {
  ONEHOP_NEED_GPUS(1);
  Gpu gpu(DeviceId{0});
  Group group = join_alone();
  expect_works(group, gpu);
  EXPECT_THAT(group.all_gather("alone"), ElementsAre("alone"));
  group.barrier();
  std::vector<Group> groups = Group::join_local({DeviceId{0}}, on_gpus());
  ASSERT_EQ(groups.size(), 1u);
  expect_works(groups[0], gpu);
  std::optional<Group> part = groups[0].split(0);
  ASSERT_TRUE(part.has_value());
  expect_works(*part, gpu);
}

TEST(CudaOneRank, SplitsFromTwo) {
  ONEHOP_NEED_GPUS(2);
  run_thread_group(
      2,
      [](Group& group) {
        Gpu gpu(group.device());
        std::optional<Group> own = group.split(group.rank().value);
        ASSERT_TRUE(own.has_value());
        EXPECT_EQ(own->size(), 1);
        expect_works(*own, gpu);
        expect_works(group, gpu);
      },
      on_gpus());
}

TEST(CudaOneRank, CallsAreCapturedAndReplayed) {
  ONEHOP_NEED_GPUS(1);
  Gpu gpu(DeviceId{0});
  Group group = join_alone();
  auto* const in = gpu.make<std::uint32_t>(kCount);
  auto* const out = gpu.make<std::uint32_t>(kCount);
  const Graph graph(gpu, [&] {
    (void)all_gather(group, in, out, kCount, DType::u32, gpu.stream());
    (void)all_reduce(group, out, out, kCount, DType::u32, ReduceOp::premul_sum, gpu.stream(),
                     {.algorithm = {}, .timeout = {}, .factor = 3});
    (void)all_reduce(group, out, out, kCount, DType::u32, ReduceOp::max, gpu.stream());
  });
  // Besides those that order graphs.
  EXPECT_EQ(graph.nodes(), 2 + 2u) << "a copy and a kernel: data that is already in place needs none";
  for (const std::uint32_t value : {5u, 7u}) {
    gpu.fill(in, value, kCount);
    graph.launch();
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(out, kCount), Each(3 * value));
  }
}

TEST(CudaOneRank, SendsAndReceivesInAGroupCall) {
  ONEHOP_NEED_GPUS(1);
  Gpu gpu(DeviceId{0});
  Group group = join_alone();
  auto* const in = gpu.make<std::uint32_t>(kCount);
  auto* const out = gpu.make<std::uint32_t>(kCount);
  auto* const sums = gpu.make<std::uint32_t>(kCount);
  gpu.fill(in, 9, kCount);
  GroupCall scope;
  (void)send(group, in, kCount, DType::u32, Rank{0}, gpu.stream());
  (void)recv(group, out, kCount, DType::u32, Rank{0}, gpu.stream());
  for (std::size_t i = 0; i < 4; ++i) reduce(group, gpu, in + i * 100, sums + i * 100, 100);
  scope.end();
  group.synchronize(gpu.stream());
  EXPECT_THAT(gpu.read(out, kCount), Each(9));
  EXPECT_THAT(gpu.read(sums, 400), Each(9));
  EXPECT_THAT(group.usage(), ElementsAre(0, 6, 0));
}

TEST(CudaOneRank, HasSymmetricMemoryAndSignalsItselfOnAStream) {
  ONEHOP_NEED_GPUS(1);
  Gpu gpu(DeviceId{0});
  Group group = join_alone();
  auto* const data = gpu.make<std::uint32_t>(kCount);
  for (const SymmetricBuffer& buffer :
       {group.allocate(kCount * 4), group.register_buffer(data, kCount * 4)}) {
    EXPECT_EQ(buffer.peer(Rank{0}), buffer.local());
    buffer.barrier(gpu.stream(), 2);
    buffer.put_signal(gpu.stream(), Rank{0}, 2);
    buffer.wait_signal(gpu.stream(), Rank{0}, 2);
    buffer.barrier(gpu.stream(), 2);
    auto* const words = reinterpret_cast<std::uint32_t*>(buffer.local());
    gpu.fill(words, 4, kCount);
    (void)all_reduce(group, data, words, 0, DType::u32, ReduceOp::sum, gpu.stream(),
                     {.algorithm = {}, .timeout = {}, .symmetric = true});
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(words, 10), Each(4));
    buffer.barrier();
  }
}

TEST(CudaOneRank, RefusesWhatLargerGroupsRefuseAndStaysUsable) {
  ONEHOP_NEED_GPUS(1);
  for (const char* const check : {"0", "1"}) {
    const ScopedVariable variable("ONEHOP_CHECK", check);
    Gpu gpu(DeviceId{0});
    Group group = join_alone();
    auto* const data = gpu.make<std::uint32_t>(kCount);
    const auto refusal = [&](auto&& call) { return message_of(call, ErrorCode::invalid_argument); };
    EXPECT_THAT(refusal([&] { (void)all_gather(group, nullptr, data, kCount, DType::u32, gpu.stream()); }),
                HasSubstr("its input is null"));
    EXPECT_THAT(
        refusal([&] { (void)broadcast(group, data, data, kCount, DType::u32, Rank{1}, gpu.stream()); }),
        HasSubstr("its root is no rank"));
    EXPECT_THAT(refusal([&] { (void)all_to_all(group, data, data, kCount, DType::u32, gpu.stream()); }),
                HasSubstr("cannot be made in place"));
    expect_works(group, gpu);
  }
}

}  // namespace
}  // namespace onehop::testing::gpu_one_rank_test
