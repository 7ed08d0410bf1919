// SPDX-License-Identifier: Apache-2.0
// A rank dies without notice in the middle of a job. The others learn which one, form a new group of those that
// are left, and go on. No process is restarted. The launcher's exit code is that of the rank that died, 137.
//
//   onehop launch -n 4 --keep-going -- ./survive_dead_rank           any number of ranks from 3
#include <onehop/onehop.h>

#include <csignal>
#include <cstdio>
#include <vector>

namespace {

// True when all ranks contributed: each adds 1.
bool reduce(onehop::Group& group) {
  std::vector<float> data(100'000, 1);
  onehop::all_reduce(group, std::span(data));
  for (const float value : data) {
    if (value != static_cast<float>(group.size())) return false;
  }
  return true;
}

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  const int rank = group.rank().value;
  const int size = group.size();
  if (size < 3) {
    if (rank == 0) std::fprintf(stderr, "survive_dead_rank: needs at least 3 ranks, so that 2 survive\n");
    return 2;
  }

  onehop::Rank lost;
  try {
    for (int call = 0;; ++call) {
      if (rank == size - 1 && call == 10) (void)std::raise(SIGKILL);
      if (!reduce(group)) return 1;
    }
  } catch (const onehop::Error& error) {
    if (error.code() != onehop::ErrorCode::peer_lost) throw;
    std::printf("rank %d: %s\n", rank, error.what());
    lost = error.origin();
  }
  if (lost.value != size - 1) return 1;
  onehop::Group survivors = group.shrink();
  const bool right = reduce(survivors);
  std::printf("rank %d is rank %d of %d now; the sums are %s\n", rank, survivors.rank().value,
              survivors.size(), right ? "right" : "wrong");
  return right ? 0 : 1;
}
