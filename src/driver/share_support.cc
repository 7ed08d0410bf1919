// SPDX-License-Identifier: Apache-2.0
#include "driver/share_support.h"

#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/log.h"
#include "driver/device.h"
#include "driver/fabric.h"
#include "driver/share_trial.h"

namespace onehop {
namespace {

std::string no_permission_hint(CUresult result) {
  return result == CUDA_ERROR_NOT_PERMITTED ? "; fabric handles need an IMEX channel "
                                              "(/dev/nvidia-caps-imex-channels) that this user may open"
                                            : "";
}

std::optional<ShareFailure> try_exchange(DeviceId device, CUmemAllocationHandleType type) {
  // Try without a context first: creating one takes memory on every device, and probing the topology calls
  // this for all devices.
  const CudaDriver& driver = cuda_driver();
  auto failure = try_sharing(driver, device, type, ShareTrial::exchange);
  if (failure && failure->result == CUDA_ERROR_INVALID_CONTEXT) {
    const CurrentDevice current(device);
    failure = try_sharing(driver, device, type, ShareTrial::exchange);
  }
  if (failure && failure->result == CUDA_ERROR_OUT_OF_MEMORY) fail_cuda(failure->result, failure->call);
  return failure;
}

bool has(DeviceId device, CUdevice_attribute attribute) {
  return cuda_attribute_or(device, attribute, 0) != 0;
}

ShareSupport try_fabric(DeviceId device) {
  if (!has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
    return {false, "the driver does not offer them for this device"};
  std::string why;
  const Nvml* const nvml = find_nvml(&why);
  if (nvml == nullptr) return {false, why};
  const FabricRegistration registration = fabric_registration(*nvml, cuda_pci_bus_id(device));
  if (!registration.trouble.empty()) return {false, registration.trouble};
  const std::string where = fmt::format("clique {} of cluster {}", registration.clique, registration.cluster);
  if (const auto failure = try_exchange(device, CU_MEM_HANDLE_TYPE_FABRIC))
    return {false, fmt::format("{}{} ({})", failure->text(), no_permission_hint(failure->result), where)};
  return {true, where};
}

ShareSupport try_descriptors(DeviceId device) {
  if (!has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return {false, "the device has no virtual memory management"};
  if (!has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return {false, "the driver does not offer them for this device"};
  if (const auto failure = try_exchange(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    return {false, failure->text()};
  return {true, "tried"};
}

ShareSupport ask_for_ipc(DeviceId device) {
  if (!has(device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED))
    return {false, "the driver does not support it for this device"};
  return {true, "the driver supports it"};
}

struct Answers {
  std::mutex mutex;
  std::map<std::tuple<std::uint64_t, int, ShareBy>, ShareSupport> known;
};
Answers& answers() {
  static auto& instance = *new Answers;  // leaked: calls may occur during static destruction
  return instance;
}

ShareSupport answer(DeviceId device, ShareBy share_by, const char* what, ShareSupport (*find_out)(DeviceId)) {
  require_cuda_device(device);
  Answers& all = answers();
  const std::lock_guard lock(all.mutex);
  const auto key = std::tuple(driver_epoch(), device.value, share_by);
  if (const auto found = all.known.find(key); found != all.known.end()) return found->second;
  ShareSupport support;
  try {
    support = find_out(device);
  } catch (const Error& error) {
    // A temporary lack of resources proves nothing about the device, so the result is not cached. For fabric
    // handles it is not an error either, because no caller depends on them.
    if (error.code() == ErrorCode::out_of_resources) {
      log::debug("{} of device {}: not usable now: {}", what, device.value, error.message());
      if (share_by == ShareBy::fabric) return {false, error.message()};
      throw;
    }
    support = {false, error.message()};
  }
  log::debug("{} of device {}: {}: {}", what, device.value, support.usable ? "usable" : "not usable",
             support.reason);
  return all.known.emplace(key, std::move(support)).first->second;
}

}  // namespace

ShareSupport fabric_support(DeviceId device) {
  return answer(device, ShareBy::fabric, "fabric handles", &try_fabric);
}

ShareSupport descriptor_support(DeviceId device) {
  return answer(device, ShareBy::posix_fd, "memory by descriptors", &try_descriptors);
}

ShareSupport ipc_support(DeviceId device) {
  return answer(device, ShareBy::ipc, "CUDA IPC", &ask_for_ipc);
}

void forget_share_support() {
  Answers& all = answers();
  const std::lock_guard lock(all.mutex);
  all.known.clear();
}

}  // namespace onehop
