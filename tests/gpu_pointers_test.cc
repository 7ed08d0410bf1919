// SPDX-License-Identifier: Apache-2.0
// GPU memory in calls of host ranks, which would die when they read it. The ranks are processes, because this one keeps the
// stand-in of the driver.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <functional>
#include <stdexcept>
#include <vector>

#include "onehop/onehop.h"

#include "support/errors.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

constexpr Rank kMistaken{1};

/// Memory that the CPU cannot access, for which the driver that this process loads vouches.
std::byte* make_gpu_memory() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void* const mapped = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
  auto* const memory = static_cast<std::byte*>(mapped);
  void* const library = ::dlopen(ONEHOP_STAND_IN_CUDA_POINTERS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  *static_cast<std::byte**>(::dlsym(library, "onehop_stand_in_begin")) = memory;
  *static_cast<std::byte**>(::dlsym(library, "onehop_stand_in_end")) = memory + kBytes;
  // The driver's addresses are units of 2 MiB.
  return memory + (std::size_t{2} << 20);
}

TEST(GpuPointers, AreRefusedByHostRanksOnAllRanks) {
  testing::run_process_group(2, [](Group& group) {
    constexpr DType kType = DType::f32;
    std::array<float, 8> in{};
    std::array<float, 8> out{};
    (void)all_reduce(group, in.data(), out.data(), 4, kType);  // before there is a driver
    void* const wrong = group.rank() == kMistaken ? make_gpu_memory() : nullptr;
    const auto or_wrong = [&](void* usual) { return wrong != nullptr ? wrong : usual; };
    void* const odd_in = or_wrong(in.data());
    void* const odd_out = or_wrong(out.data());
    const std::array<std::size_t, 2> counts{4, 4};
    const std::array<std::size_t, 2> offsets{0, 4};
    const Blocks blocks{.counts = counts, .offsets = offsets};
    const std::vector<std::function<void()>> calls{
        [&] { (void)all_reduce(group, odd_in, out.data(), 4, kType); },
        [&] { (void)all_reduce(group, in.data(), odd_out, 4, kType); },
        [&] { (void)broadcast(group, odd_in, out.data(), 4, kType, kMistaken); },
        [&] { (void)all_to_all_v(group, odd_in, blocks, out.data(), blocks, kType); },
        [&] {
          (void)all_reduce(group, in.data(), out.data(), 4, kType, ReduceOp::premul_sum, {},
                           {.own_factor = odd_in});
        },
        // A call between two ranks is refused by ending the group.
        [&] {
          if (group.rank() == kMistaken) {
            (void)send(group, odd_in, 4, kType, Rank{0});
          } else {
            (void)recv(group, out.data(), 4, kType, kMistaken);
          }
        },
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      SCOPED_TRACE(i);
      const Error error = testing::error_of(calls[i]);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.origin(), kMistaken);
      EXPECT_THAT(error.message(), HasSubstr("GPU memory, which host ranks cannot access"));
    }
  });
}

}  // namespace
}  // namespace onehop
