// All all-reduce kernels of one element type. Each all_reduce_<type>.cu defines ONEHOP_TYPE and
// ONEHOP_ELEMENT, and ONEHOP_IS_FLOAT for those that can pass through mailboxes, and includes this: one
// translation unit per type keeps the edit loop short.
//
// Kernels are named <algorithm>_<type>_<op>_<most ranks>. The most ranks a kernel is for sets how many peers'
// loads are in flight at once; sums, which is what nearly everyone calls, come for 2, 4 and 8, the rest
// for 8.
#include "kernel/cuda/mailbox.cuh"
#include "kernel/cuda/one_shot.cuh"
#include "kernel/cuda/two_shot.cuh"

#define ONEHOP_KERNEL_NAME_(algorithm, type, op, ranks) algorithm##_##type##_##op##_##ranks
#define ONEHOP_KERNEL_NAME(algorithm, type, op, ranks) ONEHOP_KERNEL_NAME_(algorithm, type, op, ranks)

#define ONEHOP_KERNEL(name, op, ranks, algorithm)                                                   \
  extern "C" __global__ void __launch_bounds__(512, 1) ONEHOP_KERNEL_NAME(                          \
      name, ONEHOP_TYPE, op, ranks)(const __grid_constant__ onehop::cuda::AllReduceParams params) { \
    using namespace onehop::cuda;                                                                   \
    algorithm;                                                                                      \
  }

#define ONEHOP_KERNELS(op, ranks)                                                            \
  ONEHOP_KERNEL(one_shot, op, ranks, (OneShot<ONEHOP_ELEMENT, Op::op, ranks>(params).run())) \
  ONEHOP_KERNEL(two_shot, op, ranks, (TwoShot<ONEHOP_ELEMENT, Op::op, ranks>(params).run())) \
  ONEHOP_MAILBOX_KERNELS(op, ranks)

#ifdef ONEHOP_IS_FLOAT
#define ONEHOP_MAILBOX_KERNELS(op, ranks)                                             \
  ONEHOP_KERNEL(mail_one_shot, op, ranks,                                             \
                (MailboxAllReduce<ONEHOP_ELEMENT, Op::op, ranks>(params).one_shot())) \
  ONEHOP_KERNEL(mail_two_shot, op, ranks,                                             \
                (MailboxAllReduce<ONEHOP_ELEMENT, Op::op, ranks>(params).two_shot()))
#else
#define ONEHOP_MAILBOX_KERNELS(op, ranks)
#endif

ONEHOP_KERNELS(sum, 2)
ONEHOP_KERNELS(sum, 4)
ONEHOP_KERNELS(sum, 8)
ONEHOP_KERNELS(prod, 8)
ONEHOP_KERNELS(min, 8)
ONEHOP_KERNELS(max, 8)
ONEHOP_KERNELS(avg, 8)
