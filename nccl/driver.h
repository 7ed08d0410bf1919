// SPDX-License-Identifier: Apache-2.0
// What this library itself asks the CUDA driver, if there is one: it is not linked with it.
#pragma once

#include <cstddef>
#include <memory>

#include "onehop/types.h"

#include "abi.h"

namespace onehop::nccl {

/// What cudaGetDevice would say.
[[nodiscard]] int current_cuda_device();

/// During its lifetime, a capture of a stream that another thread makes neither forbids this thread's calls nor becomes
/// invalid by them.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() {
    if (mode_ != kRelaxed) exchange();  // else it was relaxed, or CUDA was not initialized
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange();

  static constexpr int kRelaxed = 2;  ///< CU_STREAM_CAPTURE_MODE_RELAXED
  int mode_ = kRelaxed;               ///< after the first exchange the thread's previous one
};

/// Memory of the device, as cudaMalloc's. Error{driver} if there is too little.
[[nodiscard]] void* allocate_on(DeviceId device, std::size_t bytes);
/// From any thread, whatever its device. Error{driver} if it is no memory of a device.
void free_on_device(void* data);

/// A copy that the stream makes. Destroying it frees the copy when the stream has come to that. On the host, both happen at
/// once.
[[nodiscard]] std::shared_ptr<const void> copy_on_stream(const void* data, std::size_t bytes, DeviceId device,
                                                         CudaStream stream);

}  // namespace onehop::nccl
