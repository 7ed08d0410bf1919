// Every rank contributes its rank + 1 a million times; every rank gets the sums.
#include <onehop/onehop.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();  // onehop launch, torchrun, mpirun, srun
  const int rank = group.rank().value;
  const int size = group.size();

  std::vector<float> data(1'000'000, static_cast<float>(rank + 1));
  onehop::all_reduce(group, std::span(data));  // sum, in place

  const float sum = static_cast<float>(size * (size + 1)) / 2;
  const auto right = std::count(data.begin(), data.end(), sum);
  std::printf("rank %d of %d: %td of 1000000 sums are %g\n", rank, size, right, sum);
  return right == 1'000'000 ? 0 : 1;
}
