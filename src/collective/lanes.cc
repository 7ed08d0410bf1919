// SPDX-License-Identifier: Apache-2.0
#include "collective/lanes.h"

#include <algorithm>

namespace onehop {

std::vector<Lane> to_lanes(std::span<const WaitingBatch> batches) {
  const auto on_stream_of_thread = [&](const Lane& lane) {
    return batches[lane.front()].on_stream_of_thread;
  };
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const WaitingBatch& batch = batches[i];
    const auto shared = std::ranges::find_if(lanes, [&](const Lane& lane) {
      return batch.on_stream_of_thread && on_stream_of_thread(lane) &&
             batches[lane.front()].device == batch.device &&
             std::ranges::none_of(lane, [&](std::size_t each) { return batches[each].group == batch.group; });
    });
    if (shared != lanes.end()) {
      shared->push_back(i);
    } else {
      lanes.push_back({i});
    }
  }
  std::stable_partition(lanes.begin(), lanes.end(), on_stream_of_thread);
  return lanes;
}

}  // namespace onehop
