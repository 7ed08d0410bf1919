// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_ISA avx2
#include "backend/host/reduce_kernels.h"
