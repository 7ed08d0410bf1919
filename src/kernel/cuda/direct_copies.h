// SPDX-License-Identifier: Apache-2.0
// Exchanges and all-reduces in which copy engines write directly into the peers' symmetric memory: the host
// side of direct.cuh.
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
  /// `segments` has those of all ranks; they must outlive this object.
  DirectCopies(const CudaDriver& driver, DeviceId device, int rank, const std::vector<std::byte*>& segments);
  ~DirectCopies();
  DirectCopies(const DirectCopies&) = delete;
  DirectCopies& operator=(const DirectCopies&) = delete;

  /// Queues a call that moves blocks.
  void exchange(const CollectiveCall& call, const SymmetricOutput& outputs, const DeviceGuard& guard,
                CUstream queue);
  /// Queues an all-reduce of a multiple of 16 bytes per rank, to outputs aligned to 16 bytes. `add` is the
  /// kernel of copies.cuh for its type and reduction.
  void all_reduce(const CollectiveCall& call, const DevicePlan& plan, const SymmetricOutput& outputs,
                  CUfunction add, const DeviceGuard& guard, CUstream queue);
  /// Queues a barrier of all ranks. It fails unless all ranks name the same window.
  void meet(std::uint64_t window, DeviceFault::Phase phase, const DeviceGuard& guard, CUstream queue);

 private:
  struct Plain {};  ///< tag: creates nothing; from then on the destructor runs
  DirectCopies(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments);

  /// Events in the two streams.
  enum Mark : std::size_t { kMet, kCopied, kCopiedSecond, kMarks };
  void mark(Mark mark, CUstream stream);
  /// Makes later work on `stream` wait for the mark.
  void await(Mark mark, CUstream stream);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, CUstream stream);
  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }

  const CudaDriver& driver_;
  const int rank_;
  const std::vector<std::byte*>& segments_;
  CUfunction meet_ = nullptr;
  CUstream beside_ = nullptr;  ///< for copies that overlap the copies or kernels of the caller's stream
  std::array<CUevent, kMarks> marks_{};
};

}  // namespace onehop
