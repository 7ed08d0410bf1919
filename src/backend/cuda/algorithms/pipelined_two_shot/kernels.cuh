// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/pipelined_two_shot/pipelined_two_shot.cuh"

#define ONEHOP_PIPELINE_KERNELS(op, ranks)                     \
  ONEHOP_KERNEL(pipelined_two_shot, op, ranks, PipelineParams, \
                (pipelined_two_shot<ONEHOP_ELEMENT, Ops::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_PIPELINE_KERNELS)
