// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process and their contexts.
#pragma once

#include <string>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

namespace onehop {

/// How many GPUs this process sees; 0 without a driver.
[[nodiscard]] int cuda_device_count() noexcept;

/// Throws Error{invalid_argument} that names the number and the count unless 0 <= device < count, and
/// Error{unsupported} with the reason where there is no driver.
void require_cuda_device(DeviceId device);

/// The driver's handle of a checked device.
[[nodiscard]] CUdevice cuda_device(DeviceId device);
[[nodiscard]] int cuda_attribute(DeviceId device, CUdevice_attribute attribute);
/// The same, or `fallback` where the driver is too old to know the attribute or the device does not answer.
[[nodiscard]] int cuda_attribute_or(DeviceId device, CUdevice_attribute attribute, int fallback) noexcept;
/// "GPU-" and 32 hex digits in the usual groups: identity across processes, whatever CUDA_VISIBLE_DEVICES
/// says.
[[nodiscard]] std::string cuda_uuid(DeviceId device);
/// "00000000:19:00.0", lower case, as NVML writes it.
[[nodiscard]] std::string cuda_pci_bus_id(DeviceId device);
/// Any spelling of a PCI bus id in that form: the driver writes a domain of four digits, NVML one of eight
/// and upper case.
[[nodiscard]] std::string normal_pci_bus_id(std::string id);

/// The device's primary context, the one that the CUDA runtime uses too. Retained for the life of the
/// process: giving it back would destroy the streams and memory of whoever uses the runtime beside us.
/// Thread-safe.
[[nodiscard]] CUcontext cuda_context(DeviceId device);

/// Makes the device's context current on this thread, and the one before current again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(DeviceId device) : CurrentDevice(cuda_context(device)) {}
  explicit CurrentDevice(CUcontext context);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  CUcontext previous_ = nullptr;
  bool changed_ = false;
};

}  // namespace onehop
