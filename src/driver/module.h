// SPDX-License-Identifier: Apache-2.0
// Kernels, embedded in the program as data (cmake/OnehopCuda.cmake: onehop_device_code).
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

/// The fat binary of `name`.cu.
#define ONEHOP_DEVICE_CODE(name) extern "C" const unsigned char onehop_code_##name[]

namespace onehop {

/// One embedded fat binary. Thread-safe; loads itself for a device when it is first asked for one of its
/// kernels there, completely: a module that the driver loaded lazily, while a peer's kernel spins, could
/// wait for it for ever.
class CudaModule {
 public:
  explicit CudaModule(const unsigned char* image) : image_(image) {}
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// The kernel with this extern "C" name, ready to launch in the device's primary context.
  /// Error{unsupported} when the device is older than what onehop is built for (compute capability 8.0).
  [[nodiscard]] CUfunction function(DeviceId device, const std::string& name);

 private:
  const unsigned char* image_;
  std::mutex mutex_;
  std::map<const CudaDriver*, CUlibrary> libraries_;
  std::map<std::pair<CUcontext, std::string>, CUfunction> functions_;
};

/// How a kernel is launched: `rows` times `grid` blocks of `block` threads.
struct CudaLaunch {
  unsigned grid = 1;
  unsigned rows = 1;
  unsigned block = 1;
  unsigned shared_bytes = 0;
  CUstream stream = nullptr;
  /// Set up while the kernel before it in the stream still runs (compute capability 9.0 and newer). The
  /// kernel waits by itself, with griddepcontrol.wait, before it touches memory.
  bool dependent = false;
};

/// Launches `function` with the one parameter that all kernels of onehop take, a plain struct passed by
/// value. The device must be current (CurrentDevice).
template <class Parameter>
void launch_kernel(const CudaDriver& driver, CUfunction function, const CudaLaunch& launch,
                   const Parameter& parameter, const char* what) {
  static_assert(std::is_trivially_copyable_v<Parameter> && sizeof(Parameter) <= 4096);
  CUlaunchConfig config{};
  config.gridDimX = launch.grid;
  config.gridDimY = launch.rows;
  config.gridDimZ = 1;
  config.blockDimX = launch.block;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = launch.shared_bytes;
  config.hStream = launch.stream;
  CUlaunchAttribute attribute{};
  if (launch.dependent) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  void* arguments[] = {const_cast<Parameter*>(&parameter)};
  check_cuda(driver.LaunchKernelEx(&config, function, arguments, nullptr), what);
}

}  // namespace onehop
