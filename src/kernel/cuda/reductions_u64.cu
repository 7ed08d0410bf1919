// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_TYPE u64
#define ONEHOP_ELEMENT onehop::cuda::Native<std::uint64_t>
#include "kernel/cuda/reductions.cuh"
