// SPDX-License-Identifier: Apache-2.0
// All kernels that combine elements of one type. Each reductions_<type>.cu defines ONEHOP_TYPE and
// ONEHOP_ELEMENT, and ONEHOP_IS_FLOAT for types that Lamport buffers (mailboxes) can carry, then includes
// this file. One translation unit per type keeps rebuilds short.
//
// All-reduce kernels are named <protocol>_<type>_<op>_<ranks>, the others alike. Sums, by far the most common
// operation, have variants for exactly 2 and 4 ranks; <ranks> 8 serves any number. Averages and premultiplied
// sums share the kernels named `scaled`, whose scaling is a parameter (kernel/scale.h).
#include "kernel/cuda/chunked.cuh"
#include "kernel/cuda/combine.cuh"
#include "kernel/cuda/copies.cuh"
#include "kernel/cuda/self_timed.cuh"

#define ONEHOP_KERNEL_NAME_(protocol, type, op, ranks) protocol##_##type##_##op##_##ranks
#define ONEHOP_KERNEL_NAME(protocol, type, op, ranks) ONEHOP_KERNEL_NAME_(protocol, type, op, ranks)

#define ONEHOP_KERNEL(name, op, ranks, Params, body)                                                    \
  extern "C" __global__ void __launch_bounds__(onehop::cuda::max_threads(ranks), 2) ONEHOP_KERNEL_NAME( \
      name, ONEHOP_TYPE, op, ranks)(const __grid_constant__ onehop::cuda::Params params) {              \
    using namespace onehop::cuda;                                                                       \
    body;                                                                                               \
  }

#define ONEHOP_KERNELS(op, ranks)                                                                    \
  ONEHOP_KERNEL(packets, op, ranks, AllReduceParams,                                                 \
                (SelfTimed<Flagged, ONEHOP_ELEMENT, Op::op, ranks>(params).one_shot()))              \
  ONEHOP_KERNEL(packets_list, op, ranks, AllReduceListParams,                                        \
                (SelfTimed<Flagged, ONEHOP_ELEMENT, Op::op, ranks, MessageList>(params).one_shot())) \
  ONEHOP_KERNEL(chunks, op, ranks, AllReduceParams,                                                  \
                (all_reduce_chunked<ONEHOP_ELEMENT, Op::op, ranks>(params)))                         \
  ONEHOP_KERNEL(scatter_packets, op, ranks, AllReduceParams,                                         \
                (SelfTimed<Flagged, ONEHOP_ELEMENT, Op::op, ranks>(params).reduce_scatter()))        \
  ONEHOP_KERNEL(combine, op, ranks, PairParams, (combine<ONEHOP_ELEMENT, Op::op, ranks>(params)))    \
  ONEHOP_KERNEL(copies, op, ranks, RoundParams, (add_round<ONEHOP_ELEMENT, Op::op, ranks>(params)))  \
  ONEHOP_MAILBOX_KERNELS(op, ranks)

#ifdef ONEHOP_IS_FLOAT
#define ONEHOP_MAILBOX_KERNELS(op, ranks)                                               \
  ONEHOP_KERNEL(mail_one_shot, op, ranks, AllReduceParams,                              \
                (SelfTimed<Mailbox, ONEHOP_ELEMENT, Op::op, ranks>(params).one_shot())) \
  ONEHOP_KERNEL(mail_two_shot, op, ranks, AllReduceParams,                              \
                (SelfTimed<Mailbox, ONEHOP_ELEMENT, Op::op, ranks>(params).two_shot())) \
  ONEHOP_KERNEL(scatter_mail, op, ranks, AllReduceParams,                               \
                (SelfTimed<Mailbox, ONEHOP_ELEMENT, Op::op, ranks>(params).reduce_scatter()))
#else
#define ONEHOP_MAILBOX_KERNELS(op, ranks)
#endif

ONEHOP_KERNELS(sum, 2)
ONEHOP_KERNELS(sum, 4)
ONEHOP_KERNELS(sum, 8)
ONEHOP_KERNELS(prod, 8)
ONEHOP_KERNELS(min, 8)
ONEHOP_KERNELS(max, 8)
ONEHOP_KERNELS(scaled, 8)
