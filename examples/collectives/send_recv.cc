// SPDX-License-Identifier: Apache-2.0
// A number goes from rank to rank, as in a pipeline, and grows at each step. Then neighbors swap their
// numbers. Both of them send and receive, so they use a GroupCall.
//
//   onehop launch -n 3 -- ./collective_send_recv
#include <onehop/onehop.h>

#include <cstdint>
#include <cstdio>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const int ranks = group.size();
  std::int64_t sum = 0;
  if (rank > 0) onehop::recv(group, &sum, 1, onehop::DType::i64, onehop::Rank{rank - 1});
  sum += rank;
  if (rank + 1 < ranks) onehop::send(group, &sum, 1, onehop::DType::i64, onehop::Rank{rank + 1});

  std::int64_t theirs = -1;
  const int neighbor = rank ^ 1;
  if (neighbor < ranks) {
    onehop::GroupCall scope;
    onehop::send(group, &sum, 1, onehop::DType::i64, onehop::Rank{neighbor});
    onehop::recv(group, &theirs, 1, onehop::DType::i64, onehop::Rank{neighbor});
    scope.end();
  }

  std::printf("rank %d: %lld, its neighbor: %lld\n", rank, static_cast<long long>(sum),
              static_cast<long long>(theirs));
  const int expected = neighbor < ranks ? neighbor * (neighbor + 1) / 2 : -1;
  return sum == rank * (rank + 1) / 2 && theirs == expected ? 0 : 1;
}
