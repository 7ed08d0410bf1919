#define ONEHOP_ISA baseline
#include "kernel/host/reduce_kernels.h"
