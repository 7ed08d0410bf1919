// SPDX-License-Identifier: Apache-2.0
#include "driver/device.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"

namespace onehop {

int cuda_device_count() noexcept {
  const CudaDriver* const driver = find_cuda_driver();
  int count = 0;
  return driver != nullptr && driver->DeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

void require_cuda_device(DeviceId device) {
  (void)cuda_driver();
  const int count = cuda_device_count();
  require(device.value >= 0 && device.value < count,
          "device {} does not exist: this process sees {} GPU{} (numbered from 0; CUDA_VISIBLE_DEVICES may "
          "hide some)",
          device.value, count, count == 1 ? "" : "s");
}

CUdevice cuda_device(DeviceId device) {
  require_cuda_device(device);
  CUdevice handle = 0;
  check_cuda(cuda_driver().DeviceGet(&handle, device.value), "cuDeviceGet");
  return handle;
}

int cuda_attribute(DeviceId device, CUdevice_attribute attribute) {
  int value = 0;
  check_cuda(cuda_driver().DeviceGetAttribute(&value, attribute, cuda_device(device)),
             "cuDeviceGetAttribute");
  return value;
}

int cuda_attribute_or(DeviceId device, CUdevice_attribute attribute, int fallback) noexcept {
  const CudaDriver* const driver = find_cuda_driver();
  CUdevice handle = 0;
  int value = 0;
  const bool known = driver != nullptr && driver->DeviceGet(&handle, device.value) == CUDA_SUCCESS &&
                     driver->DeviceGetAttribute(&value, attribute, handle) == CUDA_SUCCESS;
  return known ? value : fallback;
}

std::string cuda_uuid(DeviceId device) {
  CUuuid uuid{};
  check_cuda(cuda_driver().DeviceGetUuid(&uuid, cuda_device(device)), "cuDeviceGetUuid");
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string cuda_pci_bus_id(DeviceId device) {
  char text[32] = {};
  check_cuda(cuda_driver().DeviceGetPCIBusId(text, sizeof text, cuda_device(device)), "cuDeviceGetPCIBusId");
  return normal_pci_bus_id(text);
}

std::string normal_pci_bus_id(std::string id) {
  const std::size_t colon = id.find(':');
  if (colon != std::string::npos && colon < 8) id.insert(0, 8 - colon, '0');
  std::transform(id.begin(), id.end(), id.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return id;
}

CUcontext cuda_context(DeviceId device) {
  static auto& mutex = *new std::mutex;
  // Keyed by driver as well, because tests install their own.
  static auto& contexts = *new std::map<std::pair<const CudaDriver*, int>, CUcontext>;
  const CudaDriver& driver = cuda_driver();
  const std::lock_guard lock(mutex);
  const auto key = std::pair(&driver, device.value);
  if (const auto known = contexts.find(key); known != contexts.end()) return known->second;
  CUcontext context = nullptr;
  check_cuda(driver.DevicePrimaryCtxRetain(&context, cuda_device(device)), "cuDevicePrimaryCtxRetain");
  contexts.emplace(key, context);
  return context;
}

CurrentDevice::CurrentDevice(CUcontext context) {
  const CudaDriver& driver = cuda_driver();
  check_cuda(driver.CtxGetCurrent(&previous_), "cuCtxGetCurrent");
  if (previous_ == context) return;
  check_cuda(driver.CtxSetCurrent(context), "cuCtxSetCurrent");
  changed_ = true;
}

CurrentDevice::~CurrentDevice() {
  if (!changed_) return;
  if (const CudaDriver* const driver = find_cuda_driver()) (void)driver->CtxSetCurrent(previous_);
}

}  // namespace onehop
