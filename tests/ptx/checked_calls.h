// SPDX-License-Identifier: Apache-2.0
// Calls of the algorithms on simulated GPUs, with random data, compared with a reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/algorithm.h"
#include "call/call.h"
#include "ptx/simulated_gpus.h"

namespace onehop::ptx {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

/// A call of all ranks.
struct Case {
  const cuda::DeviceAlgorithm* algorithm = nullptr;
  Collective collective = Collective::all_reduce;
  DType type = DType::i32;
  ReduceOp op = ReduceOp::sum;  ///< kWeightedSum: premul_sum with a factor of each rank
  std::size_t count = 0;
  int root = 0;
  bool shifted = false;  ///< inputs and outputs lie anywhere; otherwise they are aligned
  bool in_place = false;
  cuda::LaunchLimits limits{};

  [[nodiscard]] std::string describe() const;
};

class CheckedCalls {
 public:
  CheckedCalls(Kernels& kernels, const cuda::GroupShape& shape, std::uint64_t seed)
      : gpus_(kernels, shape, seed), random_(seed) {}

  [[nodiscard]] SimulatedGpus& gpus() { return gpus_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] int ranks() const { return gpus_.shape().ranks; }

  /// The calls of all ranks, with memory. finish() expects their results.
  [[nodiscard]] std::vector<CollectiveCall> prepare(const Case& each);
  /// The outputs of calls, as symmetric memory.
  [[nodiscard]] static cuda::SymmetricOutput output_of(std::span<const CollectiveCall> calls);

  // Queue calls on all ranks.
  void queue(const Case& each);
  /// Several all-reduces in one launch.
  void queue_fused(std::span<const Case> cases);
  /// Transfers between all pairs; bytes[from][to].
  void queue_exchange(const std::vector<std::vector<std::size_t>>& bytes);

  /// Runs what is queued. Returns what is wrong, or an empty string.
  [[nodiscard]] std::string finish();

  /// Whether calls of a rank have failed; set_failed() makes it so from the start.
  [[nodiscard]] bool has_failed(int rank);
  void set_failed(int rank);
  enum class Poison { whole, partial };
  /// As finish(), but waits may fail. Of floating-point outputs of these ranks, what other ranks contribute to must be
  /// NaN if the rank has failed, or (partial) either NaN or the result, with at least one NaN. The rest of the memory
  /// must be as after a successful call.
  [[nodiscard]] std::string finish_with_failures(std::span<const int> ranks, Poison poison);

 private:
  /// Memory of one rank, and what it must contain at the end.
  struct Checked {
    std::unique_ptr<UserMemory> memory;
    int rank = 0;
    Bytes expected;
    /// The bytes to which other ranks contribute.
    std::vector<std::span<const std::byte>> received{};
  };
  struct Pending {
    std::string name;
    std::size_t element = 1;
    std::deque<Checked> memory{};
  };

  Checked& add(std::span<const std::byte> content, std::size_t shift, bool writable, std::string_view what,
               int rank);
  [[nodiscard]] std::size_t bytes_of(Amount amount, const CollectiveCall& call) const;

  SimulatedGpus gpus_;
  Random random_;
  std::deque<Pending> pending_;
};

}  // namespace onehop::ptx
