// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_ISA avx512
#include "backend/host/reduce_kernels.h"
