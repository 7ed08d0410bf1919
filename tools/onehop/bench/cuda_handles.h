// SPDX-License-Identifier: Apache-2.0
// Owners of handles of the CUDA runtime, for the benchmark. All belong to the current device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace onehop::cli {

/// Throws unless `result` is success; `what` names the call.
inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, or the next call would report it
  const ErrorCode code =
      result == cudaErrorMemoryAllocation ? ErrorCode::out_of_resources : ErrorCode::system;
  fail(code, "{}: {} ({}): {}{}", what, cudaGetErrorName(result), static_cast<int>(result),
       cudaGetErrorString(result),
       code == ErrorCode::out_of_resources ? "; use smaller sizes, or --buffers ordinary" : "");
}

class GpuMemory {
 public:
  GpuMemory() = default;
  explicit GpuMemory(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~GpuMemory() { (void)cudaFree(data_); }
  GpuMemory(GpuMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class GpuStream {
 public:
  GpuStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~GpuStream() { (void)cudaStreamDestroy(stream_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class GpuEvent {
 public:
  GpuEvent() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~GpuEvent() { (void)cudaEventDestroy(event_); }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Both events must be complete.
  [[nodiscard]] double us_since(const GpuEvent& before) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, before.event_, event_), "cudaEventElapsedTime");
    return double{ms} * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A replayable graph of the work that `body` queues on `stream`.
class GpuGraph {
 public:
  GpuGraph() = default;
  template <class Body>
  GpuGraph(cudaStream_t stream, const Body& body) {
    // Thread-local mode: another rank of this process may allocate during the capture.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      body();
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t result = cudaGraphInstantiate(&exec_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(result, "cudaGraphInstantiate");
    const cudaError_t upload = cudaGraphUpload(exec_, stream);
    if (upload != cudaSuccess) (void)cudaGraphExecDestroy(std::exchange(exec_, nullptr));
    check(upload, "cudaGraphUpload");
  }
  ~GpuGraph() { reset(); }
  GpuGraph(GpuGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  GpuGraph& operator=(GpuGraph&& other) noexcept {
    if (this != &other) reset(std::exchange(other.exec_, nullptr));
    return *this;
  }
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  void reset(cudaGraphExec_t exec = nullptr) {
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    exec_ = exec;
  }
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace onehop::cli
