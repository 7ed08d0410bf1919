// SPDX-License-Identifier: Apache-2.0
// Rank 0 prints what every rank measured.
//
//   onehop launch -n 3 -- ./collective_gather
#include <onehop/onehop.h>

#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const bool root = group.rank() == onehop::Rank{0};
  const double measured = 1.5 * group.rank().value;
  std::vector<double> all(root ? static_cast<std::size_t>(group.size()) : 0);
  onehop::gather(group, &measured, all.data(), 1, onehop::DType::f64, onehop::Rank{0});

  for (std::size_t r = 0; r < all.size(); ++r) {
    std::printf("rank %zu: %g s\n", r, all[r]);
    if (all[r] != 1.5 * static_cast<double>(r)) return 1;
  }
  return 0;
}
