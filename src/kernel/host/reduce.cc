#include "kernel/host/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/check.h"
#include "base/env.h"
#include "kernel/host/copy.h"

namespace onehop::host {
namespace {

static_assert(std::extent_v<decltype(KernelTable::reduce), 0> == kDTypeCount);
static_assert(std::extent_v<decltype(KernelTable::reduce), 1> == kReduceOpCount);

struct Candidate {
  Isa isa;
  bool (*supported)();
};

#if defined(__x86_64__)
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && has_f16c();  // Clang 14 does not know "f16c"
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

/// Best first.
constexpr Candidate kCandidates[] = {
#if defined(__x86_64__)
    {{"avx512", &avx512::kKernels}, has_avx512},
    {{"avx2", &avx2::kKernels}, has_avx2},
#endif
    {{"baseline", &baseline::kKernels}, [] { return true; }},
};

const Isa& active() {
  static const Isa isa = find_isa(env::get("ONEHOP_HOST_ISA").value_or(""));
  return isa;
}

const ReduceKernel& kernel(DType type, ReduceOp op) {
  const auto t = static_cast<std::size_t>(type);
  const auto o = static_cast<std::size_t>(op);
  require(t < kDTypeCount, "unknown element type number {}", t);
  require(o < kReduceOpCount, "unknown reduction number {}", o);
  return active().kernels->reduce[t][o];
}

}  // namespace

Isa find_isa(std::string_view name) {
  std::string runnable;
  for (const auto& [isa, supported] : kCandidates) {
    if (!supported()) continue;
    if (name.empty() || name == isa.name) return isa;
    runnable.append(runnable.empty() ? "" : " ").append(isa.name);
  }
  fail(ErrorCode::invalid_argument,
       "ONEHOP_HOST_ISA='{}' is not an instruction set of this CPU; it can run: {}", name, runnable);
}

std::string_view isa_name() {
  return active().name;
}

ReduceFn reduce_function(DType type, ReduceOp op) {
  return kernel(type, op).one;
}

Reduce2Fn reduce2_function(DType type, ReduceOp op) {
  return kernel(type, op).two;
}

void reduce_streaming(DType type, ReduceOp op, void* dst, const void* const* src, int n, std::size_t count) {
  // By way of a block that stays in the L1 cache, so that no kernel needs a second kind of store.
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kBlock = 4096;
  alignas(kLine) std::array<unsigned char, kBlock> block;
  std::array<const void*, kMaxHostRanks> from;
  require(n >= 1 && n <= kMaxHostRanks, "a reduction of {} sources; it takes 1 to {}", n, kMaxHostRanks);

  const ReduceFn reduce = reduce_function(type, op);
  const std::size_t element = size_of(type);
  auto* to = static_cast<unsigned char*>(dst);
  std::size_t left = count * element;
  std::size_t at = 0;
  // The first block ends at a line of dst and so all others begin at one.
  std::size_t bytes = std::min(left, kBlock - reinterpret_cast<std::uintptr_t>(to) % kLine);
  while (left != 0) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k) {
      from[k] = static_cast<const unsigned char*>(src[k]) + at;
    }
    reduce(block.data(), from.data(), n, bytes / element);
    copy_streaming_unfenced(to + at, block.data(), bytes);
    at += bytes;
    left -= bytes;
    bytes = std::min(left, kBlock);
  }
  streaming_fence();
}

}  // namespace onehop::host
