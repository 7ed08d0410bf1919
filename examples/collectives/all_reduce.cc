// SPDX-License-Identifier: Apache-2.0
// The mean of all ranks' gradients, in place.
//
//   onehop launch -n 3 -- ./collective_all_reduce
#include <onehop/onehop.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  std::vector<float> gradients(1000, static_cast<float>(group.rank().value));
  onehop::all_reduce(group, gradients.data(), gradients.data(), gradients.size(), onehop::DType::f32,
                     onehop::ReduceOp::avg);

  const float mean = static_cast<float>(group.size() - 1) / 2;
  const auto right = std::count(gradients.begin(), gradients.end(), mean);
  std::printf("rank %d: %td of 1000 means are %g\n", group.rank().value, right, mean);
  return right == 1000 ? 0 : 1;
}
