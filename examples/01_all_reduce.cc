// SPDX-License-Identifier: Apache-2.0
// Every rank contributes a million elements equal to its rank + 1; every rank gets the sums.
//   onehop launch -n 4 -- build/native/examples/all_reduce
#include <onehop/onehop.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() try {
  onehop::Group group = onehop::Group::from_env();  // onehop launch, torchrun, mpirun, srun
  const int rank = int(group.rank());
  const int size = group.size();

  std::vector<float> data(1'000'000, static_cast<float>(rank + 1));
  onehop::all_reduce(group, data);  // sum, in place

  const float sum = static_cast<float>(size * (size + 1)) / 2;
  const auto right = std::count(data.begin(), data.end(), sum);
  std::printf("rank %d of %d: %td of 1000000 sums are %g\n", rank, size, right, sum);
  return right == 1'000'000 ? 0 : 1;
} catch (const onehop::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());  // what went wrong, on which rank, and what to try
  return 1;
}
