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
  try {
    std::array<std::byte, kMaxParameterBytes> zeros{};
    void* argument = zeros.data();
    const CUDA_KERNEL_NODE_PARAMS_v2 node = node_of(kernel, {}, &argument);
    check_cuda(driver.GraphCreate(&graph_, 0), "cuGraphCreate");
    check_cuda(driver.GraphAddKernelNode(&node_, graph_, nullptr, 0, &node), "cuGraphAddKernelNode");
    unused_.reserve(kGraphs);
    while (unused_.size() < kGraphs) {
      CUgraphExec graph = nullptr;
      check_cuda(driver.GraphInstantiateWithFlags(&graph, graph_, 0), "cuGraphInstantiate");
      unused_.push_back(graph);
    }
  } catch (...) {
    for (CUgraphExec graph : unused_) (void)driver.GraphExecDestroy(graph);
    if (graph_ != nullptr) (void)driver.GraphDestroy(graph_);
    throw;
  }
}

CUgraphExec GraphPool::take() {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) return nullptr;
  CUgraphExec graph = unused_.back();
  unused_.pop_back();
  return graph;
}

void GraphPool::give_back(CUgraphExec graph) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back(graph);  // there is room for all
}

bool KernelGraphs::Graph::has(CUfunction other, const CudaLaunch& launch, const void* bytes,
                              std::size_t count) const {
  return function == other && shape.grid == launch.grid && shape.rows == launch.rows &&
         shape.block == launch.block && shape.shared_bytes == launch.shared_bytes &&
         parameter.size() == count && std::memcmp(parameter.data(), bytes, count) == 0;
}

KernelGraphs::~KernelGraphs() {
  for (const Graph& each : graphs_) pool_.give_back(each.exec);
}

KernelGraphs::Graph* KernelGraphs::other_graph() {
  if (graphs_.size() < kMostGraphs) {
    graphs_.reserve(kMostGraphs);
    if (CUgraphExec exec = pool_.take(); exec != nullptr) return &graphs_.emplace_back(Graph{.exec = exec});
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
    if (driver_.GraphExecKernelNodeSetParams(graph->exec, pool_.node(), &node) != CUDA_SUCCESS)
      return launch_kernel(driver_, function, launch, parameter, name);
    const auto* const first = static_cast<const std::byte*>(parameter);
    graph->parameter.assign(first, first + bytes);
    graph->shape = launch;
    graph->function = function;
  }
  if (const CUresult result = driver_.GraphLaunch(graph->exec, launch.stream); result != CUDA_SUCCESS)
    fail_cuda(result, fmt::format("launching kernel {}", name));
}

}  // namespace onehop
