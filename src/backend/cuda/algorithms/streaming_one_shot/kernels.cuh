// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming_one_shot/streaming_one_shot.cuh"

#ifdef ONEHOP_IS_FLOAT
#define ONEHOP_STREAMING_KERNELS(op, ranks)                  \
  ONEHOP_KERNEL(streaming_one_shot, op, ranks, StreamParams, \
                (streaming_one_shot<ONEHOP_ELEMENT, Op::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_STREAMING_KERNELS)
#endif
