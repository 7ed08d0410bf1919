// SPDX-License-Identifier: Apache-2.0
// Transposes a matrix of which each rank has one row: every rank gets a column.
//
//   onehop launch -n 3 -- ./collective_all_to_all
#include <onehop/onehop.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  std::vector<std::int32_t> row;
  for (int column = 0; column < group.size(); ++column) row.push_back(10 * rank + column);
  std::vector<std::int32_t> column(row.size());
  onehop::all_to_all(group, row.data(), column.data(), 1, onehop::DType::i32);

  std::printf("rank %d:", rank);
  for (const std::int32_t x : column) std::printf(" %02d", x);
  std::printf("\n");
  for (int s = 0; s < group.size(); ++s) {
    if (column[static_cast<std::size_t>(s)] != 10 * s + rank) return 1;
  }
  return 0;
}
