// SPDX-License-Identifier: Apache-2.0
// Orders the calls of one GPU rank on its device. They share scratch memory, so none may begin before the one before it has
// ended, on whatever streams they are, and also where graphs contain them.
//
// Calls outside graphs record an event behind them, and a call on another stream waits for it. A graph, each time that it runs,
// waits for that event before its first call and all that was captured before that, and records it behind its last call.
// Within a graph, a call depends on the one before it. So graphs, and calls outside them, run in the order in which they are
// launched. Calls in conditional nodes cannot wait, so their capture is an error.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cuda/event.h"
#include "driver/cuda_driver.h"

namespace onehop::cuda {

/// Used by one thread at a time, with the device current. All functions throw Error{driver} if the driver refuses.
class CallOrder {
 public:
  /// `uncaptured`: a stream of the device that is not captured.
  CallOrder(const CudaDriver& driver, CUstream uncaptured) : driver_(driver), last_call_(driver) {
    last_call_.record(uncaptured);  // a graph waits for an event that has been recorded
  }

  /// Before a call queues its work on `stream`.
  void begin(CUstream stream);
  /// After it has queued all of it.
  void end();
  /// Whether the call that began last is being captured.
  [[nodiscard]] bool captured() const { return capture_ != nullptr; }
  /// Whether the last call, or the last graph that was launched, has not ended. Thread-safe.
  [[nodiscard]] bool pending() const { return last_call_.pending(); }

 private:
  /// A graph that is being captured, or was.
  struct Capture {
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    CUgraphNode end = nullptr;          ///< records last_call_
    CUstream stream = nullptr;          ///< of its last call; nullptr: there is none yet
    std::vector<CUgraphNode> last;      ///< where its last call ends; before the first one the wait
    std::vector<CUgraphNode> recorded;  ///< what `end` depends on
  };

  /// Makes everything that the graph has wait for the last call.
  [[nodiscard]] CUgraphNode wait_before_all(CUgraph graph);
  [[nodiscard]] Capture& capture_of(cuuint64_t id, CUgraph graph);
  void begin_in_graph();
  void end_in_graph();

  const CudaDriver& driver_;
  const CudaEvent last_call_;
  bool called_ = false;             ///< outside graphs
  bool has_graphs_ = false;         ///< one may have been launched since the last call
  CUstream last_stream_ = nullptr;  ///< of the last call outside graphs
  std::vector<Capture> captures_;   ///< the one with the latest call last
  CUstream stream_ = nullptr;       ///< of the call that is being queued
  Capture* capture_ = nullptr;      ///< of the call that is being queued
};

}  // namespace onehop::cuda
