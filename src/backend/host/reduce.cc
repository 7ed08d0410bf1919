// SPDX-License-Identifier: Apache-2.0
#include "backend/host/reduce.h"

#include <cstddef>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backend/host/copy.h"
#include "base/check.h"
#include "base/env.h"

namespace onehop::host {
namespace {

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
// __builtin_cpu_supports also checks that the operating system saves the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && has_f16c();  // Clang 14 does not know "f16c"
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

/// The best one first.
constexpr Candidate kCandidates[] = {
#if defined(__x86_64__)
    {{"avx512", &avx512::kKernels}, has_avx512},
    {{"avx2", &avx2::kKernels}, has_avx2},
#endif
    {{"baseline", &baseline::kKernels}, [] { return true; }},
};

Isa wanted_isa() {
  return find_isa(env::get("ONEHOP_HOST_ISA").value_or(""));
}

const Isa& active() {
  static const Isa isa = wanted_isa();
  return isa;
}

const ReduceKernel& kernel(DType type, ReduceOp op) {
  const auto t = static_cast<std::size_t>(type);
  require(t < active().kernels->types, "unknown element type number {}", t);
  require(static_cast<int>(op) < kReduceOpCount, "unknown reduction number {}", static_cast<int>(op));
  return active().kernels->of[t].reduce[kernel_op(op)];
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

void require_known_isa() {
  (void)wanted_isa();
}

std::string_view isa_name() {
  return active().name;
}

void copy_long(void* dst, const void* src, std::size_t bytes) {
  active().kernels->copy(dst, src, bytes);
}

ReduceFn reduce_function(DType type, ReduceOp op) {
  return kernel(type, op).one;
}

Reduce2Fn reduce2_function(DType type, ReduceOp op) {
  return kernel(type, op).two;
}

}  // namespace onehop::host
