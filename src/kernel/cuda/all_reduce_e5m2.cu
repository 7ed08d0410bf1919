#define ONEHOP_TYPE e5m2
#define ONEHOP_ELEMENT onehop::cuda::E5M2
#include "kernel/cuda/all_reduce.cuh"
