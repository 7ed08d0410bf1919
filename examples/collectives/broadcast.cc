// SPDX-License-Identifier: Apache-2.0
// Rank 0 decides, and every rank learns the decision.
//
//   onehop launch -n 3 -- ./collective_broadcast
#include <onehop/onehop.h>

#include <array>
#include <cstdint>
#include <cstdio>

int main() {
  onehop::Group group = onehop::Group::from_env();
  std::array<std::int64_t, 2> settings{};
  if (group.rank() == onehop::Rank{0}) settings = {4096, 42};
  onehop::broadcast(group, settings.data(), settings.data(), settings.size(), onehop::DType::i64,
                    onehop::Rank{0});

  std::printf("rank %d: batch %lld, seed %lld\n", group.rank().value, static_cast<long long>(settings[0]),
              static_cast<long long>(settings[1]));
  return settings == std::array<std::int64_t, 2>{4096, 42} ? 0 : 1;
}
