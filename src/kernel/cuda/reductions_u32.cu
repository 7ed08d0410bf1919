// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE u32
#define ONEHOP_ELEMENT onehop::cuda::Native<std::uint32_t>
#include "kernel/cuda/reductions.cuh"
