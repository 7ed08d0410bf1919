// SPDX-License-Identifier: Apache-2.0
// Gathers the parts of a vector in place: each rank fills its own block of it.
//
//   onehop launch -n 3 -- ./collective_all_gather
#include <onehop/onehop.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  constexpr std::size_t kBlock = 2;
  std::vector<std::int32_t> all(kBlock * static_cast<std::size_t>(group.size()));
  std::int32_t* const mine = all.data() + kBlock * static_cast<std::size_t>(rank);
  mine[0] = rank;
  mine[1] = -rank;
  onehop::all_gather(group, mine, all.data(), kBlock, onehop::DType::i32);

  std::printf("rank %d:", rank);
  for (const std::int32_t x : all) std::printf(" %d", x);
  std::printf("\n");
  for (int r = 0; r < group.size(); ++r) {
    const std::int32_t* const block = all.data() + kBlock * static_cast<std::size_t>(r);
    if (block[0] != r || block[1] != -r) return 1;
  }
  return 0;
}
