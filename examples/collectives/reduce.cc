// SPDX-License-Identifier: Apache-2.0
// The time of the slowest rank, which only rank 0 needs.
//
//   onehop launch -n 3 -- ./collective_reduce
#include <onehop/onehop.h>

#include <cstdio>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const double seconds = 1.5 * group.rank().value;
  double slowest = 0;
  onehop::reduce(group, &seconds, &slowest, 1, onehop::DType::f64, onehop::ReduceOp::max, onehop::Rank{0});

  if (group.rank() != onehop::Rank{0}) return slowest == 0 ? 0 : 1;
  std::printf("the slowest of %d ranks took %g s\n", group.size(), slowest);
  return slowest == 1.5 * (group.size() - 1) ? 0 : 1;
}
