// SPDX-License-Identifier: Apache-2.0
// With a driver that remembers what its graphs launch.
#include "driver/kernel_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "onehop/error.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Parameter {
  int first = 0;
  int second = 0;
};

/// What a kernel was launched with.
struct Seen {
  std::uintptr_t function = 0;
  unsigned grid = 0;
  unsigned rows = 0;
  unsigned block = 0;
  unsigned shared = 0;
  int first = 0;
  bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* out) {
  *out << "kernel " << seen.function << ": " << seen.grid << " x " << seen.rows << " x " << seen.block << ", "
       << seen.shared << " bytes, parameter " << seen.first;
}

template <class Handle>
Handle handle(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT(performance-no-int-to-ptr)
}
template <class Handle>
std::uintptr_t number(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

class KernelGraphsTest : public ::testing::Test {
 protected:
  KernelGraphsTest() {
    self_ = this;
    driver_.GetErrorName = [](CUresult, const char** name) {
      *name = "CUDA_ERROR_OF_THE_TEST";
      return CUDA_SUCCESS;
    };
    driver_.GetErrorString = driver_.GetErrorName;
    driver_.GraphCreate = [](CUgraph* graph, unsigned) {
      *graph = handle<CUgraph>(++self_->created_);
      ++self_->live_;
      return CUDA_SUCCESS;
    };
    driver_.GraphDestroy = [](CUgraph) {
      --self_->live_;
      return CUDA_SUCCESS;
    };
    driver_.GraphAddKernelNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t,
                                    const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
      *node = handle<CUgraphNode>(1000 + number(graph));
      self_->template_ = read(*kernel);
      return CUDA_SUCCESS;
    };
    driver_.GraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
      if (self_->graphs_.size() == self_->most_graphs_) return CUDA_ERROR_OUT_OF_MEMORY;
      self_->graphs_.push_back(self_->template_);
      *exec = handle<CUgraphExec>(self_->graphs_.size());
      ++self_->live_;
      return CUDA_SUCCESS;
    };
    driver_.GraphExecDestroy = [](CUgraphExec) {
      --self_->live_;
      return CUDA_SUCCESS;
    };
    driver_.GraphExecKernelNodeSetParams = [](CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
      if (number(node) != 1000 + number(exec)) return CUDA_ERROR_INVALID_VALUE;
      Seen& graph = self_->graphs_[number(exec) - 1];
      if (self_->keeps_kernels_ && number(kernel->func) != graph.function) return CUDA_ERROR_INVALID_VALUE;
      ++self_->changes_;
      graph = read(*kernel);
      return CUDA_SUCCESS;
    };
    driver_.GraphLaunch = [](CUgraphExec exec, CUstream stream) {
      self_->launched_.push_back(self_->graphs_[number(exec) - 1]);
      self_->streams_.push_back(number(stream));
      return self_->launch_result_;
    };
    driver_.LaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters,
                                void**) {
      self_->directly_.push_back({.function = number(function),
                                  .grid = config->gridDimX,
                                  .rows = config->gridDimY,
                                  .block = config->blockDimX,
                                  .shared = config->sharedMemBytes,
                                  .first = static_cast<const Parameter*>(parameters[0])->first});
      return CUDA_SUCCESS;
    };
  }

  static Seen read(const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
    return {.function = number(kernel.func),
            .grid = kernel.gridDimX,
            .rows = kernel.gridDimY,
            .block = kernel.blockDimX,
            .shared = kernel.sharedMemBytes,
            .first = static_cast<const Parameter*>(kernel.kernelParams[0])->first};
  }

  /// A pool is there as long as the process, so each test has a context of its own.
  GraphPool& pool() { return GraphPool::of(driver_, context_, kernel(1)); }
  void make() { graphs_of_ = std::make_unique<KernelGraphs>(driver_, pool()); }
  static CUfunction kernel(std::uintptr_t number) { return handle<CUfunction>(number); }
  void launch(std::uintptr_t function, const CudaLaunch& launch, Parameter parameter) {
    graphs_of_->launch(kernel(function), launch, &parameter, sizeof parameter, "name");
  }

  static inline KernelGraphsTest* self_ = nullptr;
  static inline std::uintptr_t contexts_ = 0;
  CudaDriver driver_;
  CUcontext context_ = handle<CUcontext>(++contexts_);
  std::uintptr_t created_ = 0;
  int live_ = 0;
  int changes_ = 0;
  std::size_t most_graphs_ = 1000;
  bool keeps_kernels_ = false;
  CUresult launch_result_ = CUDA_SUCCESS;
  Seen template_;
  std::vector<Seen> graphs_;
  std::vector<Seen> launched_;
  std::vector<Seen> directly_;
  std::vector<std::uintptr_t> streams_;
  std::unique_ptr<KernelGraphs> graphs_of_;
};

