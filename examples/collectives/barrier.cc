// SPDX-License-Identifier: Apache-2.0
// Every rank writes into symmetric memory; after the barrier, every rank reads what the others wrote.
//
//   onehop launch -n 3 -- ./collective_barrier
#include <onehop/onehop.h>

#include <cstdint>
#include <cstdio>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const onehop::SymmetricBuffer buffer = group.allocate(sizeof(std::int64_t));
  buffer.as<std::int64_t>()[0] = rank + 1;
  group.barrier();

  std::int64_t sum = 0;
  for (int r = 0; r < group.size(); ++r) sum += buffer.peer_as<std::int64_t>(onehop::Rank{r})[0];
  std::printf("rank %d: the sum is %lld\n", rank, static_cast<long long>(sum));
  return sum == group.size() * (group.size() + 1) / 2 ? 0 : 1;
}
