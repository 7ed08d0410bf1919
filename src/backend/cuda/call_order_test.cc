// SPDX-License-Identifier: Apache-2.0
// The order of calls in streams and in graphs that are captured, with a driver that only remembers what depends on what.
#include "backend/cuda/call_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace onehop::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Nodes are numbered from 1 on; what they are called says what they do.
struct FakeGraph {
  std::vector<std::string> names{""};
  std::set<std::pair<int, int>> edges;

  int add(const std::string& name, const std::set<int>& after) {
    names.push_back(name);
    const int node = static_cast<int>(names.size()) - 1;
    for (const int each : after) edges.emplace(each, node);
    return node;
  }
  [[nodiscard]] std::set<std::string> before(const std::string& name) const {
    std::set<std::string> found;
    for (const auto& [from, to] : edges) {
      if (names[static_cast<std::size_t>(to)] == name) found.insert(names[static_cast<std::size_t>(from)]);
    }
    return found;
  }
};

struct FakeStream {
  std::string name;
  cuuint64_t capture = 0;  ///< 0: none
  bool invalidated = false;
  std::set<int> frontier;          ///< of its capture
  std::vector<CUgraphNode> shown;  ///< the last answer
  std::vector<std::string> queue;  ///< of a stream that is not captured
};

class CallOrderTest : public ::testing::Test {
 protected:
  CallOrderTest() {
    self_ = this;
    driver_.EventCreate = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(self_);
      return CUDA_SUCCESS;
    };
    driver_.EventDestroy = [](CUevent) { return CUDA_SUCCESS; };
    driver_.EventRecord = [](CUevent, CUstream stream) {
      of(stream).queue.emplace_back("record");
      return of(stream).capture == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    driver_.StreamWaitEvent = [](CUstream stream, CUevent, unsigned flags) {
      of(stream).queue.emplace_back("wait");
      return of(stream).capture == 0 && flags == CU_EVENT_WAIT_DEFAULT ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
    };
    driver_.StreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
      const FakeStream& self = of(stream);
      *status = self.invalidated    ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                : self.capture != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                    : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    driver_.StreamGetCaptureInfo = [](CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                      CUgraph* graph, const CUgraphNode** nodes, std::size_t* count) {
      FakeStream& self = of(stream);
      *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
      if (id != nullptr) *id = self.capture;
      if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(&self_->graphs_[self.capture]);
      self.shown.clear();
      for (const int each : self.frontier) self.shown.push_back(handle(each));
      if (nodes != nullptr) *nodes = self.shown.data();
      if (count != nullptr) *count = self.shown.size();
      return CUDA_SUCCESS;
    };
    driver_.StreamUpdateCaptureDependencies = [](CUstream stream, CUgraphNode* nodes, std::size_t count,
                                                 unsigned flags) {
      if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
      for (std::size_t i = 0; i < count; ++i) of(stream).frontier.insert(number(nodes[i]));
      return CUDA_SUCCESS;
    };
    driver_.GraphAddEventRecordNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, CUevent) {
      std::set<int> before;
      for (std::size_t i = 0; i < count; ++i) before.insert(number(after[i]));
      *node = handle(reinterpret_cast<FakeGraph*>(graph)->add("record", before));
      return CUDA_SUCCESS;
    };
    driver_.GraphAddEventWaitNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t,
                                       CUevent) {
      *node = handle(reinterpret_cast<FakeGraph*>(graph)->add("wait", {}));
      return CUDA_SUCCESS;
    };
    driver_.GraphGetRootNodes = [](CUgraph graph, CUgraphNode* roots, std::size_t* count) {
      const FakeGraph& self = *reinterpret_cast<FakeGraph*>(graph);
      *count = 0;
      for (int node = 1; node < static_cast<int>(self.names.size()); ++node) {
        if (!self.before(self.names[static_cast<std::size_t>(node)]).empty()) continue;
        if (roots != nullptr) roots[*count] = handle(node);
        ++*count;
      }
      return CUDA_SUCCESS;
    };
    driver_.GraphAddDependencies = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        if (!reinterpret_cast<FakeGraph*>(graph)->edges.emplace(number(from[i]), number(to[i])).second)
          return CUDA_ERROR_INVALID_VALUE;
      }
      return CUDA_SUCCESS;
    };
    driver_.GraphRemoveDependencies = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                         std::size_t count) {
      if (self_->allocates_memory_) return CUDA_ERROR_NOT_SUPPORTED;
      for (std::size_t i = 0; i < count; ++i) {
        if (reinterpret_cast<FakeGraph*>(graph)->edges.erase({number(from[i]), number(to[i])}) == 0)
          return CUDA_ERROR_INVALID_VALUE;
      }
      return CUDA_SUCCESS;
    };
    order_ = std::make_unique<CallOrder>(driver_, handle(idle_));
  }

  static CUstream handle(FakeStream& stream) { return reinterpret_cast<CUstream>(&stream); }
  static FakeStream& of(CUstream stream) { return *reinterpret_cast<FakeStream*>(stream); }
  static CUgraphNode handle(int node) {
    return reinterpret_cast<CUgraphNode>(
        static_cast<std::uintptr_t>(node));  // NOLINT(performance-no-int-to-ptr)
  }
  static int number(CUgraphNode node) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(node)); }

  /// Work of any kind on the stream.
  void work(FakeStream& stream, const std::string& name) {
    if (stream.capture == 0) {
      stream.queue.push_back(name);
    } else {
      stream.frontier = {graphs_[stream.capture].add(name, stream.frontier)};
    }
  }
  void call(FakeStream& stream, const std::string& name) {
    order_->begin(handle(stream));
    work(stream, name);
    order_->end();
  }
  [[nodiscard]] std::set<std::string> before(cuuint64_t capture, const std::string& name) {
    return graphs_[capture].before(name);
  }

  static inline CallOrderTest* self_ = nullptr;
  CudaDriver driver_;
  std::map<cuuint64_t, FakeGraph> graphs_;
  bool allocates_memory_ = false;
  FakeStream idle_{.name = "idle", .frontier = {}, .shown = {}, .queue = {}};
  FakeStream a_{.name = "a", .frontier = {}, .shown = {}, .queue = {}};
  FakeStream b_{.name = "b", .frontier = {}, .shown = {}, .queue = {}};
  std::unique_ptr<CallOrder> order_;
};

