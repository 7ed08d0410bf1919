// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_ISA avx2
#include "kernel/host/reduce_kernels.h"
