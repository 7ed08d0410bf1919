// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE i32
#define ONEHOP_ELEMENT onehop::cuda::Native<std::int32_t>
#include "kernel/cuda/reductions.cuh"
