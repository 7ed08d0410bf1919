// SPDX-License-Identifier: Apache-2.0
// Rank s has s + 1 numbers for every rank. The blocks of the output are adjacent.
//
//   onehop launch -n 3 -- ./collective_all_to_all_v
#include <onehop/onehop.h>

#include <cstdio>
#include <vector>

int main() {
  onehop::Group group = onehop::Group::from_env();
  const auto rank = static_cast<std::size_t>(group.rank().value);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<float> in;
  std::vector<float> expected;
  std::vector<std::size_t> sent, sent_at, received, received_at;
  for (std::size_t r = 0; r < ranks; ++r) {
    sent_at.push_back(in.size());
    sent.push_back(rank + 1);
    in.insert(in.end(), sent[r], static_cast<float>(10 * rank + r));
    received_at.push_back(expected.size());
    received.push_back(r + 1);
    expected.insert(expected.end(), received[r], static_cast<float>(10 * r + rank));
  }
  std::vector<float> out(expected.size());
  onehop::all_to_all_v(group, in.data(), {.counts = sent, .offsets = sent_at}, out.data(),
                       {.counts = received, .offsets = received_at}, onehop::DType::f32);

  std::printf("rank %zu: sent %zu numbers, got %zu\n", rank, in.size(), out.size());
  return out == expected ? 0 : 1;
}
