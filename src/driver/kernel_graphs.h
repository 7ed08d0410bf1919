// SPDX-License-Identifier: Apache-2.0
// Kernels that are queued as graphs of one node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/cuda_driver.h"
#include "driver/module.h"

namespace onehop {

/// Graphs of one kernel node each, for all of a context. Thread-safe.
class GraphPool {
 public:
  /// Used by one thread at a time: the driver does not lock graphs.
  struct Entry {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
  };

  /// The context's pool. The first call makes it and all of its graphs, of `kernel`, any one of the context, which is current.
  /// They are not made later, because the driver may need memory for a graph, and wait for that until the device is idle. These
  /// fit into what each context has for graphs (driver 580). If the driver refuses, there are fewer.
  [[nodiscard]] static GraphPool& of(const CudaDriver& driver, CUcontext context, CUfunction kernel);

  /// nullopt when all are in use.
  [[nodiscard]] std::optional<Entry> take();
  void give_back(const Entry& entry) noexcept;

 private:
  GraphPool(const CudaDriver& driver, CUfunction kernel);

  static constexpr std::size_t kGraphs = 24;

  std::mutex mutex_;
  std::vector<Entry> unused_;
};

/// Queues kernels in less time than cuLaunchKernelEx. The driver launches a graph of one kernel in about half of the time that
/// it takes to launch the kernel, and the kernel starts sooner (bench/results/gpu-kernels.md). A graph that has the kernel and
/// its parameters already is launched again. Otherwise another graph gets them: one of the pool, or the least recently launched
/// one, whose launches that are queued already keep their own. Without any graph, kernels are launched directly.
///
/// A kernel cannot start before its predecessor has ended (CudaLaunch::dependent), so this is for kernels that take no longer
/// than it takes to queue one. Used by one thread at a time, with the device current.
class KernelGraphs {
 public:
  KernelGraphs(const CudaDriver& driver, GraphPool& pool) : driver_(driver), pool_(pool) {}
  ~KernelGraphs();
  KernelGraphs(const KernelGraphs&) = delete;
  KernelGraphs& operator=(const KernelGraphs&) = delete;

  /// As launch_kernel(), in a stream that is not captured. `bytes`: of the parameter.
  void launch(CUfunction function, const CudaLaunch& launch, const void* parameter, std::size_t bytes,
              const char* name);

 private:
  struct Graph {
    GraphPool::Entry entry;
    CUfunction function = nullptr;  ///< nullptr: not known
    CudaLaunch shape{};             ///< its stream does not matter
    std::vector<std::byte> parameter{};

    [[nodiscard]] bool has(CUfunction other, const CudaLaunch& launch, const void* bytes,
                           std::size_t count) const;
  };
  /// Most programs make calls with few different arguments in turn.
  static constexpr std::size_t kMostGraphs = 8;

  /// The number of a graph that may be changed; nullopt if there is none.
  [[nodiscard]] std::optional<std::size_t> other_graph();

  const CudaDriver& driver_;
  GraphPool& pool_;
  std::vector<Graph> graphs_;
  // One per graph, in arrays of their own: a search reads two cache lines instead of every graph and its parameter.
  std::array<std::uint64_t, kMostGraphs> keys_{};
  std::array<std::uint64_t, kMostGraphs> last_launches_{};
  std::uint64_t launches_ = 0;
};

}  // namespace onehop