TEST_F(KernelGraphsTest, AllGraphsOfAContextAreMadeBeforeTheFirstLaunch) {
  make();
  const std::size_t made = graphs_.size();
  EXPECT_GT(made, 1u);
  for (int i = 0; i < 100; ++i) launch(2, {}, {.first = i});
  make();
  for (int i = 0; i < 100; ++i) launch(2, {}, {.first = i});
  EXPECT_EQ(graphs_.size(), made);
  context_ = handle<CUcontext>(++contexts_);
  make();
  EXPECT_EQ(graphs_.size(), 2 * made);
}

TEST_F(KernelGraphsTest, WhereThereIsNoMemoryForAGraphThereAreFewer) {
  most_graphs_ = 3;
  make();
  EXPECT_EQ(live_, 6) << "graphs, and what they were instantiated to";
  for (int i = 0; i < 5; ++i) launch(2, {}, {.first = i});
  EXPECT_THAT(launched_, SizeIs(5));
  EXPECT_THAT(directly_, IsEmpty());
}

TEST_F(KernelGraphsTest, WhereThereAreNoGraphsKernelsAreLaunchedDirectly) {
  most_graphs_ = 0;
  make();
  EXPECT_EQ(live_, 0);
  launch(2, {}, {.first = 1});
  EXPECT_THAT(directly_, SizeIs(1));
}

TEST_F(KernelGraphsTest, WithoutAGraphThatIsNotInUseKernelsAreLaunchedDirectly) {
  make();
  launch(2, {}, {.first = 1});
  std::vector<GraphPool::Entry> rest;
  while (const std::optional<GraphPool::Entry> entry = pool().take()) rest.push_back(*entry);
  EXPECT_EQ(rest.size() + 1, graphs_.size());
  KernelGraphs late(driver_, pool());
  constexpr Parameter kTwo{.first = 2};
  late.launch(kernel(3), {}, &kTwo, sizeof kTwo, "name");
  EXPECT_THAT(directly_, ElementsAre(Seen{3, 1, 1, 1, 0, 2}));
  launch(2, {}, {.first = 4});  // by the one that it has
  EXPECT_THAT(launched_, SizeIs(2));

  pool().give_back(rest.back());
  late.launch(kernel(3), {}, &kTwo, sizeof kTwo, "name");
  EXPECT_THAT(launched_, SizeIs(3));
  EXPECT_THAT(directly_, SizeIs(1));
}

TEST_F(KernelGraphsTest, GraphsOfAnEndedGroupServeOthers) {
  for (int i = 0; i < 100; ++i) {
    make();
    for (int each = 0; each < 3; ++each) launch(2, {}, {.first = each});
  }
  EXPECT_THAT(launched_, SizeIs(300));
  EXPECT_THAT(directly_, IsEmpty());
}

TEST_F(KernelGraphsTest, ALaunchLikeAnEarlierOneChangesNothing) {
  make();
  const CudaLaunch shape{
      .grid = 3, .rows = 2, .block = 64, .shared_bytes = 16, .stream = handle<CUstream>(11)};
  launch(2, shape, {.first = 1});
  launch(2, shape, {.first = 5});
  EXPECT_EQ(changes_, 2);
  CudaLaunch elsewhere = shape;
  elsewhere.stream = handle<CUstream>(12);
  launch(2, elsewhere, {.first = 1});
  launch(2, shape, {.first = 5});
  EXPECT_EQ(changes_, 2);
  const auto seen = [](int first) {
    return Seen{.function = 2, .grid = 3, .rows = 2, .block = 64, .shared = 16, .first = first};
  };
  EXPECT_THAT(launched_, ElementsAre(seen(1), seen(5), seen(1), seen(5)));
  EXPECT_THAT(streams_, ElementsAre(11, 11, 12, 11));
}

