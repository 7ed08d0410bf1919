// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process and their contexts.
#pragma once

#include <string>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

namespace onehop {

/// Number of GPUs visible to this process; 0 without a driver.
[[nodiscard]] int cuda_device_count() noexcept;

/// Throws Error{invalid_argument}, which names the number and the device count, unless 0 <= device < count.
/// Throws Error{unsupported} with the reason if there is no driver.
void require_cuda_device(DeviceId device);

/// Checks the device and returns the driver's handle of it.
[[nodiscard]] CUdevice cuda_device(DeviceId device);
[[nodiscard]] int cuda_attribute(DeviceId device, CUdevice_attribute attribute);
/// Returns the attribute, or `fallback` if the driver does not know the attribute or the device does not
/// answer.
[[nodiscard]] int cuda_attribute_or(DeviceId device, CUdevice_attribute attribute, int fallback) noexcept;
/// Returns "GPU-" and 32 hex digits in the usual groups: the device's identity across processes, independent
/// of CUDA_VISIBLE_DEVICES.
[[nodiscard]] std::string cuda_uuid(DeviceId device);
/// Returns the PCI bus id in NVML's format, in lower case: "00000000:19:00.0".
[[nodiscard]] std::string cuda_pci_bus_id(DeviceId device);
/// Converts any spelling of a PCI bus id to that format. The driver writes a domain of four digits; NVML
/// writes eight digits in upper case.
[[nodiscard]] std::string normal_pci_bus_id(std::string id);

/// The device's primary context, which the CUDA runtime uses too. It is retained for the life of the process:
/// releasing it would destroy the streams and memory of other users of the runtime in this process.
/// Thread-safe.
[[nodiscard]] CUcontext cuda_context(DeviceId device);

/// Makes the device's context current on this thread, and restores the previous one on destruction.
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
