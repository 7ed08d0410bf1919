#define ONEHOP_ISA avx512
#include "kernel/host/reduce_kernels.h"
