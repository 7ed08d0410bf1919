// SPDX-License-Identifier: Apache-2.0
#include "memory/user_pointer.h"

#include <iterator>
#include <optional>

#include "memory/cuda_pointer.h"

namespace onehop {
namespace {

/// The driver's information about the allocation that contains a pointer.
struct Answer {
  CUmemorytype type{};  ///< 0: unknown pointer
  int home = -1;
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;  ///< 0: unknown
};

/// Returns nullopt if the driver fails.
std::optional<Answer> ask(CUdeviceptr at) {
  Answer answer;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&answer.type, &answer.home, &answer.begin, &answer.bytes};
  if (cuda_driver().PointerGetAttributes(std::size(which), which, values, at) != CUDA_SUCCESS)
    return std::nullopt;
  return answer;
}

bool is_captured(Stream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuda_driver().StreamIsCapturing(static_cast<CUstream>(stream.handle), &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool is_managed(CUdeviceptr at) {
  unsigned managed = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* values[] = {&managed};
  return cuda_driver().PointerGetAttributes(1, which, values, at) != CUDA_SUCCESS || managed != 0;
}

struct Verdict {
  PointerError error = PointerError::none;
  int home = -1;          ///< for other_gpu: the device of the memory
  std::size_t bytes = 0;  ///< for too_short: the number of usable bytes
};

PointerError judge(const Answer& answer, CUdeviceptr at, DeviceId device, Stream stream) {
  if (answer.type == CU_MEMORYTYPE_DEVICE) {
    return answer.home == device.value || is_managed(at) ? PointerError::none : PointerError::other_gpu;
  }
  if (answer.type == CUmemorytype{} && !is_captured(stream)) return PointerError::not_gpu_memory;
  return PointerError::none;
}

Verdict check(const void* data, std::size_t bytes, DeviceId device, Stream stream) {
  const CUdeviceptr first = cuda_pointer::address_of(data);
  for (CUdeviceptr at = first;;) {
    const std::optional<Answer> answer = ask(at);
    if (!answer) return {};
    const PointerError error = judge(*answer, at, device, stream);
    if (error != PointerError::none) {
      if (at != first) return {.error = PointerError::too_short, .bytes = at - first};
      return {.error = error, .home = answer->home};
    }
    const CUdeviceptr end = answer->begin + answer->bytes;
    if (end <= at || end - first >= bytes) return {};
    at = end;
  }
}

}  // namespace

PointerError check_pointer(const void* data, std::size_t bytes, DeviceId device, Stream stream) {
  return check(data, bytes, device, stream).error;
}

std::string describe_wrong_pointer(const void* data, std::size_t bytes, DeviceId device, Stream stream) {
  const Verdict verdict = check(data, bytes, device, stream);
  switch (verdict.error) {
    case PointerError::none:
      break;
    case PointerError::not_gpu_memory:
      return fmt::format("{} is host memory or was freed; memory of GPU {} is needed", data, device.value);
    case PointerError::other_gpu:
      return fmt::format("{} is memory of GPU {}; memory of GPU {} is needed", data, verdict.home,
                         device.value);
    case PointerError::too_short:
      return fmt::format("{} has {} bytes up to the end of its allocation; {} are needed", data,
                         verdict.bytes, bytes);
  }
  return {};
}

}  // namespace onehop
