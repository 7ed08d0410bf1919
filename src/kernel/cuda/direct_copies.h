// SPDX-License-Identifier: Apache-2.0
// Exchanges and all-reduces whose bytes copy engines bring straight into the peers' symmetric memory: the
// host's side of direct.cuh.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "driver/cuda_driver.h"
#include "kernel/cuda/call_params.h"
#include "kernel/device_team.h"

namespace onehop {

/// Used by one thread at a time, with the device current.
class DirectCopies {
 public:
  /// `segments` are those of all ranks and outlive this.
  DirectCopies(const CudaDriver& driver, DeviceId device, int rank, const std::vector<std::byte*>& segments);
  ~DirectCopies();
  DirectCopies(const DirectCopies&) = delete;
  DirectCopies& operator=(const DirectCopies&) = delete;

  /// A call that moves blocks.
  void exchange(const CollectiveCall& call, const SymmetricOutput& outputs, const DeviceGuard& guard,
                CUstream queue);
  /// An all-reduce of a multiple of 16 bytes for each rank, to outputs that are aligned to 16 bytes; `add` is
  /// the kernel of copies.cuh for its type and reduction.
  void all_reduce(const CollectiveCall& call, const DevicePlan& plan, const SymmetricOutput& outputs,
                  CUfunction add, const DeviceGuard& guard, CUstream queue);
  /// Queues a barrier of all ranks, which fails unless all name the same window.
  void meet(std::uint64_t window, DeviceFault::Phase phase, const DeviceGuard& guard, CUstream queue);

 private:
  struct Plain {};  ///< nothing created yet; the destructor runs from then on
  DirectCopies(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments);

  /// Points in the two streams.
  enum Mark : std::size_t { kMet, kCopied, kCopiedSecond, kMarks };
  void mark(Mark mark, CUstream stream);
  /// What is queued on `stream` from now on waits for the mark.
  void await(Mark mark, CUstream stream);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, CUstream stream);
  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }

  const CudaDriver& driver_;
  const int rank_;
  const std::vector<std::byte*>& segments_;
  CUfunction meet_ = nullptr;
  CUstream beside_ = nullptr;  ///< copies beside those, or the kernels, of the caller's stream
  std::array<CUevent, kMarks> marks_{};
};

}  // namespace onehop
