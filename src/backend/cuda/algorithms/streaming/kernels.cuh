// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming/one_shot.cuh"
#include "backend/cuda/algorithms/streaming/two_shot.cuh"

#ifdef ONEHOP_IS_FLOAT
#define ONEHOP_STREAMING_KERNELS(op, ranks)                                  \
  ONEHOP_KERNEL(streaming_one_shot, op, ranks, StreamParams,                 \
                (streaming_one_shot<ONEHOP_ELEMENT, Op::op, ranks>(params))) \
  ONEHOP_KERNEL(streaming_two_shot, op, ranks, StreamParams,                 \
                (streaming_two_shot<ONEHOP_ELEMENT, Op::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_STREAMING_KERNELS)
#endif