TEST_F(CallOrderTest, CallsOnOneStreamAreInOrderAnyway) {
  call(a_, "1");
  call(a_, "2");
  EXPECT_FALSE(order_->captured());
  EXPECT_THAT(a_.queue, ElementsAre("1", "record", "2", "record"));
}

TEST_F(CallOrderTest, ACallOnAnotherStreamWaitsForTheOneBefore) {
  call(a_, "1");
  call(b_, "2");
  call(a_, "3");
  EXPECT_THAT(b_.queue, ElementsAre("wait", "2", "record"));
  EXPECT_THAT(a_.queue, ElementsAre("1", "record", "wait", "3", "record"));
}

TEST_F(CallOrderTest, AGraphWaitsBeforeItsFirstCallAndRecordsBehindItsLastOne) {
  a_.capture = 1;
  for (const char* name : {"1", "2", "3"}) call(a_, name);
  EXPECT_TRUE(order_->captured());
  EXPECT_THAT(before(1, "wait"), IsEmpty());
  EXPECT_THAT(before(1, "1"), ElementsAre("wait"));
  EXPECT_THAT(before(1, "2"), ElementsAre("1"));
  EXPECT_THAT(before(1, "3"), ElementsAre("2"));
  EXPECT_THAT(before(1, "record"), ElementsAre("3"));
}

TEST_F(CallOrderTest, AllOfAGraphWaitsForCallsElsewhereAndNothingWaitsForItsRecord) {
  a_.capture = 1;
  work(a_, "own");
  graphs_[1].add("another branch", {});
  work(a_, "next");
  call(a_, "1");
  work(a_, "more");
  call(a_, "2");
  EXPECT_THAT(before(1, "wait"), IsEmpty());
  EXPECT_THAT(before(1, "own"), ElementsAre("wait"));
  EXPECT_THAT(before(1, "another branch"), ElementsAre("wait"));
  EXPECT_THAT(before(1, "next"), ElementsAre("own"));
  EXPECT_THAT(before(1, "1"), ElementsAre("next"));
  EXPECT_THAT(before(1, "more"), ElementsAre("1"));
  EXPECT_THAT(before(1, "record"), ElementsAre("2"));
}

