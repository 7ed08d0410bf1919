// SPDX-License-Identifier: Apache-2.0
// Plans of all-reduces with a tuning table.
#include <gtest/gtest.h>

#include "collective/plan_testing.h"
#include "kernel/cuda/call_params.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

using namespace plan_testing;

Tuning one_row(Backend backend, int ranks, TypeClass types, const Way& way, std::uint64_t up_to = kNoLimit) {
  return {.device = "",
          .rows = {{.backend = backend, .ranks = ranks, .types = types, .up_to = up_to, .way = way}}};
}

PlanRequest with(const Tuning& tuning, int ranks, std::size_t bytes, DType type = DType::bf16) {
  PlanRequest each = request(ranks, bytes);
  each.type = type;
  each.staging_bytes = 16 * kMiB;
  each.tuning = &tuning;
  return each;
}

bool same(const DevicePlan& a, const DevicePlan& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol && a.launch_bytes == b.launch_bytes &&
         a.shape.grid == b.shape.grid && a.shape.block == b.shape.block && a.shape.early == b.shape.early;
}

bool same(const Plan& a, const Plan& b) {
  return a.algorithm == b.algorithm && a.chunk == b.chunk;
}

TEST(TunedPlan, ARowDecidesUpToItsSize) {
  const Tuning host = one_row(Backend::host, 2, TypeClass::any, HostWay{Algorithm::two_shot, 64 << 10}, 4096);
  EXPECT_TRUE(same(plan_all_reduce(with(host, 2, 4096)), {Algorithm::two_shot, 64 << 10}));
  EXPECT_EQ(plan_all_reduce(with(host, 2, 4097)).algorithm, Algorithm::one_shot);
  EXPECT_EQ(plan_all_reduce(with(host, 3, 4096)).algorithm, Algorithm::one_shot);

  const Tuning cuda = one_row(Backend::cuda, 4, TypeClass::floats,
                              DeviceWay{DeviceProtocol::mail_two_shot, 32, 128}, 64 * kMiB);
  const DevicePlan plan = plan_device_all_reduce(with(cuda, 4, 64 * kMiB));
  EXPECT_EQ(plan.algorithm, Algorithm::two_shot);
  EXPECT_EQ(plan.protocol, DeviceProtocol::mail_two_shot);
  EXPECT_EQ(plan.shape.grid, 32u);
  EXPECT_EQ(plan.shape.block, 128u);
  EXPECT_EQ(plan_device_all_reduce(with(cuda, 4, 64 * kMiB + 16)).protocol, DeviceProtocol::chunks);
  EXPECT_EQ(plan_device_all_reduce(with(cuda, 4, 1 * kMiB, DType::i32)).protocol, DeviceProtocol::chunks);
}

TEST(TunedPlan, ADefaultRowIsAsGoodAsNone) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    const Tuning tuning = one_row(backend, 4, TypeClass::any, DefaultWay{});
    for (const std::size_t bytes : kSizes) {
      PlanRequest without = with(tuning, 4, bytes);
      without.tuning = nullptr;
      EXPECT_TRUE(same(plan_all_reduce(with(tuning, 4, bytes)), plan_all_reduce(without)));
      EXPECT_TRUE(same(plan_device_all_reduce(with(tuning, 4, bytes)), plan_device_all_reduce(without)));
    }
  }
}

TEST(TunedPlan, ForcedAlgorithmsAndTheLegacyPolicyWinOverARow) {
  const Tuning host = one_row(Backend::host, 2, TypeClass::any, HostWay{Algorithm::two_shot, 64 << 10});
  const Tuning cuda =
      one_row(Backend::cuda, 2, TypeClass::floats, DeviceWay{DeviceProtocol::mail_two_shot, 32, 128});
  PlanRequest forced = with(host, 2, kMiB);
  forced.forced = Algorithm::one_shot;
  EXPECT_EQ(plan_all_reduce(forced).algorithm, Algorithm::one_shot);
  forced.tuning = &cuda;
  EXPECT_EQ(plan_device_all_reduce(forced).protocol, DeviceProtocol::mail_one_shot);

  PlanRequest old = with(host, 2, 1024);
  old.policy = AlgorithmPolicy::legacy;
  EXPECT_EQ(plan_all_reduce(old).algorithm, Algorithm::one_shot);
  old.tuning = &cuda;
  EXPECT_EQ(plan_device_all_reduce(old).algorithm, Algorithm::one_shot);
}

