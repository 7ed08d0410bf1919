// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE e4m3
#define ONEHOP_ELEMENT onehop::cuda::E4M3
#define ONEHOP_IS_FLOAT
#include "kernel/cuda/reductions.cuh"
