// SPDX-License-Identifier: Apache-2.0
// Shared by tests of groups on GPUs: ranks as threads or as processes, and a user's kernels.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "driver/device.h"
#include "driver/module.h"
#include "gpu/test_kernels.h"
#include "support/gpu.h"
#include "support/ranks.h"

ONEHOP_DEVICE_CODE(test_kernels);

namespace onehop::testing {

/// Options for joining: rank 0 is on GPU 0. Waits end long before the test is killed.
inline JoinOptions on_gpus() {
  JoinOptions options;
  options.device = DeviceId{0};
  options.timeout = std::chrono::seconds{20};
  return options;
}

/// Rank r's GPU: the r-th, or one of those that ranks share (shared_gpus()).
inline DeviceId gpu_of(Rank rank) {
  const int shared = shared_gpus();
  return DeviceId{shared > 0 ? rank.value % shared : rank.value};
}

inline void reduce(Group& group, const Gpu& gpu, const std::uint32_t* in, std::uint32_t* out,
                   std::size_t count, std::optional<Algorithm> algorithm = {}) {
  (void)all_reduce(group, in, out, count, DType::u32, ReduceOp::sum, gpu.stream(),
                   {.algorithm = algorithm, .timeout = {}});
}

/// All-reduces of 0, 1, 2, ... words that lie one behind the other; returns their total.
inline std::size_t reduce_many(Group& group, const Gpu& gpu, std::size_t calls, const std::uint32_t* in,
                               std::uint32_t* out) {
  GroupCall scope;
  std::size_t at = 0;
  for (std::size_t count = 0; count < calls; ++count) {
    reduce(group, gpu, in + at, out + at, count);
    at += count;
  }
  scope.end();
  return at;
}

struct GpuRanks {
  int n = 2;
  bool forked = false;
};
/// Called by GoogleTest, which would otherwise print the bytes.
inline void PrintTo(const GpuRanks& ranks, std::ostream* out) {
  *out << (ranks.forked ? "Processes" : "Threads") << ranks.n;
}

/// Tests that run with several numbers of ranks, which are threads or processes.
class OnGpus : public ::testing::TestWithParam<GpuRanks> {
 protected:
  void SetUp() override {
    const std::string missing = GetParam().forked ? forked_gpus_unavailable(n()) : gpus_unavailable(n());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  [[nodiscard]] static int n() { return GetParam().n; }

  static void run(const std::function<void(Group&, Gpu&)>& body, const JoinOptions& options = on_gpus()) {
    const auto with_gpu = [&](Group& group) {
      Gpu gpu(group.device());
      body(group, gpu);
    };
    GetParam().forked ? run_process_group(n(), with_gpu, options) : run_thread_group(n(), with_gpu, options);
  }
};

inline auto all_gpu_ranks() {
  return ::testing::Values(GpuRanks{2, true}, GpuRanks{4, true}, GpuRanks{2, false}, GpuRanks{4, false},
                           GpuRanks{8, true});
}
inline std::string gpu_ranks_name(const ::testing::TestParamInfo<GpuRanks>& info) {
  return ::testing::PrintToString(info.param);
}

/// Loads all of its kernels for the GPU at once: nothing may be loaded while a peer's kernel waits.
class UserKernels {
 public:
  explicit UserKernels(const Gpu& gpu)
      : gpu_(gpu),
        ring_(load(gpu, "user_ring")),
        signals_(load(gpu, "user_signals")),
        misuse_(load(gpu, "user_misuse")),
        delay_(load(gpu, "user_delay")) {}

  void ring(unsigned blocks, unsigned threads, const RingParams& params) const {
    launch(ring_, blocks, threads, params, "user_ring");
  }
  void signals(unsigned blocks, unsigned threads, const RingParams& params) const {
    launch(signals_, blocks, threads, params, "user_signals");
  }
  void misuse(const MisuseParams& params) const { launch(misuse_, 1, 32, params, "user_misuse"); }
  void delay(std::chrono::milliseconds time) const {
    const DelayParams params{static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count())};
    launch(delay_, 1, 1, params, "user_delay");
  }

 private:
  static CUfunction load(const Gpu& gpu, const char* name) {
    static auto& module = *new CudaModule(onehop_code_test_kernels);
    return module.function(gpu.device(), name);
  }
  template <class Params>
  void launch(CUfunction function, unsigned blocks, unsigned threads, const Params& params,
              const char* what) const {
    const CurrentDevice current(gpu_.device());
    launch_kernel(cuda_driver(), function,
                  {.grid = blocks, .block = threads, .stream = static_cast<CUstream>(gpu_.stream().handle)},
                  params, what);
  }

  const Gpu& gpu_;
  CUfunction ring_;
  CUfunction signals_;
  CUfunction misuse_;
  CUfunction delay_;
};

/// Keeps the words at both ends of the outputs of calls on `gpu`, so that many calls can be queued before any
/// result is checked.
class EndsLog {
 public:
  EndsLog(Gpu& gpu, std::size_t calls)
      : gpu_(gpu), calls_(calls), words_(gpu.make<std::uint32_t>(2 * calls)) {}
  /// Queues the copies.
  void note(std::size_t call, const std::uint32_t* data, std::size_t count) const {
    gpu_.copy(words_ + 2 * call, data, sizeof *data);
    gpu_.copy(words_ + 2 * call + 1, data + count - 1, sizeof *data);
  }
  void expect(const std::function<std::uint32_t(std::size_t call)>& word) const {
    const std::vector<std::uint32_t> words = gpu_.read(words_, 2 * calls_);
    for (std::size_t i = 0; i < calls_; ++i) {
      ASSERT_EQ(words[2 * i], word(i)) << "first element of call " << i;
      ASSERT_EQ(words[2 * i + 1], word(i)) << "last element of call " << i;
    }
  }

 private:
  Gpu& gpu_;
  std::size_t calls_;
  std::uint32_t* words_;
};

/// Rank r's input of a call, and the sum over all ranks.
inline std::uint32_t part_of(int rank, std::size_t call) {
  return static_cast<std::uint32_t>(call) * 2654435761u + static_cast<std::uint32_t>(rank + 1) * 40503u;
}
inline std::uint32_t sum_of(int ranks, std::size_t call) {
  std::uint32_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += part_of(r, call);
  return sum;
}

/// One small and one large all-reduce; throws when a result is not exact.
inline void expect_works(Group& group, Gpu& gpu) {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{300'007}}) {
    auto* const data = gpu.make<std::uint32_t>(count);
    gpu.fill(data, part_of(group.rank().value, count), count);
    (void)all_reduce(group, data, data, count, DType::u32, ReduceOp::sum, gpu.stream());
    group.synchronize(gpu.stream());
    const std::vector<std::uint32_t> result = gpu.read(data, count);
    gpu.free(reinterpret_cast<std::byte*>(data));
    const std::uint32_t expected = sum_of(group.size(), count);
    if (!std::all_of(result.begin(), result.end(), [&](std::uint32_t each) { return each == expected; }))
      throw std::logic_error(fmt::format("all_reduce of {} words succeeded with a wrong result", count));
  }
}

}  // namespace onehop::testing