TEST_F(KernelGraphsTest, LaunchesWithTheSameKeyAreToldApart) {
  make();
  launch(2, {}, {.first = 5});
  launch(3, {}, {.first = 4});  // kernel and parameter have the same sum
  launch(2, {}, {.first = 5});
  EXPECT_THAT(launched_, ElementsAre(Seen{2, 1, 1, 1, 0, 5}, Seen{3, 1, 1, 1, 0, 4}, Seen{2, 1, 1, 1, 0, 5}));
  EXPECT_EQ(changes_, 2);
}

TEST_F(KernelGraphsTest, EverythingThatDiffersReachesTheKernel) {
  make();
  const CudaLaunch shape{.grid = 3, .rows = 2, .block = 64, .shared_bytes = 16};
  std::vector<Seen> expected;
  const auto check = [&](std::uintptr_t function, const CudaLaunch& like, Parameter parameter) {
    launch(function, like, parameter);
    expected.push_back({.function = function,
                        .grid = like.grid,
                        .rows = like.rows,
                        .block = like.block,
                        .shared = like.shared_bytes,
                        .first = parameter.first});
  };
  const auto changed = [&](auto member, unsigned value) {
    CudaLaunch other = shape;
    other.*member = value;
    return other;
  };
  check(2, shape, {.first = 1});
  check(3, shape, {.first = 1});
  check(2, changed(&CudaLaunch::grid, 4), {.first = 1});
  check(2, changed(&CudaLaunch::rows, 4), {.first = 1});
  check(2, changed(&CudaLaunch::block, 96), {.first = 1});
  check(2, changed(&CudaLaunch::shared_bytes, 32), {.first = 1});
  check(2, shape, {.first = 1, .second = 1});
  EXPECT_EQ(changes_, 7);
  EXPECT_EQ(launched_, expected);
}

TEST_F(KernelGraphsTest, TheGraphThatWasLaunchedLongestAgoGetsWhatIsNew) {
  make();
  int kept = 0;  // how many it remembers
  while (launched_.size() < 100 && changes_ == kept) {
    launch(2, {}, {.first = kept++});
    for (int i = 0; i < kept; ++i) launch(2, {}, {.first = i});
  }
  ASSERT_LT(launched_.size(), 100u);
  --kept;
  changes_ = 0;
  for (int i = 0; i < kept; ++i) launch(2, {}, {.first = 100 + i});
  EXPECT_EQ(changes_, kept);
  launch(2, {}, {.first = 100});  // so 101 is the oldest now
  launch(2, {}, {.first = 200});
  EXPECT_EQ(changes_, kept + 1);
  for (int i = 2; i < kept; ++i) launch(2, {}, {.first = 100 + i});
  launch(2, {}, {.first = 100});
  EXPECT_EQ(changes_, kept + 1);
  launch(2, {}, {.first = 101});
  EXPECT_EQ(changes_, kept + 2);
}

TEST_F(KernelGraphsTest, ADriverThatKeepsTheKernelOfAGraphLaunchesItDirectly) {
  make();
  keeps_kernels_ = true;
  launch(1, {.grid = 1, .block = 32}, {.first = 1});
  launch(2, {.grid = 1, .block = 64}, {.first = 2});
  launch(2, {.grid = 1, .block = 64}, {.first = 2});
  EXPECT_THAT(launched_, ElementsAre(Seen{1, 1, 1, 32, 0, 1}));
  EXPECT_THAT(directly_, ElementsAre(Seen{2, 1, 1, 64, 0, 2}, Seen{2, 1, 1, 64, 0, 2}));
}

TEST_F(KernelGraphsTest, AFailedLaunchNamesTheKernel) {
  make();
  launch_result_ = CUDA_ERROR_LAUNCH_FAILED;
  try {
    launch(2, {}, {.first = 1});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::driver);
    EXPECT_THAT(error.message(), HasSubstr("launching kernel name"));
  }
}

}  // namespace
}  // namespace onehop
