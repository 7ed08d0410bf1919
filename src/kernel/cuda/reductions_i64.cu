// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE i64
#define ONEHOP_ELEMENT onehop::cuda::Native<std::int64_t>
#include "kernel/cuda/reductions.cuh"
