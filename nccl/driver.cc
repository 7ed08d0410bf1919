// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace onehop::nccl {
namespace {

using DevicePointer = std::uint64_t;

/// nullptr if there is no driver.
void* function(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  return driver != nullptr ? ::dlsym(driver, name) : nullptr;
}

template <class... Args>
void call(const char* name, Args... args) {
  auto* const real = reinterpret_cast<int (*)(Args...)>(function(name));
  const int result = real != nullptr ? real(args...) : -1;
  if (result != 0) fail(ErrorCode::driver, "{}: CUDA error {}", name, result);
}

/// The context of the device, in which stream 0 is that of the device.
class CurrentContext {
 public:
  explicit CurrentContext(DeviceId device) {
    int handle = 0;
    void* context = nullptr;
    call("cuDeviceGet", &handle, device.value);
    call("cuDevicePrimaryCtxRetain", &context, handle);  // for the life of the process, as the group does
    call("cuCtxPushCurrent_v2", context);
  }
  ~CurrentContext() {
    void* popped = nullptr;
    static auto* const pop = reinterpret_cast<int (*)(void**)>(function("cuCtxPopCurrent_v2"));
    (void)pop(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

}  // namespace

int current_cuda_device() {
  // The program has its own copy of the runtime, which may be linked statically; both share the driver's current context.
  // Without one, the runtime would use device 0.
  static auto* const get = reinterpret_cast<int (*)(int*)>(function("cuCtxGetDevice"));
  int device = 0;
  return get != nullptr && get(&device) == 0 ? device : 0;
}

void RelaxedCapture::exchange() {
  static auto* const real = reinterpret_cast<int (*)(int*)>(function("cuThreadExchangeStreamCaptureMode"));
  int mode = mode_;
  if (real != nullptr && real(&mode) == 0) mode_ = mode;
}

void* allocate_on(DeviceId device, std::size_t bytes) {
  call("cuInit", 0U);  // a program's first call may be this one
  const RelaxedCapture relaxed;
  const CurrentContext current(device);
  DevicePointer data = 0;
  call("cuMemAlloc_v2", &data, bytes);
  return reinterpret_cast<void*>(data);
}

void free_on_device(void* data) {
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  const auto pointer = reinterpret_cast<DevicePointer>(data);
  const RelaxedCapture relaxed;
  int device = 0;
  call("cuPointerGetAttribute", &device, kDeviceOrdinal, pointer);
  const CurrentContext current(DeviceId{device});
  call("cuMemFree_v2", pointer);
}

std::shared_ptr<const void> copy_on_stream(const void* data, std::size_t bytes, DeviceId device,
                                           CudaStream stream) {
  if (device == DeviceId::host) {
    const auto* const from = static_cast<const std::byte*>(data);
    auto copy = std::make_shared<std::vector<std::byte>>(from, from + bytes);
    return {copy, copy->data()};
  }
  const CurrentContext current(device);
  DevicePointer to = 0;
  call("cuMemAllocAsync", &to, bytes, stream);
  std::shared_ptr<const void> copy(reinterpret_cast<const void*>(to), [device, stream](const void* freed) {
    try {
      const CurrentContext own(device);
      call("cuMemFreeAsync", reinterpret_cast<DevicePointer>(freed), stream);
    } catch (const Error&) {
      // The device has failed; so have the calls.
    }
  });
  call("cuMemcpyDtoDAsync_v2", to, reinterpret_cast<DevicePointer>(data), bytes, stream);
  return copy;
}

}  // namespace onehop::nccl
