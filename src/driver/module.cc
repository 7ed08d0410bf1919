// SPDX-License-Identifier: Apache-2.0
#include "driver/module.h"

#include "base/check.h"
#include "driver/device.h"

namespace onehop {

CUfunction CudaModule::function(DeviceId device, const std::string& name) {
  const CudaDriver& driver = cuda_driver();
  CUcontext context = cuda_context(device);
  const std::lock_guard lock(mutex_);
  if (const auto known = functions_.find({context, name}); known != functions_.end()) return known->second;

  CUlibrary& library = libraries_[&driver];
  if (library == nullptr) {
    const CUresult result =
        driver.LibraryLoadData(&library, image_, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) {
      library = nullptr;
      fail_cuda(result, fmt::format("loading onehop's kernels for device {} (compute capability 8.0 or newer "
                                    "is needed)",
                                    device.value));
    }
  }
  const CurrentDevice current(context);
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  const std::string what = fmt::format("loading kernel {} for device {}", name, device.value);
  check_cuda(driver.LibraryGetKernel(&kernel, library, name.c_str()), what.c_str());
  check_cuda(driver.KernelGetFunction(&function, kernel), what.c_str());
  if (driver.FuncLoad != nullptr) check_cuda(driver.FuncLoad(function), what.c_str());
  functions_.emplace(std::pair(context, name), function);
  return function;
}

void launch_kernel(const CudaDriver& driver, CUfunction function, const CudaLaunch& launch,
                   const void* parameter, const char* name) {
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
  void* arguments[] = {const_cast<void*>(parameter)};
  if (const CUresult result = driver.LaunchKernelEx(&config, function, arguments, nullptr);
      result != CUDA_SUCCESS)
    fail_cuda(result, fmt::format("launching kernel {}", name));
}

}  // namespace onehop
