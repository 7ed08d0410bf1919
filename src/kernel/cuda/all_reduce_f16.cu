#define ONEHOP_TYPE f16
#define ONEHOP_ELEMENT onehop::cuda::F16
#include "kernel/cuda/all_reduce.cuh"
