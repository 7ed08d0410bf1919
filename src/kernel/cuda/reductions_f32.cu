// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE f32
#define ONEHOP_ELEMENT onehop::cuda::F32
#define ONEHOP_IS_FLOAT
#include "kernel/cuda/reductions.cuh"
