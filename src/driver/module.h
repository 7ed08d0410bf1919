// SPDX-License-Identifier: Apache-2.0
// Kernels that are embedded in the program as data (cmake/OnehopCuda.cmake: onehop_device_code).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

/// The fat binary of `name`.cu.
#define ONEHOP_DEVICE_CODE(name) extern "C" const unsigned char onehop_code_##name[]

namespace onehop {

/// One embedded fat binary. Thread-safe. It is loaded for a device at the first request for one of its
/// kernels there, and loaded completely: if the driver loaded it lazily while a peer's kernel spins, the load
/// could block forever.
class CudaModule {
 public:
  explicit CudaModule(const unsigned char* image) : image_(image) {}
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Returns the kernel with this extern "C" name, loaded into the device's primary context. Throws
  /// Error{unsupported} if the device is older than onehop supports (compute capability 8.0).
  [[nodiscard]] CUfunction function(DeviceId device, const std::string& name);

 private:
  const unsigned char* image_;
  std::mutex mutex_;
  std::map<const CudaDriver*, CUlibrary> libraries_;
  std::map<std::pair<CUcontext, std::string>, CUfunction> functions_;
};

/// Launch configuration of a kernel: `rows` times `grid` blocks of `block` threads.
struct CudaLaunch {
  unsigned grid = 1;
  unsigned rows = 1;
  unsigned block = 1;
  unsigned shared_bytes = 0;
  CUstream stream = nullptr;
  /// Programmatic dependent launch (compute capability 9.0 and newer): the kernel may start while its
  /// predecessor in the stream still runs. The kernel itself executes griddepcontrol.wait before it accesses
  /// memory.
  bool dependent = false;
};

/// What a parameter has at most: in CUDA before 12.1, all parameters of a kernel together.
inline constexpr std::size_t kMaxParameterBytes = 4096;

/// Launches `function` with the single parameter that all kernels of onehop take, a plain struct passed by
/// value: `parameter` points to it. The device must be current (CurrentDevice).
void launch_kernel(const CudaDriver& driver, CUfunction function, const CudaLaunch& launch,
                   const void* parameter, const char* name);
template <class Parameter>
void launch_kernel(const CudaDriver& driver, CUfunction function, const CudaLaunch& launch,
                   const Parameter& parameter, const char* name) {
  static_assert(std::is_trivially_copyable_v<Parameter> && sizeof(Parameter) <= kMaxParameterBytes);
  launch_kernel(driver, function, launch, static_cast<const void*>(&parameter), name);
}

}  // namespace onehop
