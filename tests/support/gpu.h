// SPDX-License-Identifier: Apache-2.0
// GPUs for tests: how many there are, and what a single rank needs. Compiled only with CUDA.
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

/// Whether tests may take the GPUs that ONEHOP_TEST_GPUS makes ranks share (ranks.h).
enum class Sharing { allowed, no };

/// Why `n` ranks cannot have a GPU each here, or an empty string. Does not initialize CUDA in this process:
/// it counts device files, and a forked child asks the driver, once.
[[nodiscard]] std::string gpus_unavailable(int n, Sharing sharing = Sharing::allowed);
/// Like gpus_unavailable, for forked ranks. A process that has used CUDA cannot fork such ranks any more. So
/// tests with ranks as threads and tests that fork must not share a process. ctest runs each test in its own.
[[nodiscard]] std::string forked_gpus_unavailable(int n, Sharing sharing = Sharing::allowed);

/// Skips a test that numbers GPUs itself if there are fewer than `n` that can reach each other.
#define ONEHOP_NEED_GPUS(n)                                                                               \
  if (const std::string missing = ::onehop::testing::gpus_unavailable(n, ::onehop::testing::Sharing::no); \
      !missing.empty())                                                                                   \
  GTEST_SKIP() << missing
#define ONEHOP_NEED_FORKED_GPUS(n)                                                       \
  if (const std::string missing =                                                        \
          ::onehop::testing::forked_gpus_unavailable(n, ::onehop::testing::Sharing::no); \
      !missing.empty())                                                                  \
  GTEST_SKIP() << missing

/// Memory of one GPU and a non-blocking stream. One thread at a time.
class Gpu {
 public:
  /// cudaStreamPerThread instead of a stream of its own. For the thread that makes it.
  enum StreamOfThread { kStreamOfThread };

  explicit Gpu(DeviceId device);
  Gpu(DeviceId device, StreamOfThread);
  ~Gpu();  ///< waits for the stream and frees remaining memory; of ranks that share GPUs, the last one does
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] Stream stream() const { return {stream_}; }

  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  /// If ranks share GPUs, the memory stays until the destructor.
  void free(std::byte* data);
  /// `count` elements, zeroed.
  template <class T>
  [[nodiscard]] T* make(std::size_t count) {
    auto* const data = reinterpret_cast<T*>(allocate(count * sizeof(T)));
    const std::vector<T> zeros(count);
    upload(data, zeros.data(), count * sizeof(T));
    return data;
  }

  /// Runs after the stream's earlier work, and is complete on return.
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

  /// Queues a fill.
  void fill(void* at, std::uint32_t word, std::size_t words) const;
  void copy(void* to, const void* from, std::size_t bytes) const;

  /// Waits for the stream; throws when that takes longer than any test's work.
  void wait() const;
  /// True if everything on the stream has ended.
  [[nodiscard]] bool idle() const;
  /// Does what cudaDeviceSynchronize does. Call only when no kernel can spin.
  void synchronize_device() const;
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  void warm_up();

  DeviceId device_;
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
  std::vector<std::byte*> allocations_;
};

/// Work recorded from a stream, which can be queued repeatedly.
class Graph {
 public:
  /// Records the work that `body` queues on the GPU's stream.
  Graph(const Gpu& gpu, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const;
  /// The number of recorded kernels, copies and so on.
  [[nodiscard]] std::size_t nodes() const { return nodes_; }

 private:
  const Gpu& gpu_;
  std::size_t nodes_ = 0;
  CUgraphExec executable_ = nullptr;
};

}  // namespace onehop::testing
