// SPDX-License-Identifier: Apache-2.0
// One way to run collectives on GPUs. Each algorithm has a folder below algorithms/ with its kernels, limits,
// scratch memory and launches; algorithms/table.cc lists all of them and says when each is chosen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/algorithm.h"
#include "backend/cuda/launcher.h"

namespace onehop::cuda {

/// Where in symmetric memory all ranks declare their outputs to be. They must declare the same window, which is
/// checked on the device.
struct SymmetricOutput {
  std::uint64_t window = 0;                    ///< identifies the buffer and the offset in it
  std::array<std::byte*, kMaxDevices> outs{};  ///< by rank, as mapped for this rank

  /// What a rank declares instead if its input is the same memory, so that ranks on which it is not notice.
  [[nodiscard]] std::uint64_t in_place_window() const { return ~window; }
};

/// The launch parameters that a table gives. Where one is missing, the algorithm determines it.
struct LaunchLimits {
  std::optional<unsigned> blocks{};
  std::optional<unsigned> threads{};
};

struct DeviceAlgorithm : AlgorithmTraits {
  /// Queues a call that has bytes to move. `output` is set for algorithms that need Buffers::symmetric.
  void (*run)(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
              const SymmetricOutput* output);
  std::span<const ReductionKernel* const> kernels{};
  std::span<const PlainKernel* const> plain_kernels{};
  std::span<const ScratchRegion* const> scratch{};
};

/// All of them, in the order of algorithms().
[[nodiscard]] std::span<const DeviceAlgorithm* const> device_algorithms();

[[nodiscard]] constexpr std::size_t ceil_div(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}
[[nodiscard]] inline bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace onehop::cuda
