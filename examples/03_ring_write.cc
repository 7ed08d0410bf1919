// SPDX-License-Identifier: Apache-2.0
// The classic ring over peer memory: every rank writes directly into its right neighbor's memory and signals
// it. After size - 1 steps each rank holds every rank's block: an all-gather without any copy but the stores.
//
//   onehop launch -n 4 -- ./ring_write
#include <onehop/onehop.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace {

constexpr std::size_t kBlock = 1 << 18;  // elements of one rank's block

std::uint32_t value(int rank, std::size_t i) {
  return static_cast<std::uint32_t>(rank) << 24 | static_cast<std::uint32_t>(i);
}

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const int size = group.size();
  const onehop::Rank right{(rank + 1) % size};
  const onehop::Rank left{(rank + size - 1) % size};

  // Every rank allocates the same number of bytes, for `size` blocks, and maps every other rank's memory.
  const onehop::SymmetricBuffer buffer =
      group.allocate(static_cast<std::size_t>(size) * kBlock * sizeof(std::uint32_t));
  const auto block = [&](std::span<std::uint32_t> part, int owner) {
    return part.subspan(static_cast<std::size_t>(owner) * kBlock, kBlock);
  };
  const std::span<std::uint32_t> mine = buffer.as<std::uint32_t>();
  const std::span<std::uint32_t> theirs = buffer.peer_as<std::uint32_t>(right);

  const auto own = block(mine, rank);
  for (std::size_t i = 0; i < kBlock; ++i) own[i] = value(rank, i);

  for (int step = 0; step + 1 < size; ++step) {
    const int owner = (rank + size - step) % size;  // of the block that arrived last; initially this rank
    const auto from = block(mine, owner);
    std::copy(from.begin(), from.end(), block(theirs, owner).begin());
    buffer.put_signal(right);  // release: publishes the writes above to the rank that waits for the signal
    buffer.wait_signal(
        left);  // acquire: the next block is here. Ends with an error if `left` dies or is late.
  }

  int wrong = 0;
  for (int owner = 0; owner < size; ++owner) {
    const auto part = block(mine, owner);
    for (std::size_t i = 0; i < kBlock; ++i) wrong += part[i] == value(owner, i) ? 0 : 1;
  }
  std::printf("rank %d: %d blocks of %zu KiB went around the ring, %d elements are wrong\n", rank, size,
              kBlock * sizeof(std::uint32_t) >> 10, wrong);
  return wrong == 0 ? 0 : 1;
}
