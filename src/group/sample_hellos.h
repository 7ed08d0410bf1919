// SPDX-License-Identifier: Apache-2.0
// Sample data for tests: ranks that fit together, and the outcomes of peer checks between their GPUs.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/peer_record.h"
#include "group/messages.h"

namespace onehop {

inline ShareMethods by_descriptors() {
  ShareMethods usable;
  usable.add(ShareBy::posix_fd);
  return usable;
}

inline std::vector<Hello> hellos(
    int size, const std::function<void(Hello&)>& change = [](Hello&) {}) {
  std::vector<Hello> all;
  for (int r = 0; r < size; ++r) {
    Hello hello{.version = "0.1.0",
                .rank = r,
                .size = size,
                .boot_id = "boot",
                .hostname = "alpha",
                .device = fmt::format("GPU-{}", r),
                .overlap = false,
                .scratch_bytes = 10 << 20,
                .share_by = ShareBy::automatic,
                .share_methods = by_descriptors(),
                .uid = 1000,
                .socket = "/tmp/socket"};
    change(hello);
    all.push_back(hello);
  }
  return all;
}

/// Results of peer checks between the GPUs of hellos(3), all good except for one pair.
inline peer_check::Outcomes outcomes_but(int from, int to, std::optional<bool> outcome) {
  peer_check::Outcomes all;
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      if (a != b) all[{fmt::format("GPU-{}", a), fmt::format("GPU-{}", b)}] = true;
    }
  }
  const std::pair pair(fmt::format("GPU-{}", from), fmt::format("GPU-{}", to));
  all.erase(pair);
  if (outcome) all[pair] = *outcome;
  return all;
}

}  // namespace onehop
