// SPDX-License-Identifier: Apache-2.0
#include "driver/fabric.h"

#include "base/check.h"

namespace onehop {
namespace {

using State = FabricRegistration::State;

std::string uuid_text(const unsigned char (&bytes)[16]) {
  std::string text;
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

/// Calls either version of the query and returns the result in the older format, which contains all that is
/// needed.
NvmlResult query(const Nvml& nvml, NvmlDevice device, NvmlFabricInfo& info) {
  if (nvml.DeviceGetGpuFabricInfoV != nullptr) {
    NvmlFabricInfoV2 answer{};
    answer.version = kNvmlFabricInfoV2;
    const NvmlResult result = nvml.DeviceGetGpuFabricInfoV(device, &answer);
    if (result == kNvmlSuccess) {
      info.status = answer.status;
      info.clique_id = answer.clique_id;
      info.state = answer.state;
      std::copy(std::begin(answer.cluster_uuid), std::end(answer.cluster_uuid),
                std::begin(info.cluster_uuid));
      return result;
    }
    if (nvml.DeviceGetGpuFabricInfo == nullptr) return result;
  }
  return nvml.DeviceGetGpuFabricInfo(device, &info);
}

}  // namespace

FabricRegistration fabric_registration(const Nvml& nvml, const std::string& pci_bus_id) {
  FabricRegistration registration;
  if (nvml.DeviceGetGpuFabricInfoV == nullptr && nvml.DeviceGetGpuFabricInfo == nullptr) {
    registration.trouble = "this driver's NVML has no fabric query";
    return registration;
  }
  NvmlDevice device = nullptr;
  if (const NvmlResult result = nvml.DeviceGetHandleByPciBusId_v2(pci_bus_id.c_str(), &device);
      result != kNvmlSuccess) {
    registration.trouble =
        fmt::format("NVML does not find device {}: {}", pci_bus_id, nvml_error_text(nvml, result));
    return registration;
  }
  NvmlFabricInfo info{};
  if (const NvmlResult result = query(nvml, device, info); result != kNvmlSuccess) {
    registration.trouble = result == kNvmlNotSupported
                               ? "the device has no NVLink fabric"
                               : "NVML's fabric query fails: " + nvml_error_text(nvml, result);
    return registration;
  }
  switch (info.state) {
    case kNvmlFabricNotSupported:
      registration.trouble = "the device has no NVLink fabric";
      return registration;
    case kNvmlFabricNotStarted:
      registration.state = State::not_started;
      registration.trouble = "the device's registration with the NVLink fabric has not started";
      break;
    case kNvmlFabricInProgress:
      registration.state = State::in_progress;
      registration.trouble = "the device's registration with the NVLink fabric is still in progress";
      break;
    case kNvmlFabricCompleted:
      registration.state = State::completed;
      break;
    default:
      registration.trouble = fmt::format("NVML reports fabric state {}, which is not known", info.state);
      return registration;
  }
  registration.cluster = uuid_text(info.cluster_uuid);
  registration.clique = info.clique_id;
  if (registration.state == State::completed && info.status != kNvmlSuccess) {
    registration.trouble =
        fmt::format("the device's registration with the NVLink fabric failed: {} (clique {} of cluster {})",
                    nvml_error_text(nvml, info.status), registration.clique, registration.cluster);
  }
  return registration;
}

}  // namespace onehop
