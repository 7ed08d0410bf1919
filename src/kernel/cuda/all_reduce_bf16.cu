#define ONEHOP_TYPE bf16
#define ONEHOP_ELEMENT onehop::cuda::BF16
#include "kernel/cuda/all_reduce.cuh"