TEST(TunedPlan, BlocksAndThreadsAreCutToWhatThereIs) {
  const Tuning mail =
      one_row(Backend::cuda, 4, TypeClass::floats, DeviceWay{DeviceProtocol::mail_two_shot, kAllBlocks, 512});
  PlanRequest each = with(mail, 4, 64 * kMiB);
  each.resident_blocks = 66;
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, 66u);
  EXPECT_EQ(plan_device_all_reduce(each).shape.block, 512u);
  each.op = ReduceOp::max;
  EXPECT_EQ(plan_device_all_reduce(each).shape.block, 256u) << "kernels for other reductions have no more";
  EXPECT_EQ(plan_device_all_reduce(with(mail, 4, 4 * kKiB)).shape.grid, 1u)
      << "no more than there is work for";

  const Tuning chunks = one_row(Backend::cuda, 4, TypeClass::any,
                                DeviceWay{.protocol = DeviceProtocol::chunks, .blocks = kAllBlocks});
  each = with(chunks, 4, 64 * kMiB);
  each.resident_blocks = 200;
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, cuda::kMaxChunkedBlocks);

  const Tuning copies =
      one_row(Backend::cuda, 4, TypeClass::any, DeviceWay{.protocol = DeviceProtocol::copies, .blocks = 8});
  each = with(copies, 4, 1 * kMiB);
  EXPECT_EQ(plan_device_all_reduce(each).protocol, DeviceProtocol::mail_two_shot) << "no memory for them";
  each.copy_bytes = 1 * kMiB;
  EXPECT_EQ(plan_device_all_reduce(each).protocol, DeviceProtocol::copies);
  EXPECT_EQ(plan_device_all_reduce(each).chunk, 64 * kKiB) << "4 rounds";
  EXPECT_EQ(plan_device_all_reduce(each).shape.grid, 8u);
}

TEST(TunedPlan, EveryCandidateIsAPlanOfItsOwnForEverySize) {
  for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
    const DType type = types == TypeClass::floats ? DType::f16 : DType::i64;
    for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
      for (const Way& way : candidate_ways(Backend::cuda, ranks, types)) {
        const Tuning tuning = one_row(Backend::cuda, ranks, types, way);
        for (const std::size_t bytes : kSizes) {
          PlanRequest each = with(tuning, ranks, bytes, type);
          each.resident_blocks = ranks == 3 ? 5 : 132;
          const DevicePlan plan = plan_device_all_reduce(each);
          ASSERT_TRUE(carries(plan.protocol, type));
          if (const auto* wanted = std::get_if<DeviceWay>(&way)) {
            ASSERT_EQ(plan.protocol, wanted->protocol);
            if (wanted->threads != 0) {
              ASSERT_EQ(plan.shape.block, wanted->threads);
            }
            ASSERT_LE(plan.shape.grid, wanted->blocks);
          }
          ASSERT_GT(plan.launch_bytes, 0u);
          ASSERT_TRUE(plan.shape.grid >= 1 && plan.shape.grid <= static_cast<unsigned>(each.resident_blocks));
        }
      }
      for (const Way& way : candidate_ways(Backend::host, ranks, types)) {
        const Tuning tuning = one_row(Backend::host, ranks, types, way);
        const host::StagingLayout layout(64 * kKiB);
        for (const std::size_t bytes : kSizes) {
          PlanRequest each = with(tuning, ranks, bytes, type);
          each.staging_bytes = 64 * kKiB;
          const Plan plan = plan_all_reduce(each);
          ASSERT_TRUE(plan.chunk > 0 && plan.chunk % 64 == 0 && plan.chunk <= layout.input_bytes);
          if (plan.algorithm == Algorithm::two_shot) {
            ASSERT_LE(plan.chunk, layout.max_chunk(ranks));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace onehop
