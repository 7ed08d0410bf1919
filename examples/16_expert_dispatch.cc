// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: every rank holds tokens and is one expert. Tokens travel to the expert that a router
// picked for each, are processed there, and return. This takes two all_to_all_v, and an all_to_all that tells
// every rank how many tokens to expect.
//
//   onehop launch -n 4 -- ./expert_dispatch
#include <onehop/onehop.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

constexpr std::size_t kTokens = 1000;
constexpr std::size_t kWidth = 64;  // numbers in a token

using Counts = std::vector<std::size_t>;

Counts begin_of_each(const Counts& counts) {
  Counts offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  const auto rank = static_cast<std::size_t>(group.rank().value);
  const auto experts = static_cast<std::size_t>(group.size());
  const auto token = [&](std::size_t i) { return static_cast<float>(rank * kTokens + i); };
  const auto route = [&](std::size_t i) {
    return (i * i + i % 3 * rank) % experts;
  };  // uneven, as from a real router

  // Tokens, ordered by expert.
  Counts sent(experts, 0);
  std::vector<float> out;
  std::vector<std::size_t> order;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    for (std::size_t i = 0; i < kTokens; ++i) {
      if (route(i) != expert) continue;
      out.insert(out.end(), kWidth, token(i));
      order.push_back(i);
      sent[expert] += kWidth;
    }
  }

  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  Counts received(experts);
  onehop::all_to_all(group, sent.data(), received.data(), 1, onehop::DType::u64);

  const Counts sent_at = begin_of_each(sent);
  const Counts received_at = begin_of_each(received);
  const onehop::Blocks mine{.counts = sent, .offsets = sent_at};
  const onehop::Blocks theirs{.counts = received, .offsets = received_at};
  std::vector<float> work(received_at.back() + received.back());
  onehop::all_to_all_v(group, out.data(), mine, work.data(), theirs, onehop::DType::f32);
  for (float& x : work) x = -x;  // this expert's computation
  onehop::all_to_all_v(group, work.data(), theirs, out.data(), mine, onehop::DType::f32);

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != -token(order[i / kWidth])) ++wrong;
  }
  std::printf("rank %zu: worked on %zu tokens, got %zu back, %zu wrong numbers\n", rank, work.size() / kWidth,
              order.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
