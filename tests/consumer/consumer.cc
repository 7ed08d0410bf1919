// SPDX-License-Identifier: Apache-2.0
// Includes everything and uses a little of each layer: if this links, any user's program links.
#include <onehop/device/channel.h>
#include <onehop/onehop.h>

#include <cstdio>
#include <thread>
#include <vector>

static_assert(onehop::LLChannel::bytes(2, 64) > onehop::LamportChannel::bytes(2, 64));

int main() {
  const auto store = onehop::memory_store();
  std::vector<float> sums(2);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop::Group group = onehop::Group::join(store, {.rank = onehop::Rank{rank}, .size = 2});
        std::vector<float> data{static_cast<float>(rank + 1)};
        onehop::all_reduce(group, data);
        sums[static_cast<std::size_t>(rank)] = data[0];
      });
    }
  }
  if (sums != std::vector<float>{3, 3}) return 1;
  std::printf("%s %s\n", onehop::version().data(), onehop::to_string(onehop::parse_dtype("bfloat16")).data());
  return 0;
}
