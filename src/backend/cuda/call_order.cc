// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/call_order.h"

#include <algorithm>
#include <iterator>

namespace onehop::cuda {
namespace {

/// Captures that go on at the same time. Nothing tells when one has ended, so the one whose last call is the oldest makes room.
/// If it is still going on, its later calls are no longer ordered behind its earlier ones, unless the program does that.
constexpr std::size_t kMostCaptures = 16;

std::vector<CUgraphNode> without(const std::vector<CUgraphNode>& nodes,
                                 const std::vector<CUgraphNode>& others) {
  std::vector<CUgraphNode> rest;
  std::ranges::copy_if(nodes, std::back_inserter(rest),
                       [&](CUgraphNode each) { return std::ranges::find(others, each) == others.end(); });
  return rest;
}

}  // namespace

CUgraphNode CallOrder::wait_before_all(CUgraph graph) {
  std::size_t count = 0;
  check_cuda(driver_.GraphGetRootNodes(graph, nullptr, &count), "cuGraphGetRootNodes");
  std::vector<CUgraphNode> roots(count);
  check_cuda(driver_.GraphGetRootNodes(graph, roots.data(), &count), "cuGraphGetRootNodes");
  CUgraphNode wait = nullptr;
  check_cuda(driver_.GraphAddEventWaitNode(&wait, graph, nullptr, 0, last_call_.get()),
             "cuGraphAddEventWaitNode");
  const std::vector<CUgraphNode> waits(count, wait);
  if (count != 0)
    check_cuda(driver_.GraphAddDependencies(graph, waits.data(), roots.data(), count),
               "cuGraphAddDependencies");
  return wait;
}

CallOrder::Capture& CallOrder::capture_of(cuuint64_t id, CUgraph graph) {
  const auto known = std::ranges::find(captures_, id, &Capture::id);
  if (known != captures_.end()) {
    std::rotate(known, known + 1, captures_.end());
    return captures_.back();
  }
  CUgraphNode wait = wait_before_all(graph);
  Capture capture{
      .id = id, .graph = graph, .end = nullptr, .stream = nullptr, .last = {wait}, .recorded = {wait}};
  check_cuda(driver_.GraphAddEventRecordNode(&capture.end, graph, &wait, 1, last_call_.get()),
             "cuGraphAddEventRecordNode");
  if (captures_.size() == kMostCaptures) captures_.erase(captures_.begin());
  return captures_.emplace_back(std::move(capture));
}

void CallOrder::begin_in_graph() {
  has_graphs_ = true;
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  std::size_t before = 0;
  check_cuda(driver_.StreamGetCaptureInfo(stream_, &status, &id, &graph, nullptr, &before),
             "cuStreamGetCaptureInfo");
  capture_ = &capture_of(id, graph);
  // What the stream has captured comes behind the wait, if it has captured anything. If the call waited there, too, it would
  // join two branches, which takes 0.9 us (2 H100s, `onehop bench --mode isolated`). CU_STREAM_PER_THREAD means another stream
  // on each thread.
  const bool is_first = capture_->stream == nullptr;
  const bool same_stream = stream_ == capture_->stream && stream_ != CU_STREAM_PER_THREAD;
  if (before != 0 && (is_first || same_stream)) return;
  check_cuda(driver_.StreamUpdateCaptureDependencies(stream_, capture_->last.data(), capture_->last.size(),
                                                     CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
             "cuStreamUpdateCaptureDependencies");
}

void CallOrder::end_in_graph() {
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  check_cuda(driver_.StreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, &count),
             "cuStreamGetCaptureInfo");
  capture_->last.assign(nodes, nodes + count);
  capture_->stream = stream_;
  // The graph ends with its last call, behind which all others come.
  std::vector<CUgraphNode>& recorded = capture_->recorded;
  const std::vector<CUgraphNode> added = without(capture_->last, recorded);
  const std::vector<CUgraphNode> removed = without(recorded, capture_->last);
  const std::vector<CUgraphNode> ends(std::max(added.size(), removed.size()), capture_->end);
  if (!added.empty()) {
    check_cuda(driver_.GraphAddDependencies(capture_->graph, added.data(), ends.data(), added.size()),
               "cuGraphAddDependencies");
    recorded.insert(recorded.end(), added.begin(), added.end());
  }
  if (removed.empty()) return;
  const CUresult result =
      driver_.GraphRemoveDependencies(capture_->graph, removed.data(), ends.data(), removed.size());
  // Graphs that allocate memory keep their edges. Those that are left change nothing but time.
  if (result == CUDA_ERROR_NOT_SUPPORTED) return;
  check_cuda(result, "cuGraphRemoveDependencies");
  recorded = capture_->last;
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
