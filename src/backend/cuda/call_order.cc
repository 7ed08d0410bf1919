// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/call_order.h"

#include <algorithm>

namespace onehop::cuda {
namespace {

/// Captures that go on at the same time. Nothing tells when one has ended.
constexpr std::size_t kMostCaptures = 16;

}  // namespace

void CallOrder::add_dependencies(CUgraphNode* nodes, std::size_t count) {
  check_cuda(
      driver_.StreamUpdateCaptureDependencies(stream_, nodes, count, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
      "cuStreamUpdateCaptureDependencies");
}

void CallOrder::begin_with_wait(CUgraph graph) {
  std::size_t count = 0;
  check_cuda(driver_.GraphGetRootNodes(graph, nullptr, &count), "cuGraphGetRootNodes");
  std::vector<CUgraphNode> roots(count);
  check_cuda(driver_.GraphGetRootNodes(graph, roots.data(), &count), "cuGraphGetRootNodes");
  CUgraphNode wait = nullptr;
  check_cuda(driver_.GraphAddEventWaitNode(&wait, graph, nullptr, 0, last_call_.get()),
             "cuGraphAddEventWaitNode");
  // If only the call waited, it would join two branches, which takes 0.9 us (2 H100s, `onehop bench --mode isolated`).
  if (count == 0) return add_dependencies(&wait, 1);
  const std::vector<CUgraphNode> waits(count, wait);
  check_cuda(driver_.GraphAddDependencies(graph, waits.data(), roots.data(), count),
             "cuGraphAddDependencies");
}

CallOrder::Capture& CallOrder::capture_of(cuuint64_t id, CUgraph graph) {
  const auto known = std::ranges::find(captures_, id, &Capture::id);
  if (known != captures_.end()) return *known;
  Capture capture{.id = id, .graph = graph, .end = nullptr, .stream = nullptr, .last = {}};
  begin_with_wait(graph);
  check_cuda(driver_.GraphAddEventRecordNode(&capture.end, graph, nullptr, 0, last_call_.get()),
             "cuGraphAddEventRecordNode");
  if (captures_.size() == kMostCaptures) captures_.erase(captures_.begin());
  return captures_.emplace_back(std::move(capture));
}

void CallOrder::begin_in_graph() {
  has_graphs_ = true;
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  check_cuda(driver_.StreamGetCaptureInfo(stream_, &status, &id, &graph, nullptr, nullptr),
             "cuStreamGetCaptureInfo");
  capture_ = &capture_of(id, graph);
  // This handle means another stream on each thread.
  const bool same_stream = stream_ == capture_->stream && stream_ != CU_STREAM_PER_THREAD;
  if (!same_stream && !capture_->last.empty()) add_dependencies(capture_->last.data(), capture_->last.size());
}

void CallOrder::end_in_graph() {
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  check_cuda(driver_.StreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, &count),
             "cuStreamGetCaptureInfo");
  std::vector<CUgraphNode> last(nodes, nodes + count);
  last.swap(capture_->last);
  // The graph ends with its last call, and all others come before it.
  const std::vector<CUgraphNode> ends(std::max(last.size(), count), capture_->end);
  if (!last.empty()) {
    const CUresult removed =
        driver_.GraphRemoveDependencies(capture_->graph, last.data(), ends.data(), last.size());
    // Graphs that allocate memory keep their edges. Those left here change nothing but time.
    if (removed != CUDA_ERROR_NOT_SUPPORTED) check_cuda(removed, "cuGraphRemoveDependencies");
  }
  check_cuda(driver_.GraphAddDependencies(capture_->graph, capture_->last.data(), ends.data(), count),
             "cuGraphAddDependencies");
  capture_->stream = stream_;
}

void CallOrder::begin(CUstream stream) {
  stream_ = stream;
  capture_ = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check_cuda(driver_.StreamIsCapturing(stream_, &status), "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    fail_cuda(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return begin_in_graph();
  const bool same_stream = stream_ == last_stream_ && stream_ != CU_STREAM_PER_THREAD;
  if (has_graphs_ || (called_ && !same_stream)) last_call_.hold(stream_);
  called_ = true;
  last_stream_ = stream_;
}

void CallOrder::end() {
  captured() ? end_in_graph() : last_call_.record(stream_);
}

}  // namespace onehop::cuda
