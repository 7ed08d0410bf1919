// SPDX-License-Identifier: Apache-2.0
// GPUs for tests: how many there are, and what a rank needs on its own. Compiled where CUDA is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "onehop/onehop.h"

#include "driver/cuda_driver.h"

namespace onehop::testing {

/// Why `n` ranks cannot have a GPU each here, or an empty string. This process does not initialise CUDA by
/// asking: device files are counted, and a forked child asks the driver, once.
[[nodiscard]] std::string gpus_unavailable(int n);
/// The same for ranks that are forked. A process that has used CUDA cannot fork such ranks any more: tests
/// with ranks that are threads and tests that fork share no process. ctest gives each test its own.
[[nodiscard]] std::string forked_gpus_unavailable(int n);

/// Skips the test where there are fewer than `n` GPUs (that reach each other).
#define ONEHOP_NEED_GPUS(n)                                                                 \
  if (const std::string missing = ::onehop::testing::gpus_unavailable(n); !missing.empty()) \
  GTEST_SKIP() << missing
#define ONEHOP_NEED_FORKED_GPUS(n)                                                                 \
  if (const std::string missing = ::onehop::testing::forked_gpus_unavailable(n); !missing.empty()) \
  GTEST_SKIP() << missing

/// Memory of one GPU and a stream that waits for no other. One thread at a time.
class Gpu {
 public:
  explicit Gpu(DeviceId device);
  ~Gpu();  ///< waits for the stream, frees what was not freed
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] Stream stream() const { return {stream_}; }

  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void free(std::byte* data);
  /// `count` elements; their bits are zero.
  template <class T>
  [[nodiscard]] T* make(std::size_t count) {
    auto* const data = reinterpret_cast<T*>(allocate(count * sizeof(T)));
    const std::vector<T> zeros(count);
    upload(data, zeros.data(), count * sizeof(T));
    return data;
  }

  /// Queued behind what the stream has, and complete on return.
  void upload(void* to, const void* from, std::size_t bytes) const;
  void download(void* to, const void* from, std::size_t bytes) const;
  template <class T>
  [[nodiscard]] std::vector<T> read(const T* from, std::size_t count) const {
    std::vector<T> result(count);
    download(result.data(), from, count * sizeof(T));
    return result;
  }
  template <class T>
  void write(T* to, const std::vector<T>& values) const {
    upload(to, values.data(), values.size() * sizeof(T));
  }

  /// Queued only.
  void fill(void* at, std::uint32_t word, std::size_t words) const;
  void copy(void* to, const void* from, std::size_t bytes) const;

  /// Waits for the stream; throws when that takes longer than any test's work does.
  void wait() const;
  /// Whether everything on the stream has ended.
  [[nodiscard]] bool idle() const;
  /// What cudaDeviceSynchronize does. Only when nothing can spin.
  void synchronize_device() const;
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  DeviceId device_;
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
  std::vector<std::byte*> allocations_;
};

/// Work recorded from a stream, to be queued again and again.
class Graph {
 public:
  /// Records what `body` queues on the GPU's stream.
  Graph(const Gpu& gpu, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const;
  /// Kernels, copies and so on that were recorded.
  [[nodiscard]] std::size_t nodes() const { return nodes_; }

 private:
  const Gpu& gpu_;
  std::size_t nodes_ = 0;
  CUgraphExec executable_ = nullptr;
};

}  // namespace onehop::testing
