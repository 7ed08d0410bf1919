// SPDX-License-Identifier: Apache-2.0
// Sub-groups: ranks form a grid of pairs. Each belongs to a row (its pair, as in tensor parallelism) and to a
// column (one rank of every pair, as in data parallelism). It reduces in both.
//
//   onehop launch -n 4 -- ./split           any even number of ranks from 4
#include <onehop/onehop.h>

#include <array>
#include <cstdio>

namespace {

// The sum of all ranks' numbers over a group.
int sum_over(onehop::Group& group, int number) {
  std::array<int, 1> data{number};
  onehop::all_reduce(group, std::span<int>(data));
  return data[0];
}

}  // namespace

int main() {
  onehop::Group world = onehop::Group::from_env();
  const int rank = world.rank().value;
  const int size = world.size();
  if (size < 4 || size % 2 != 0) {
    if (rank == 0) std::fprintf(stderr, "split: needs an even number of ranks from 4, got %d\n", size);
    return 2;
  }

  // Ranks with the same color form a group. Sub-groups need no store: they get their sockets through the
  // parent's.
  onehop::Group row = world.split(rank / 2).value();
  onehop::Group column = world.split(rank % 2).value();

  // Three groups exist at once; calls of different groups are independent of each other.
  const int in_row = sum_over(row, rank);
  const int in_column = sum_over(column, rank);
  const int in_world = sum_over(world, rank);

  const int first = rank / 2 * 2;
  const int half = size / 2;
  const bool right = in_row == first + first + 1 &&                         // r + (r + 1)
                     in_column == half * (half - 1) + half * (rank % 2) &&  // every second rank
                     in_world == size * (size - 1) / 2;
  std::printf("rank %d: row %d of %d sums to %d, column %d of %d to %d, world to %d\n", rank,
              row.rank().value, row.size(), in_row, column.rank().value, column.size(), in_column, in_world);
  return right ? 0 : 1;
}
