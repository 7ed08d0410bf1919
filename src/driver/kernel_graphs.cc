// SPDX-License-Identifier: Apache-2.0
#include "driver/kernel_graphs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>

namespace onehop {
namespace {

/// `argument` points to the parameter's address.
CUDA_KERNEL_NODE_PARAMS_v2 node_of(CUfunction function, const CudaLaunch& launch, void** argument) {
  CUDA_KERNEL_NODE_PARAMS_v2 node{};
  node.func = function;
  node.gridDimX = launch.grid;
  node.gridDimY = launch.rows;
  node.gridDimZ = 1;
  node.blockDimX = launch.block;
  node.blockDimY = node.blockDimZ = 1;
  node.sharedMemBytes = launch.shared_bytes;
  node.kernelParams = argument;
  return node;
}

/// Equal for equal launches, and almost always different for others.
std::uint64_t key_of(CUfunction function, const void* parameter, std::size_t bytes) {
  auto key = reinterpret_cast<std::uintptr_t>(function);
  for (std::size_t at = 0; at + sizeof key <= bytes; at += sizeof key) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(parameter) + at, sizeof word);
    key += word;
  }
  return key;
}

}  // namespace

GraphPool& GraphPool::of(const CudaDriver& driver, CUcontext context, CUfunction kernel) {
  static std::mutex mutex;
  // Not destroyed: at the end of the process, the driver may be gone before.
  static auto& pools = *new std::map<std::pair<const CudaDriver*, CUcontext>, std::unique_ptr<GraphPool>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<GraphPool>& pool = pools[{&driver, context}];
  if (!pool) pool.reset(new GraphPool(driver, kernel));
  return *pool;
}

GraphPool::GraphPool(const CudaDriver& driver, CUfunction kernel) {
  unused_.reserve(kGraphs);
  std::array<std::byte, kMaxParameterBytes> zeros{};
  void* argument = zeros.data();
  const CUDA_KERNEL_NODE_PARAMS_v2 node = node_of(kernel, {}, &argument);
  while (unused_.size() < kGraphs) {
    Entry entry;
    if (driver.GraphCreate(&entry.graph, 0) != CUDA_SUCCESS) return;
    if (driver.GraphAddKernelNode(&entry.node, entry.graph, nullptr, 0, &node) != CUDA_SUCCESS ||
        driver.GraphInstantiateWithFlags(&entry.exec, entry.graph, 0) != CUDA_SUCCESS) {
      (void)driver.GraphDestroy(entry.graph);
      return;
    }
    unused_.push_back(entry);
  }
}

std::optional<GraphPool::Entry> GraphPool::take() {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) return std::nullopt;
  const Entry entry = unused_.back();
  unused_.pop_back();
  return entry;
}

void GraphPool::give_back(const Entry& entry) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back(entry);  // there is room for all
}

bool KernelGraphs::Graph::has(CUfunction other, const CudaLaunch& launch, const void* bytes,
                              std::size_t count) const {
  return function == other && shape.grid == launch.grid && shape.rows == launch.rows &&
         shape.block == launch.block && shape.shared_bytes == launch.shared_bytes &&
         parameter.size() == count && std::memcmp(parameter.data(), bytes, count) == 0;
}

KernelGraphs::~KernelGraphs() {
  for (const Graph& each : graphs_) pool_.give_back(each.entry);
}

std::optional<std::size_t> KernelGraphs::other_graph() {
  if (graphs_.size() < kMostGraphs) {
    graphs_.reserve(kMostGraphs);
    if (const std::optional<GraphPool::Entry> entry = pool_.take()) {
      graphs_.push_back({.entry = *entry});
      return graphs_.size() - 1;
    }
  }
  if (graphs_.empty()) return std::nullopt;
  const auto used = std::span(last_launches_).first(graphs_.size());
  return static_cast<std::size_t>(std::ranges::min_element(used) - used.begin());
}

void KernelGraphs::launch(CUfunction function, const CudaLaunch& launch, const void* parameter,
                          std::size_t bytes, const char* name) {
  const std::uint64_t key = key_of(function, parameter, bytes);
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < graphs_.size() && !chosen; ++i) {
    if (keys_[i] == key && graphs_[i].has(function, launch, parameter, bytes)) chosen = i;
  }
  const bool is_known = chosen.has_value();
  if (!is_known) chosen = other_graph();
  if (!chosen) return launch_kernel(driver_, function, launch, parameter, name);
  Graph& graph = graphs_[*chosen];
  last_launches_[*chosen] = ++launches_;
  if (!is_known) {
    graph.function = nullptr;
    void* argument = const_cast<void*>(parameter);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = node_of(function, launch, &argument);
    // Older drivers cannot change the kernel of a graph.
    if (driver_.GraphExecKernelNodeSetParams(graph.entry.exec, graph.entry.node, &node) != CUDA_SUCCESS)
      return launch_kernel(driver_, function, launch, parameter, name);
    const auto* const first = static_cast<const std::byte*>(parameter);
    graph.parameter.assign(first, first + bytes);
    graph.shape = launch;
    graph.function = function;
    keys_[*chosen] = key;
  }
  if (const CUresult result = driver_.GraphLaunch(graph.entry.exec, launch.stream); result != CUDA_SUCCESS)
    fail_cuda(result, fmt::format("launching kernel {}", name));
}

}  // namespace onehop
