// SPDX-License-Identifier: Apache-2.0
// A little of everything, for compute-sanitizer. The tool runs the kernels of a process one after another, so ranks that
// share a GPU must be processes. It does not follow a fork, so `onehop launch` starts them (scripts/gpu_tests.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_small_test {
namespace {

enum class Ranks { threads, launched };
void PrintTo(Ranks ranks, std::ostream* out) {
  *out << (ranks == Ranks::threads ? "Threads2" : "Launched");
}

class CudaSmall : public ::testing::TestWithParam<Ranks> {
 protected:
  void SetUp() override {
    if (GetParam() == Ranks::launched && rank_ == nullptr)
      GTEST_SKIP() << "for ranks that `onehop launch` starts, each under compute-sanitizer";
    if (const std::string missing = gpus_unavailable(2); !missing.empty()) GTEST_SKIP() << missing;
  }
  void run(const std::function<void(Group&, Gpu&)>& body) const {
    JoinOptions options = on_gpus();
    options.timeout = std::chrono::seconds{60};
    options.scratch_bytes = 64 << 10;
    const auto with_gpu = [&](Group& group) {
      Gpu gpu(group.device());
      body(group, gpu);
    };
    if (GetParam() == Ranks::threads) return run_thread_group(2, with_gpu, options);
    options.device = gpu_of(Rank{std::stoi(rank_)});
    Group group = Group::from_env(options);
    with_gpu(group);
  }
  static Rank next(const Group& group) { return Rank{(group.rank().value + 1) % group.size()}; }
  static Rank previous(const Group& group) {
    return Rank{(group.rank().value + group.size() - 1) % group.size()};
  }

 private:
  const char* const rank_ = std::getenv("ONEHOP_RANK");
};

TEST_P(CudaSmall, DoesALittleOfEverything) {
  run([](Group& group, Gpu& gpu) {
    const UserKernels kernels(gpu);
    const SymmetricBuffer buffer = group.allocate(64 << 10);
    for (const DType type : {DType::f32, DType::bf16, DType::u8}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        for (const std::size_t count : {1ul, 1003ul, 20'011ul}) {
          for (const ReduceOp op : {ReduceOp::max, ReduceOp::sum}) {
            const std::size_t bytes = count * size_of(type);
            std::byte* const data = gpu.allocate(bytes);
            const std::vector<std::byte> ones(bytes, std::byte{1});
            // Of one rank. In all types that is a positive number, so it is the sum and the maximum.
            const std::vector<std::byte> zeros(bytes);
            gpu.upload(data, (group.rank().value == 0 ? ones : zeros).data(), bytes);
            (void)all_reduce(group, data, data, count, type, op, gpu.stream(),
                             {.algorithm = algorithm, .timeout = {}});
            group.synchronize(gpu.stream());
            EXPECT_EQ(gpu.read(data, bytes), ones);
            group.barrier();
            gpu.free(data);
          }
        }
      }
    }
    auto* const words = gpu.make<std::uint32_t>(600);
    gpu.fill(words, part_of(group.rank().value, 5), 600);
    const std::size_t reduced = reduce_many(group, gpu, 30, words, words);
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(words, reduced), ::testing::Each(sum_of(group.size(), 5)));
    buffer.barrier(gpu.stream());
    buffer.put_signal(gpu.stream(), next(group), 1);
    buffer.wait_signal(gpu.stream(), previous(group), 1);
    auto* const counts = gpu.make<std::uint32_t>(2);
    kernels.ring(
        2, 64,
        {.view = buffer.device_view(), .words = 100, .rounds = 3, .wrong = counts, .gave_up = counts + 1});
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));
    group.barrier();
  });
}

TEST_P(CudaSmall, MakesEveryCollective) {
  const auto body = [](Group& group, Gpu& gpu) {
    const auto ranks = static_cast<std::size_t>(group.size());
    constexpr std::size_t kMost = 1'400'003;  // more than packets carry
    const std::size_t room = ranks * 2 * kMost + 64;
    auto* const in = gpu.allocate(room);
    auto* const out = gpu.allocate(room);
    const std::vector<std::byte> ones(room, std::byte{1});
    gpu.upload(in, ones.data(), ones.size());
    const Stream stream = gpu.stream();
    const Rank root{1};
    const bool is_root = group.rank() == root;
    const auto expect = [&](bool due, std::size_t bytes) {
      group.synchronize(stream);
      if (due) {
        EXPECT_TRUE(gpu.read(out, bytes) == std::vector<std::byte>(bytes, std::byte{1}));
      }
      gpu.fill(out, 0, bytes / 4 + 1);
      gpu.wait();
    };
    for (const DType type : {DType::bf16, DType::u8}) {
      // Blocks of whole packets stream between 2 ranks, and reuse their rings many times. Others of this size do not.
      for (const std::size_t count : {std::size_t{1}, std::size_t{40'000}, std::size_t{40'003}, kMost}) {
        const std::size_t block = count * size_of(type);
        (void)all_gather(group, in, out, count, type, stream);
        expect(true, ranks * block);
        (void)reduce_scatter(group, in, out, count, type, ReduceOp::max, stream);
        expect(true, block);
        (void)broadcast(group, in, out, count, type, root, stream);
        expect(true, block);
        for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
          (void)onehop::reduce(group, in, out, count, type, ReduceOp::max, root, stream,
                               {.algorithm = algorithm, .timeout = {}});
          expect(is_root, block);
        }
        (void)all_to_all(group, in, out, count, type, stream);
        expect(true, ranks * block);
        (void)gather(group, in, out, count, type, root, stream);
        expect(is_root, ranks * block);
        (void)scatter(group, in, out, count, type, root, stream);
        expect(true, block);
        GroupCall scope;
        (void)send(group, in, count, type, next(group), stream);
        (void)recv(group, out, count, type, previous(group), stream);
        scope.end();
        expect(true, block);
      }
    }
    group.barrier();
  };
  run(body);
}

INSTANTIATE_TEST_SUITE_P(, CudaSmall, ::testing::Values(Ranks::threads, Ranks::launched),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace onehop::testing::gpu_small_test
