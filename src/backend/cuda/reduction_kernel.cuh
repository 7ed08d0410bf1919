// SPDX-License-Identifier: Apache-2.0
// How an algorithm defines the kernels that reduce elements. CMake writes one source per element type, which
// defines ONEHOP_TYPE and ONEHOP_ELEMENT, and ONEHOP_IS_FLOAT for types that Lamport buffers can carry, and
// includes this file and every algorithms/*/kernels.cuh. One translation unit per type keeps rebuilds short.
//
// Kernels are named <kernel>_<type>_<ops>_<ranks>. Sums, by far the most common operation, have variants for
// exactly 2 and 4 ranks; <ranks> 8 serves any number. Averages and premultiplied sums with one factor are sums, whose
// scaling is a parameter (call/scale.h). The other reductions share one kernel, and a parameter says which it computes.
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/scratch.h"

#define ONEHOP_KERNEL_NAME_(name, type, op, ranks) name##_##type##_##op##_##ranks
#define ONEHOP_KERNEL_NAME(name, type, op, ranks) ONEHOP_KERNEL_NAME_(name, type, op, ranks)

#define ONEHOP_KERNEL(name, op, ranks, Params, body)                                                    \
  extern "C" __global__ void __launch_bounds__(onehop::cuda::max_threads(ranks), 2) ONEHOP_KERNEL_NAME( \
      name, ONEHOP_TYPE, op, ranks)(const __grid_constant__ onehop::cuda::Params params) {              \
    using namespace onehop::cuda;                                                                       \
    body;                                                                                               \
  }

/// Calls KERNELS(op, ranks) for every reduction and number of ranks that has a variant.
#define ONEHOP_FOR_EACH_REDUCTION(KERNELS) \
  KERNELS(sum, 2)                          \
  ONEHOP_FOR_EACH_REDUCTION_OF_MORE(KERNELS)
/// For algorithms between more than 2 ranks.
#define ONEHOP_FOR_EACH_REDUCTION_OF_MORE(KERNELS) \
  KERNELS(sum, 4)                                  \
  KERNELS(sum, 8)                                  \
  KERNELS(other, 8)
/// For algorithms between 2 ranks (ReductionKernel::ranks).
#define ONEHOP_FOR_EACH_REDUCTION_OF_2(KERNELS) \
  KERNELS(sum, 2)                               \
  KERNELS(other, 2)
