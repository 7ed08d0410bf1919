// SPDX-License-Identifier: Apache-2.0
// The table of kernels that each instruction set provides. Translation units compiled with AVX flags include
// it, so it must not define inline functions (see reduce_kernels.h).
#pragma once

#include <cstddef>

#include "call/scale.h"

namespace onehop::host {

using ReduceFn = void (*)(void* dst, const void* const* src, int n, std::size_t count, Scale scale);
using Reduce2Fn = void (*)(void* dst, void* dst2, const void* const* src, int n, std::size_t count,
                           Scale scale);

struct ReduceKernel {
  ReduceFn one;
  Reduce2Fn two;
};

/// The conversions that the kernels use for a type accumulated in f32, as separate functions. Null pointers for
/// types that are their own accumulator.
struct ConvertKernel {
  void (*decode)(float* dst, const void* src, std::size_t count);
  void (*encode)(void* dst, const float* src, std::size_t count);
};

struct TypeKernels {
  ReduceKernel reduce[kKernelOpCount];  ///< [kernel_op()]
  ConvertKernel convert;
};

using CopyFn = void (*)(void* dst, const void* src, std::size_t bytes);

struct KernelTable {
  CopyFn copy;
  const TypeKernels* of;  ///< [DType]
  std::size_t types;
};

namespace baseline {
extern const KernelTable kKernels;
}
namespace avx2 {
extern const KernelTable kKernels;
}
namespace avx512 {
extern const KernelTable kKernels;
}

}  // namespace onehop::host
