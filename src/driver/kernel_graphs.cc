// SPDX-License-Identifier: Apache-2.0
#include "driver/kernel_graphs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
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

KernelGraphs::Graph* KernelGraphs::other_graph() {
  if (graphs_.size() < kMostGraphs) {
    graphs_.reserve(kMostGraphs);
    if (const std::optional<GraphPool::Entry> entry = pool_.take())
      return &graphs_.emplace_back(Graph{.entry = *entry});
  }
  const auto oldest = std::ranges::min_element(graphs_, {}, &Graph::last_launch);
  return oldest == graphs_.end() ? nullptr : &*oldest;
}

void KernelGraphs::launch(CUfunction function, const CudaLaunch& launch, const void* parameter,
                          std::size_t bytes, const char* name) {
  const auto like = std::ranges::find_if(
      graphs_, [&](const Graph& each) { return each.has(function, launch, parameter, bytes); });
  const bool is_known = like != graphs_.end();
  Graph* const graph = is_known ? &*like : other_graph();
  if (graph == nullptr) return launch_kernel(driver_, function, launch, parameter, name);
  graph->last_launch = ++launches_;
  if (!is_known) {
    graph->function = nullptr;
    void* argument = const_cast<void*>(parameter);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = node_of(function, launch, &argument);
    // Older drivers cannot change the kernel of a graph.
    if (driver_.GraphExecKernelNodeSetParams(graph->entry.exec, graph->entry.node, &node) != CUDA_SUCCESS)
      return launch_kernel(driver_, function, launch, parameter, name);
    const auto* const first = static_cast<const std::byte*>(parameter);
    graph->parameter.assign(first, first + bytes);
    graph->shape = launch;
    graph->function = function;
  }
  if (const CUresult result = driver_.GraphLaunch(graph->entry.exec, launch.stream); result != CUDA_SUCCESS)
    fail_cuda(result, fmt::format("launching kernel {}", name));
}

}  // namespace onehop
