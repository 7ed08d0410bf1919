#define ONEHOP_ISA avx2
#include "kernel/host/reduce_kernels.h"
