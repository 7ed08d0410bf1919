// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE e5m2
#define ONEHOP_ELEMENT onehop::cuda::E5M2
#define ONEHOP_IS_FLOAT
#include "kernel/cuda/reductions.cuh"
