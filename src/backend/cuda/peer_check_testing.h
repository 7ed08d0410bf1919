// SPDX-License-Identifier: Apache-2.0
// A simulated machine in host memory. Its links can be broken in the ways in which real ones fail.
#pragma once

#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "backend/cuda/peer_check_params.h"
#include "driver/cuda_driver.h"

namespace onehop::peer_check_testing {

inline constexpr int kDevices = 3;

/// A machine. Streams and contexts are device numbers + 1; work is executed as soon as it is queued.
struct Machine {
  CUcontext current = nullptr;
  std::map<CUdeviceptr, std::pair<int, std::size_t>> memory;  ///< address: device, size
  std::set<void*> pinned;
  int streams = 0;
  int events = 0;
  int kernels_run = 0;
  bool native_atomics = true;
  std::size_t largest_allocation = 1u << 20;

  // The faults of the machine.
  std::set<std::pair<int, int>> no_access;
  /// Called after a kernel; may corrupt its result.
  std::function<void(const char* kernel, int device, std::byte* target)> after;
  /// Name of a kernel; hangs on device 1.
  std::string hangs_in;
  /// Name of a kernel; faults on device 1.
  std::string faults_in;
  bool hanging = false;
  CUresult sticky = CUDA_SUCCESS;
  peer_check::PingParams waiting_ping{};  ///< of the side that was launched first
  bool flags_arrive = true;

  [[nodiscard]] int device_of(const void* address) const {
    auto next = memory.upper_bound(reinterpret_cast<CUdeviceptr>(address));
    return next == memory.begin() ? -1 : std::prev(next)->second.first;
  }
};
extern Machine* g_machine;

/// Lets `fake` drive g_machine.
void drive_machine(CudaDriver& fake);

}  // namespace onehop::peer_check_testing
