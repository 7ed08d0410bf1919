// SPDX-License-Identifier: Apache-2.0
#define ONEHOP_ISA baseline
#include "backend/host/reduce_kernels.h"
