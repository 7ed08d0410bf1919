// Exchanges whose bytes copy engines bring straight into the peers' symmetric memory: the host's side of
// direct.cuh.
#pragma once

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

  /// A call with a place.
  void exchange(const DeviceExchange& call, const DeviceGuard& guard, CUstream queue);

 private:
  struct Plain {};  ///< nothing created yet; the destructor runs from then on
  DirectCopies(Plain, const CudaDriver& driver, int rank, const std::vector<std::byte*>& segments);

  void meet(const DeviceExchange& call, const DeviceGuard& guard, CUstream queue);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, CUstream stream);
  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }

  const CudaDriver& driver_;
  const int rank_;
  const std::vector<std::byte*>& segments_;
  CUfunction meet_ = nullptr;
  CUstream beside_ = nullptr;  ///< for what stays on this rank
  CUevent begun_ = nullptr;
  CUevent kept_ = nullptr;
};

}  // namespace onehop
