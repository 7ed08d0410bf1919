// SPDX-License-Identifier: Apache-2.0
// All-reduces by copy engines: the host side of copies.cuh.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "driver/cuda_driver.h"
#include "kernel/cuda/call_params.h"
#include "kernel/device_team.h"

namespace onehop {

/// One rank's copy stream, and the events that order it with the kernels in the caller's stream. Used by one
/// thread at a time, with the device current.
class CopyEngine {
 public:
  /// `segments` has those of all ranks; they must outlive this object.
  CopyEngine(const CudaDriver& driver, DeviceId device, int rank, const std::vector<std::byte*>& segments,
             const cuda::SegmentLayout& layout);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Queues a call; `add` is the kernel for its type and reduction.
  void all_reduce(const CollectiveCall& call, const DevicePlan& plan, CUfunction add,
                  const DeviceGuard& guard, CUstream queue);

 private:
  struct Plain {};  ///< tag: creates nothing; from then on the destructor runs
  CopyEngine(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments,
             const cuda::SegmentLayout& layout);

  enum Phase : std::size_t { kScatter, kGather };
  /// Events in the two streams.
  enum Mark : std::size_t { kKernels, kScattered, kGatheredEven, kGatheredOdd, kMarks };

  [[nodiscard]] static Mark gathered(std::size_t round) {
    return round % 2 == 0 ? kGatheredEven : kGatheredOdd;
  }
  void mark(Mark mark, CUstream stream);
  /// Makes later work on `stream` wait for the mark.
  void await(Mark mark, CUstream stream);
  [[nodiscard]] std::byte* slots(int on, Phase phase, std::size_t round) const;
  void scatter(const CollectiveCall& call, const DevicePlan& plan, std::size_t round);
  void gather(const CollectiveCall& call, const DevicePlan& plan, std::size_t round);
  /// Copies the round's part of the piece of rank `of` to this rank's slot on `to`.
  void copy(const std::byte* message, const CollectiveCall& call, const DevicePlan& plan, int of, int to,
            Phase phase, std::size_t round);
  void launch(CUfunction kernel, const CollectiveCall& call, const DevicePlan& plan, const DeviceGuard& guard,
              Phase phase, std::size_t round, CUstream queue);

  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }
  [[nodiscard]] std::size_t piece(const CollectiveCall& call) const;

  const CudaDriver& driver_;
  const int rank_;
  const std::vector<std::byte*>& segments_;
  const cuda::SegmentLayout layout_;
  CUfunction collect_ = nullptr;
  CUstream copies_ = nullptr;
  std::array<CUevent, kMarks> marks_{};
};

}  // namespace onehop
