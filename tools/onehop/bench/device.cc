// SPDX-License-Identifier: Apache-2.0
#include "bench/device.h"

#include <algorithm>

#include "base/check.h"

namespace onehop::cli {
namespace {

constexpr int kDefaultHostRanks = 4;

}  // namespace

bool use_gpus(DeviceChoice choice, const GpuCount& gpus, std::optional<int> ranks, bool may_share) {
  if (choice == DeviceChoice::host) return false;
  const int wanted = ranks.value_or(2);
  const bool fits = gpus.count >= wanted && wanted <= kMaxDevices;
  if (choice == DeviceChoice::automatic) return fits;
  if (gpus.count == 0) fail(ErrorCode::unsupported, "--device cuda: no GPU: {}", gpus.why);
  require(wanted <= kMaxDevices, "--ranks {}: a group has at most {} GPUs", wanted, kMaxDevices);
  require(fits || may_share,
          "--device cuda: {} rank{} but {} GPU{} in sight (CUDA_VISIBLE_DEVICES may hide some; "
          "ONEHOP_ALLOW_OVERLAPPING_DEVICES=1 lets ranks share one, for tests)",
          wanted, wanted == 1 ? "" : "s", gpus.count, gpus.count == 1 ? "" : "s");
  return true;
}

int default_ranks(bool cuda, const GpuCount& gpus) {
  return cuda ? std::clamp(gpus.count, 2, kMaxDevices) : kDefaultHostRanks;
}

DeviceId device_of(int local_rank, int gpus, bool may_share) {
  if (local_rank < gpus) return DeviceId{local_rank};
  require(gpus == 1 || (may_share && gpus > 0), "rank {} of this machine has no GPU: {} in sight", local_rank,
          gpus);
  return DeviceId{local_rank % gpus};
}

}  // namespace onehop::cli
