// SPDX-License-Identifier: Apache-2.0
// Pointers of calls on GPUs that lead elsewhere (find_memory_defect): which of them is named, and how.
#include <array>
#include <string>

#include "collective/arguments.h"
#include "memory/cuda_testing.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DeviceId kHere{0};
constexpr std::size_t kBytes = FakeCuda::kGranularity;
const CallOptions kDefaults;

Arguments call(const std::byte* in, std::byte* out, std::size_t count = 16) {
  return {.kind = CallKind::all_reduce,
          .in = in,
          .out = out,
          .count = count,
          .op = ReduceOp::sum,
          .options = kDefaults};
}

TEST(MemoryArguments, NameThePointerThatLeadsElsewhere) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte* const other = cuda.add_memory({.device = 1});
  std::array<std::byte, 64> local{};
  struct Case {
    std::byte* wrong;
    CallDefect as_input;
    CallDefect as_output;
    const char* what;
  };
  const Case cases[] = {
      {local.data(), CallDefect::input_not_gpu_memory, CallDefect::output_not_gpu_memory,
       "is host memory or was freed; memory of GPU 0 is needed"},
      {other, CallDefect::input_of_other_gpu, CallDefect::output_of_other_gpu,
       "is memory of GPU 1; memory of GPU 0 is needed"},
      {good + kBytes - 60, CallDefect::input_too_short, CallDefect::output_too_short,
       "has 60 bytes up to the end of its allocation; 64 are needed"},
  };
  for (const Case& each : cases) {
    for (const bool in_place : {false, true}) {
      const Arguments as_input = call(each.wrong, in_place ? each.wrong : good);
      EXPECT_EQ(find_memory_defect(as_input, kHere), each.as_input);
      const std::string text = explain(as_input, each.as_input, kHere);
      EXPECT_THAT(text, StartsWith(std::string(to_text(each.as_input)) + " (0x"));
      EXPECT_THAT(text, HasSubstr(each.what));
    }
    const Arguments as_output = call(good, each.wrong);
    EXPECT_EQ(find_memory_defect(as_output, kHere), each.as_output);
    EXPECT_THAT(explain(as_output, each.as_output, kHere), HasSubstr(each.what));
  }
}

TEST(MemoryArguments, AreAskedAboutOnceInPlaceAndNotAtAllWhereTheRankNeedsNone) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte local{};
  EXPECT_EQ(find_memory_defect(call(good, good), kHere), CallDefect::none);
  EXPECT_EQ(cuda.pointer_queries(), 1);
  EXPECT_EQ(find_memory_defect(call(good, good + 64), kHere), CallDefect::none);
  EXPECT_EQ(cuda.pointer_queries(), 3);
  EXPECT_EQ(find_memory_defect(call(&local, &local, 0), kHere), CallDefect::none);
  Arguments receiver = call(&local, good);
  receiver.in_blocks = 0;
  EXPECT_EQ(find_memory_defect(receiver, kHere), CallDefect::none);
  EXPECT_EQ(cuda.pointer_queries(), 4);
}

TEST(MemoryArguments, AreLookedAtAsFarAsAllBlocksReach) {
  FakeCuda cuda;
  std::byte* const good = cuda.add_memory({});
  std::byte* const data = cuda.add_memory({.bytes = 256});
  Arguments gather = call(good, data);
  gather.out_blocks = 4;
  EXPECT_EQ(find_memory_defect(gather, kHere), CallDefect::none);
  gather.out_blocks = 5;
  EXPECT_EQ(find_memory_defect(gather, kHere), CallDefect::output_too_short);
  // Blocks of different sizes.
  Arguments each{.kind = CallKind::all_to_all_v, .in_blocks = 0, .out_blocks = 0, .options = kDefaults};
  each.read = std::span<const std::byte>(data, 256);
  EXPECT_EQ(find_memory_defect(each, kHere), CallDefect::none);
  each.read = std::span<const std::byte>(data, 257);
  EXPECT_EQ(find_memory_defect(each, kHere), CallDefect::input_too_short);
}

}  // namespace
}  // namespace onehop
