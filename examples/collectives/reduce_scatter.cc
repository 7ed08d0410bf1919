// SPDX-License-Identifier: Apache-2.0
// Every rank keeps the sums of the block that it owns, like optimizers that shard their state.
//
//   onehop launch -n 3 -- ./collective_reduce_scatter
#include <onehop/onehop.h>

#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const int ranks = group.size();
  constexpr std::size_t kBlock = 4;
  std::vector<float> in;  // for rank r: (r + 1) * (this rank + 1)
  for (int r = 0; r < ranks; ++r) in.insert(in.end(), kBlock, static_cast<float>((r + 1) * (rank + 1)));
  std::vector<float> own(kBlock);
  onehop::reduce_scatter(group, in.data(), own.data(), kBlock, onehop::DType::f32);

  const int sum = ranks * (ranks + 1) / 2;  // the sum of the ranks' factors
  const std::vector<float> expected(kBlock, static_cast<float>((rank + 1) * sum));
  std::printf("rank %d: %zu sums of %g\n", rank, own.size(), own[0]);
  return own == expected ? 0 : 1;
}