TEST_F(CallOrderTest, CallsOnTwoStreamsOfACaptureAreInOrder) {
  a_.capture = b_.capture = 1;
  work(a_, "fork");
  b_.frontier = a_.frontier;
  work(b_, "own");
  call(a_, "1");
  call(b_, "2");
  call(a_, "3");
  EXPECT_THAT(before(1, "2"), UnorderedElementsAre("own", "1"));
  EXPECT_THAT(before(1, "3"), UnorderedElementsAre("1", "2"));
  EXPECT_THAT(before(1, "record"), ElementsAre("3"));
}

TEST_F(CallOrderTest, ACallThatEndsInSeveralPlacesIsRecordedAndWaitedForThere) {
  a_.capture = b_.capture = 1;
  order_->begin(handle(a_));
  const std::set<int> start = a_.frontier;
  const int first = graphs_[1].add("1a", start);
  const int second = graphs_[1].add("1b", start);
  a_.frontier = {first, second};
  order_->end();
  EXPECT_THAT(before(1, "record"), UnorderedElementsAre("1a", "1b"));
  call(b_, "2");
  EXPECT_THAT(before(1, "2"), UnorderedElementsAre("1a", "1b"));
  EXPECT_THAT(before(1, "record"), ElementsAre("2"));
}

TEST_F(CallOrderTest, AGraphThatAllocatesMemoryKeepsItsEdges) {
  allocates_memory_ = true;
  a_.capture = 1;
  call(a_, "1");
  call(a_, "2");
  EXPECT_THAT(before(1, "record"), UnorderedElementsAre("wait", "1", "2"));
}

TEST_F(CallOrderTest, ACallOnABranchThatHasNothingYetWaits) {
  a_.capture = b_.capture = 1;
  work(b_, "own");
  call(a_, "1");
  EXPECT_THAT(before(1, "own"), ElementsAre("wait"));
  EXPECT_THAT(before(1, "1"), ElementsAre("wait"));
}

TEST_F(CallOrderTest, ACallMayQueueNothing) {
  for (const bool allocates : {false, true}) {
    allocates_memory_ = allocates;
    a_.capture = allocates ? 2 : 1;
    a_.frontier.clear();
    const auto call_nothing = [&] {
      order_->begin(handle(a_));
      order_->end();
    };
    call_nothing();
    EXPECT_THAT(before(a_.capture, "record"), ElementsAre("wait"));
    call(a_, "1");
    call_nothing();
    call(a_, "2");
    call_nothing();
    EXPECT_THAT(before(a_.capture, "1"), ElementsAre("wait"));
    EXPECT_THAT(before(a_.capture, "2"), ElementsAre("1"));
  }
  EXPECT_THAT(before(1, "record"), ElementsAre("2"));
  EXPECT_THAT(before(2, "record"), UnorderedElementsAre("wait", "1", "2"));
}

TEST_F(CallOrderTest, CapturesThatGoOnAtTheSameTimeDoNotMix) {
  a_.capture = 1;
  b_.capture = 2;
  call(a_, "1");
  call(b_, "2");
  call(a_, "3");
  EXPECT_THAT(before(1, "3"), ElementsAre("1"));
  EXPECT_THAT(before(1, "record"), ElementsAre("3"));
  EXPECT_THAT(before(2, "2"), ElementsAre("wait"));
  EXPECT_THAT(before(2, "record"), ElementsAre("2"));
}

TEST_F(CallOrderTest, OnceThereAreGraphsEveryCallOutsideWaitsForTheLastLaunch) {
  call(a_, "1");
  a_.capture = 1;
  call(a_, "2");
  a_.capture = 0;
  call(a_, "3");
  call(a_, "4");
  EXPECT_THAT(a_.queue, ElementsAre("1", "record", "wait", "3", "record", "wait", "4", "record"));
}

TEST_F(CallOrderTest, ManyCapturesMayFollowEachOther) {
  for (cuuint64_t id = 1; id <= 100; ++id) {
    a_.capture = id;
    a_.frontier.clear();
    call(a_, "1");
    call(a_, "2");
    ASSERT_THAT(before(id, "1"), ElementsAre("wait")) << id;
    ASSERT_THAT(before(id, "record"), ElementsAre("2")) << id;
  }
}

TEST_F(CallOrderTest, AnInvalidCaptureIsAnError) {
  a_.capture = 1;
  a_.invalidated = true;
  EXPECT_THROW(order_->begin(handle(a_)), Error);
}

TEST_F(CallOrderTest, AGraphHasSomethingToWaitForBeforeTheFirstCall) {
  EXPECT_THAT(idle_.queue, ElementsAre("record"));
}

}  // namespace
}  // namespace onehop::cuda
