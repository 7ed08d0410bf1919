// SPDX-License-Identifier: Apache-2.0
// Collectives on GPUs with pointers that kernels cannot access: an error that names the pointer, and a
// context that stays usable.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_pointers_test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 1000;

class CudaPointers : public OnGpus {
 protected:
  /// Runs with calls compared on the host (ONEHOP_CHECK), and without.
  static void run_both(const std::function<void(Group&, Gpu&, bool checked)>& body) {
    for (const bool checked : {false, true}) {
      (void)::setenv("ONEHOP_CHECK", checked ? "1" : "0", 1);
      run([&](Group& group, Gpu& gpu) { body(group, gpu, checked); });
    }
    (void)::unsetenv("ONEHOP_CHECK");
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaPointers, all_gpu_ranks(), gpu_ranks_name);

/// All ranks make the call, and all of them refuse it.
void expect_refused(Group& group, const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(what)) << "rank " << group.rank().value;
  }
}

/// Passes `wrong` as input, as output and in every collective.
void expect_refused_everywhere(Group& group, Gpu& gpu, std::byte* wrong, std::byte* right,
                               const std::string& what) {
  const Stream stream = gpu.stream();
  constexpr DType kType = DType::u32;
  const Rank root = group.rank();  // ranks that refuse need not agree on the root
  const std::string in = "its input " + what;
  const std::string out = "its output " + what;
  expect_refused(group, in,
                 [&] { (void)all_reduce(group, wrong, right, kCount, kType, ReduceOp::sum, stream); });
  expect_refused(group, out,
                 [&] { (void)all_reduce(group, right, wrong, kCount, kType, ReduceOp::sum, stream); });
  expect_refused(group, in,
                 [&] { (void)all_reduce(group, wrong, wrong, kCount, kType, ReduceOp::sum, stream); });
  expect_refused(group, in, [&] { (void)all_gather(group, wrong, right, kCount, kType, stream); });
  expect_refused(group, out, [&] { (void)all_gather(group, right, wrong, kCount, kType, stream); });
  expect_refused(group, in,
                 [&] { (void)reduce_scatter(group, wrong, right, kCount, kType, ReduceOp::sum, stream); });
  expect_refused(group, in, [&] { (void)all_to_all(group, wrong, right, kCount, kType, stream); });
  std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), kCount / 8);
  std::vector<std::size_t> offsets;
  for (std::size_t r = 0; r < counts.size(); ++r) offsets.push_back(r * (kCount / 8));
  expect_refused(group, out, [&] {
    (void)all_to_all_v(group, right, {counts, offsets}, wrong, {counts, offsets}, kType, stream);
  });
  if (std::getenv("ONEHOP_CHECK") == std::string("1")) return;  // there the roots must be the same
  expect_refused(group, in, [&] { (void)broadcast(group, wrong, right, kCount, kType, root, stream); });
  expect_refused(group, out,
                 [&] { (void)reduce(group, right, wrong, kCount, kType, ReduceOp::sum, root, stream); });
  expect_refused(group, out, [&] { (void)gather(group, right, wrong, kCount, kType, root, stream); });
  expect_refused(group, in, [&] { (void)scatter(group, wrong, right, kCount, kType, root, stream); });
}

TEST_P(CudaPointers, OfTheWrongKindAreRefusedByNameAndTheGroupWorksOn) {
  run_both([](Group& group, Gpu& gpu, bool /*checked*/) {
    const std::size_t bytes = static_cast<std::size_t>(group.size()) * kCount * 4;
    std::byte* const right = gpu.allocate(bytes);
    std::vector<std::byte> host(bytes);
    expect_refused_everywhere(group, gpu, host.data(), right, "is host memory");
    expect_works(group, gpu);
    {
      const std::string other = "is memory of another GPU";
      int devices = 0;
      ASSERT_EQ(cuda_driver().DeviceGetCount(&devices), CUDA_SUCCESS);
      if (devices > 1) {
        Gpu elsewhere(DeviceId{(group.device().value + 1) % devices});
        expect_refused_everywhere(group, gpu, elsewhere.allocate(bytes), right, other);
        expect_works(group, gpu);
      }
    }
    gpu.wait();
    group.barrier();
  });
}

TEST_P(CudaPointers, ThatEndTooEarlyAreRefusedWithTheirEnd) {
  run_both([](Group& group, Gpu& gpu, bool checked) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    std::byte* const end = gpu.allocate(kBytes) + kBytes;
    // Far beyond the end of the allocation, so that no neighbor happens to reach that far. If calls are
    // compared, all ranks name the first one that refuses, which knows the most.
    const bool knows = !checked || group.rank() == Rank{0};
    expect_refused(group, knows ? "bytes up to the end of its allocation" : "of rank 0 was rejected", [&] {
      (void)all_reduce(group, end - 400, end - 400, std::size_t{1} << 45, DType::u8, ReduceOp::sum,
                       gpu.stream());
    });
    (void)all_reduce(group, end - 400, end - 400, 400, DType::u8, ReduceOp::sum, gpu.stream());
    group.synchronize(gpu.stream());
    expect_works(group, gpu);
  });
}

TEST_P(CudaPointers, OfOneRankAloneAreHeardByAll) {
  run_both([](Group& group, Gpu& gpu, bool checked) {
    auto* const words = gpu.make<std::uint32_t>(kCount);
    std::vector<std::uint32_t> host(kCount);
    const Rank odd{group.size() - 1};
    try {
      // All ranks are sure to hear of it in the second call.
      for (int i = 0; i < 2; ++i) {
        const bool wrong = group.rank() == odd && i == 0;
        try {
          reduce(group, gpu, wrong ? host.data() : words, words, kCount);
        } catch (const Error& error) {
          EXPECT_EQ(error.origin(), odd);
          EXPECT_THAT(error.message(), HasSubstr("its input is host memory"));
          if (checked || !wrong) throw;
        }
        group.synchronize(gpu.stream());
      }
      ADD_FAILURE() << "rank " << group.rank().value << " heard nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_EQ(error.origin(), odd);
    }
    if (checked) expect_works(group, gpu);  // the error came before any of them began
    gpu.synchronize_device();
  });
}

TEST_P(CudaPointers, OfTransfersAreTheFailureOfTheGroup) {
  run([](Group& group, Gpu& gpu) {
    auto* const words = gpu.make<std::uint32_t>(kCount);
    std::vector<std::uint32_t> host(kCount);
    try {
      if (group.rank() == Rank{0}) (void)send(group, host.data(), kCount, DType::u32, Rank{1}, gpu.stream());
      if (group.rank() == Rank{1}) (void)recv(group, words, kCount, DType::u32, Rank{0}, gpu.stream());
      group.synchronize(gpu.stream());
      group.barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_EQ(error.origin(), Rank{0});
      EXPECT_THAT(error.message(), HasSubstr("its input is host memory"));
    }
    gpu.synchronize_device();
  });
}

TEST_P(CudaPointers, ToPageLockedHostMemoryWork) {
  run([](Group& group, Gpu& gpu) {
    const CurrentDevice current(gpu.device());
    void* data = nullptr;
    ASSERT_EQ(cuda_driver().MemHostAlloc(&data, kCount * 4, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    auto* const words = static_cast<std::uint32_t*>(data);
    std::fill_n(words, kCount, 1U << group.rank().value);
    reduce(group, gpu, words, words, kCount);
    group.synchronize(gpu.stream());
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], (1U << group.size()) - 1);
    group.barrier();
    EXPECT_EQ(cuda_driver().MemFreeHost(data), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace onehop::testing::gpu_pointers_test
