// SPDX-License-Identifier: Apache-2.0
// The legacy policy, which selects as PyTorch's IntraNodeComm does, on every backend.
#include <gtest/gtest.h>

#include <functional>

#include "conformance/suite.h"

namespace onehop::testing {
namespace {

class LegacyAllReduce : public CollectiveTest {
 protected:
  void run_legacy(std::size_t scratch_bytes, const std::function<void(Group&)>& body) const {
    JoinOptions options;
    options.policy = AlgorithmPolicy::legacy;
    options.scratch_bytes = scratch_bytes;
    backend().run(ranks(), options, body);
  }
};

TEST_P(LegacyAllReduce, UsesOneShotTo256KiBTwoShotTo10MiBAndThenNone) {
  const AllStreams streams(ranks(), {DType::f32, DType::bf16});
  // By default, a group stages as much as the original's buffer holds.
  run_legacy(0, [&](Group& group) {
    Workspace workspace(backend(), group, (10 << 20) + 64);
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto expect = [&](std::size_t bytes, Algorithm algorithm) {
        CollectiveCase each;
        each.type = type;
        each.count = bytes / size_of(type);
        each.in_place = true;
        each.start = bytes % Streams::kPeriod;
        EXPECT_EQ(workspace.run(each, streams[type]), algorithm) << bytes;
      };
      for (const std::size_t bytes : {0ul, 4ul, 4096ul, (256ul << 10) - 4, 256ul << 10})
        expect(bytes, Algorithm::one_shot);
      expect((256 << 10) + 4, Algorithm::two_shot);
      // (policy_test.cc has these limits too; transferring so much takes a while.)
      if (kSanitized && (group.size() > 2 || type == DType::bf16)) continue;
      expect(10 << 20, Algorithm::two_shot);
      expect((10 << 20) + 4, Algorithm::none);
    }
  });
}

TEST_P(LegacyAllReduce, DeclinesWhatTheOriginalDeclines) {
  const AllStreams streams(ranks(), {DType::f16, DType::f32, DType::bf16, DType::f64});
  run_legacy(kSmallScratch, [&](Group& group) {
    Workspace workspace(backend(), group, 200 << 10);
    const auto expect = [&](DType type, ReduceOp op, std::size_t count, Algorithm algorithm,
                            std::size_t shift = 0) {
      CollectiveCase each{.type = type, .op = op, .count = count, .algorithm = {}, .shift = shift};
      EXPECT_EQ(workspace.run(each, streams[type]), algorithm) << each.describe();
    };
    expect(DType::f32, ReduceOp::sum, 16, Algorithm::one_shot);
    expect(DType::f16, ReduceOp::sum, 16, Algorithm::none);
    expect(DType::f64, ReduceOp::sum, 16, Algorithm::none);
    expect(DType::f32, ReduceOp::max, 16, Algorithm::none);
    expect(DType::bf16, ReduceOp::sum, 16, Algorithm::one_shot);
    expect(DType::bf16, ReduceOp::sum, 17, Algorithm::none);  // 34 bytes
    // Ranks on GPUs do not exchange their alignment, so they accept what the original declines.
    const Algorithm misaligned = backend().on_gpus ? Algorithm::one_shot : Algorithm::none;
    expect(DType::bf16, ReduceOp::sum, 16, misaligned, 1);
    // Misaligned on one rank alone: all ranks make the same choice.
    for (int r = 0; r < group.size(); ++r) {
      expect(DType::bf16, ReduceOp::sum, 16, misaligned, group.rank() == Rank{r} ? 1 : 0);
    }
    // No more than the buffer holds.
    expect(DType::f32, ReduceOp::sum, kSmallScratch / 4, Algorithm::one_shot);
    expect(DType::f32, ReduceOp::sum, kSmallScratch / 4 + 1, Algorithm::none);
  });
}

TEST_P(LegacyAllReduce, ForcingAnAlgorithmOverridesThePolicy) {
  const AllStreams streams(ranks(), {DType::f16});
  run_legacy(kSmallScratch, [&](Group& group) {
    Workspace workspace(backend(), group, 200 << 10);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      CollectiveCase each{.type = DType::f16, .count = 50021, .algorithm = algorithm, .shift = 1};
      EXPECT_EQ(workspace.run(each, streams[DType::f16]), algorithm);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, LegacyAllReduce, ::testing::ValuesIn(parameters(&Backend::few_sizes)), name_of);

}  // namespace
}  // namespace onehop::testing
