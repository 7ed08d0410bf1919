// SPDX-License-Identifier: Apache-2.0
// An event of the driver's.
#pragma once

#include "driver/cuda_driver.h"

namespace onehop {

/// Without a time. Made and used with the device current.
class CudaEvent {
 public:
  explicit CudaEvent(const CudaDriver& driver) : driver_(driver) {
    check_cuda(driver.EventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  ~CudaEvent() { (void)driver_.EventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  [[nodiscard]] CUevent get() const { return event_; }
  void record(CUstream stream) const { check_cuda(driver_.EventRecord(event_, stream), "cuEventRecord"); }
  /// False before the first record().
  [[nodiscard]] bool pending() const { return driver_.EventQuery(event_) == CUDA_ERROR_NOT_READY; }
  /// Makes later work on `stream` wait for the recorded point.
  void hold(CUstream stream) const {
    check_cuda(driver_.StreamWaitEvent(stream, event_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
  }

 private:
  const CudaDriver& driver_;
  CUevent event_ = nullptr;
};

}  // namespace onehop
