// SPDX-License-Identifier: Apache-2.0
// Ranks need not be processes. Here four threads of one program join through an in-process store, share
// memory and reduce. The library maps that memory once; only small messages go through sockets.
//
//   ./threads_as_ranks
#include <onehop/onehop.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 4;
constexpr std::size_t kCount = 1 << 16;

// Returns whether this rank saw the expected data.
bool run_rank(const std::shared_ptr<onehop::Store>& store, int rank) {
  onehop::Group group = onehop::Group::join(store, {.rank = onehop::Rank{rank}, .size = kRanks});

  std::vector<double> data(kCount);
  for (std::size_t i = 0; i < kCount; ++i) data[i] = static_cast<double>(i) * (rank + 1);
  onehop::all_reduce(group, std::span(data), onehop::ReduceOp::max);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (data[i] != static_cast<double>(i) * kRanks) return false;
  }

  // One mapping: a peer's memory has the same address for every rank of this process.
  const onehop::SymmetricBuffer buffer = group.allocate(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.peer(onehop::Rank{0}));
  const std::vector<std::string> all = group.all_gather(std::to_string(address));
  for (const std::string& each : all) {
    if (each != all.front()) return false;
  }
  return true;
}

}  // namespace

int main() {
  const std::shared_ptr<onehop::Store> store = onehop::memory_store();
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          if (run_rank(store, rank)) ++right;
        } catch (const onehop::Error& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
      });
    }
  }
  std::printf("%d of %d threads found the maximum of %zu elements, in memory mapped once\n", right.load(),
              kRanks, kCount);
  return right == kRanks ? 0 : 1;
}
