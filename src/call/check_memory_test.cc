// SPDX-License-Identifier: Apache-2.0
// Invalid pointers in calls on GPUs (find_memory_error): which of them the error names, and how.
#include <array>
#include <string>

#include "call/check_call.h"
#include "memory/cuda_testing.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DeviceId kHere{0};
constexpr std::size_t kBytes = FakeCuda::kGranularity;

CollectiveCall call(const std::byte* in, std::byte* out, std::size_t count = 16,
                    Collective collective = Collective::all_reduce) {
  CollectiveCall call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.root = Rank{0};
  call.ranks = 2;
  return call;
}

TEST(MemoryArguments, NameThePointerThatLeadsElsewhere) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte* const other = cuda.add_memory({.device = 1});
  std::array<std::byte, 64> local{};
  struct Case {
    std::byte* wrong;
    ArgumentError as_input;
    ArgumentError as_output;
    const char* what;
  };
  const Case cases[] = {
      {local.data(), ArgumentError::input_not_gpu_memory, ArgumentError::output_not_gpu_memory,
       "is host memory or was freed; memory of GPU 0 is needed"},
      {other, ArgumentError::input_of_other_gpu, ArgumentError::output_of_other_gpu,
       "is memory of GPU 1; memory of GPU 0 is needed"},
      {good + kBytes - 60, ArgumentError::input_too_short, ArgumentError::output_too_short,
       "has 60 bytes up to the end of its allocation; 64 are needed"},
  };
  for (const Case& each : cases) {
    for (const bool in_place : {false, true}) {
      const CollectiveCall as_input = call(each.wrong, in_place ? each.wrong : good);
      EXPECT_EQ(find_memory_error(as_input, kHere), each.as_input);
      const std::string text = explain(as_input, each.as_input, kHere);
      EXPECT_THAT(text, StartsWith(std::string(to_text(each.as_input)) + " (0x"));
      EXPECT_THAT(text, HasSubstr(each.what));
    }
    const CollectiveCall as_output = call(good, each.wrong);
    EXPECT_EQ(find_memory_error(as_output, kHere), each.as_output);
    EXPECT_THAT(explain(as_output, each.as_output, kHere), HasSubstr(each.what));
  }
}

TEST(MemoryArguments, AreAskedAboutOnceInPlaceAndNotAtAllWhereTheRankNeedsNone) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte local{};
  EXPECT_EQ(find_memory_error(call(good, good), kHere), ArgumentError::none);
  EXPECT_EQ(cuda.pointer_queries(), 1);
  EXPECT_EQ(find_memory_error(call(good, good + 64), kHere), ArgumentError::none);
  EXPECT_EQ(cuda.pointer_queries(), 3);
  EXPECT_EQ(find_memory_error(call(&local, &local, 0), kHere), ArgumentError::none);
  CollectiveCall receiver = call(&local, good, 16, Collective::broadcast);
  receiver.rank = 1;
  EXPECT_EQ(find_memory_error(receiver, kHere), ArgumentError::none);
  EXPECT_EQ(cuda.pointer_queries(), 4);
}

TEST(MemoryArguments, TheOwnFactorIsInMemoryOfTheGpuUnlessItWasRead) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  const float local = 2;
  CollectiveCall each = call(good, good);
  each.op = ReduceOp::premul_sum;
  each.options.own_factor = &local;
  EXPECT_EQ(find_memory_error(each, kHere), ArgumentError::own_factor_not_gpu_memory);
  each.own_factor = 0x40000000;
  EXPECT_EQ(find_memory_error(each, kHere), ArgumentError::none);
  each.own_factor.reset();
  each.options.own_factor = good;
  EXPECT_EQ(find_memory_error(each, kHere), ArgumentError::none);
}

TEST(MemoryArguments, AreLookedAtAsFarAsAllBlocksReach) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte* const data = cuda.add_memory({.bytes = 256});
  CollectiveCall gather = call(good, data, 16, Collective::all_gather);
  gather.ranks = 4;
  EXPECT_EQ(find_memory_error(gather, kHere), ArgumentError::none);
  gather.ranks = 5;
  EXPECT_EQ(find_memory_error(gather, kHere), ArgumentError::output_too_short);
  // Blocks of different sizes.
  CollectiveCall each = call(data, nullptr, 0, Collective::all_to_all_v);
  each.type = DType::u8;
  std::array<std::size_t, 2> counts{100, 56};
  const std::array<std::size_t, 2> offsets{0, 200};
  const std::array<std::size_t, 2> none{};
  each.in_blocks = {.counts = counts, .offsets = offsets};
  each.out_blocks = {.counts = none, .offsets = none};
  EXPECT_EQ(find_memory_error(each, kHere), ArgumentError::none);
  ++counts[1];
  EXPECT_EQ(find_memory_error(each, kHere), ArgumentError::input_too_short);
}

}  // namespace
}  // namespace onehop
