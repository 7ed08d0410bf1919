// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE i8
#define ONEHOP_ELEMENT onehop::cuda::Native<std::int8_t>
#include "kernel/cuda/reductions.cuh"
