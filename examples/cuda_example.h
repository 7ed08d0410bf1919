// SPDX-License-Identifier: Apache-2.0
// Shared by the CUDA examples: checked calls, and waits with deadlines.
#pragma once

#include <cuda_runtime.h>
#include <onehop/onehop.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

namespace example {

inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

/// How many GPUs this process sees; 0 also without a driver.
inline int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// Prints a message and returns true when there are too few GPUs for the example.
inline bool skipped(int ranks = 2) {
  const int needed = std::max(ranks, 2);
  if (gpus() >= needed) return false;
  std::printf("skipped: needs %d GPUs\n", needed);
  return true;
}

/// This process's rank in its job; rank r takes GPU r. Without a launcher, Group::from_env reports what is
/// missing.
inline onehop::JobInfo job() {
  return onehop::job_from_env().value_or(onehop::JobInfo{});
}

/// Zeroed memory of the current device.
template <class T>
T* allocate(std::size_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(data, 0, count * sizeof(T)), "cudaMemset");
  return static_cast<T*>(data);
}

/// Waits for all work queued on the current device, with a deadline.
inline void finish(const char* what, std::chrono::seconds patience = std::chrono::seconds{20}) {
  check(cudaGetLastError(), what);  // reports launch errors
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const cudaError_t state = cudaStreamQuery(nullptr);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, what);
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error(std::string(what) + ": timeout");
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

}  // namespace example
