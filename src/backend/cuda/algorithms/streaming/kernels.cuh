// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming/one_shot.cuh"
#include "backend/cuda/algorithms/streaming/one_way.cuh"
#include "backend/cuda/algorithms/streaming/two_shot.cuh"

#define ONEHOP_STREAMING_ONE_SHOT(op, ranks)                                                       \
  ONEHOP_KERNEL(streaming_one_shot, op, ranks, StreamParams,                                       \
                (streaming_one_shot<OneShot::all_reduce, ONEHOP_ELEMENT, ranks, Ops::op>(params))) \
  ONEHOP_KERNEL(streaming_reduce_scatter, op, ranks, StreamParams,                                 \
                (streaming_one_shot<OneShot::reduce, ONEHOP_ELEMENT, ranks, Ops::op>(params)))     \
  ONEHOP_KERNEL(streaming_reduce, op, ranks, StreamParams,                                         \
                (streaming_one_way<OneShot::reduce, ONEHOP_ELEMENT, Ops::op>(params)))
ONEHOP_FOR_EACH_REDUCTION_OF_2(ONEHOP_STREAMING_ONE_SHOT)

#define ONEHOP_STREAMING_TWO_SHOT(op, ranks)                 \
  ONEHOP_KERNEL(streaming_two_shot, op, ranks, StreamParams, \
                (streaming_two_shot<ONEHOP_ELEMENT, Ops::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_STREAMING_TWO_SHOT)
