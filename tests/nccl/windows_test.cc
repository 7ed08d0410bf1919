// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include <gtest/gtest.h>

#include "support/ranks.h"

namespace onehop::nccl {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 1000;

Call call_of(Collective collective, void* out, std::size_t count = kCount) {
  return {.collective = collective, .out = out, .count = count, .type = DType::f32};
}

TEST(NcclWindows, PromiseSymmetricMemoryForCallsWhoseOutputLiesInOne) {
  testing::run_thread_group(
      kRanks,
      [](Group& group) {
        Windows windows;
        void* const handle = &windows;
        SymmetricBuffer buffer = group.allocate(kRanks * kCount * sizeof(float));
        auto* const data = reinterpret_cast<float*>(buffer.local());
        EXPECT_FALSE(windows.promises(call_of(Collective::all_reduce, data), kRanks)) << "there is none";
        windows.add(handle, std::move(buffer));

        EXPECT_TRUE(windows.promises(call_of(Collective::all_reduce, data), kRanks));
        EXPECT_TRUE(windows.promises(call_of(Collective::all_reduce, data + kCount), kRanks));
        EXPECT_FALSE(windows.promises(call_of(Collective::all_reduce, data + kCount + 1), kRanks))
            << "ends behind it";
        EXPECT_FALSE(windows.promises(call_of(Collective::all_reduce, data - 1), kRanks))
            << "begins before it";
        for (const Collective gathers : {Collective::all_gather, Collective::all_to_all}) {
          EXPECT_TRUE(windows.promises(call_of(gathers, data), kRanks));
          EXPECT_FALSE(windows.promises(call_of(gathers, data + 1), kRanks)) << "a block of every rank";
        }
        // Ranks other than the root may pass anything.
        for (const Collective other :
             {Collective::gather, Collective::reduce, Collective::scatter, Collective::broadcast})
          EXPECT_FALSE(windows.promises(call_of(other, data), kRanks));

        EXPECT_TRUE(windows.remove(handle));
        EXPECT_FALSE(windows.remove(handle));
        EXPECT_FALSE(windows.promises(call_of(Collective::all_reduce, data), kRanks));
        group.barrier();
      },
      {});
}

}  // namespace
}  // namespace onehop::nccl
