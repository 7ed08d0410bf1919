// SPDX-License-Identifier: Apache-2.0
// Blocks circulate in a ring, like the keys and values of ring attention. Every rank works on its block while
// the next one is in transit. Both directions of a pair are used at once. So the send and the recv of each
// step form one GroupCall, which makes their order irrelevant.
//
//   onehop launch -n 4 -- ./ring_pass
#include <onehop/onehop.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kNumbers = 1 << 20;  // per block

double sum_of(const std::vector<float>& block) {
  double sum = 0;
  for (const float x : block) sum += x;
  return sum;
}

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const int ranks = group.size();
  const onehop::Rank right{(rank + 1) % ranks};
  const onehop::Rank left{(rank + ranks - 1) % ranks};

  std::vector<float> here(kNumbers, static_cast<float>(rank + 1));
  std::vector<float> next(kNumbers);
  double total = sum_of(here);
  for (int turn = 1; turn < ranks; ++turn) {
    onehop::GroupCall both;
    onehop::send(group, here.data(), kNumbers, onehop::DType::f32, right);
    onehop::recv(group, next.data(), kNumbers, onehop::DType::f32, left);
    both.end();
    std::swap(here, next);
    total += sum_of(here);
  }

  const double expected = static_cast<double>(kNumbers) * ranks * (ranks + 1) / 2;
  std::printf("rank %d: saw %d blocks of %zu numbers, sum %.0f, expected %.0f\n", rank, ranks, kNumbers,
              total, expected);
  return total == expected ? 0 : 1;
}
