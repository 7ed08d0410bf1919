// SPDX-License-Identifier: Apache-2.0
// Rank 0 reads a batch and distributes it.
//
//   onehop launch -n 3 -- ./collective_scatter
#include <onehop/onehop.h>

#include <cstdio>
#include <numeric>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  constexpr std::size_t kShare = 100;
  std::vector<float> batch(rank == 0 ? kShare * static_cast<std::size_t>(group.size()) : 0);
  std::iota(batch.begin(), batch.end(), 0.0f);
  std::vector<float> share(kShare);
  onehop::scatter(group, batch.data(), share.data(), kShare, onehop::DType::f32, onehop::Rank{0});

  std::vector<float> expected(kShare);
  std::iota(expected.begin(), expected.end(), static_cast<float>(rank) * kShare);
  std::printf("rank %d: samples %g to %g\n", rank, share.front(), share.back());
  return share == expected ? 0 : 1;
}
