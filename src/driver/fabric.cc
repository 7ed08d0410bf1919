#include "driver/fabric.h"

#include <map>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "driver/device.h"
#include "driver/share_trial.h"

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

/// The answer of either version of the query, in the form that is older and has all that is needed.
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

std::string no_permission_hint(CUresult result) {
  return result == CUDA_ERROR_NOT_PERMITTED ? "; fabric handles need an IMEX channel "
                                              "(/dev/nvidia-caps-imex-channels) that this user may open"
                                            : "";
}

std::optional<ShareFailure> try_fabric_handles(const CudaDriver& driver, DeviceId device) {
  // Without a context, which would take memory of every device that a mere look at the topology asks about.
  auto failure = try_sharing(driver, device, CU_MEM_HANDLE_TYPE_FABRIC, ShareTrial::exchange);
  if (failure && failure->result == CUDA_ERROR_INVALID_CONTEXT) {
    const CurrentDevice current(device);
    failure = try_sharing(driver, device, CU_MEM_HANDLE_TYPE_FABRIC, ShareTrial::exchange);
  }
  return failure;
}

FabricSupport find_out(DeviceId device) {
  const CudaDriver& driver = cuda_driver();
  if (cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0) == 0) {
    return {false, "the driver does not offer them for this device"};
  }
  std::string why;
  const Nvml* const nvml = find_nvml(&why);
  if (nvml == nullptr) return {false, why};
  const FabricRegistration registration = fabric_registration(*nvml, cuda_pci_bus_id(device));
  if (!registration.trouble.empty()) return {false, registration.trouble};
  const std::string place = fmt::format("clique {} of cluster {}", registration.clique, registration.cluster);
  if (const auto failure = try_fabric_handles(driver, device)) {
    return {false, fmt::format("{}{} ({})", failure->text(), no_permission_hint(failure->result), place)};
  }
  return {true, place};
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

const FabricSupport& fabric_support(DeviceId device) {
  require_cuda_device(device);
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::pair<std::uint64_t, int>, FabricSupport>;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(driver_epoch(), device.value);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  FabricSupport support;
  try {
    support = find_out(device);
  } catch (const Error& error) {
    support = {false, error.message()};
  }
  if (!support.usable) log::debug("fabric handles of device {}: {}", device.value, support.reason);
  return known.emplace(key, std::move(support)).first->second;
}

}  // namespace onehop
