// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE u8
#define ONEHOP_ELEMENT onehop::cuda::Native<std::uint8_t>
#include "kernel/cuda/reductions.cuh"
