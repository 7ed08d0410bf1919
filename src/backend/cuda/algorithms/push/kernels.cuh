// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/push/push.cuh"

#define ONEHOP_PUSH_KERNELS(op, ranks)                                                      \
  ONEHOP_KERNEL(ll_one_shot, op, ranks, PushParams,                                         \
                (Push<LL, ONEHOP_ELEMENT, Ops::op, ranks>(params).one_shot()))              \
  ONEHOP_KERNEL(ll_one_shot_list, op, ranks, PushListParams,                                \
                (Push<LL, ONEHOP_ELEMENT, Ops::op, ranks, MessageList>(params).one_shot())) \
  ONEHOP_KERNEL(ll_reduce_scatter, op, ranks, PushParams,                                   \
                (Push<LL, ONEHOP_ELEMENT, Ops::op, ranks>(params).reduce_scatter()))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_PUSH_KERNELS)

#ifdef ONEHOP_IS_FLOAT
#define ONEHOP_LAMPORT_KERNELS(op, ranks)                                           \
  ONEHOP_KERNEL(lamport_one_shot, op, ranks, PushParams,                            \
                (Push<Lamport, ONEHOP_ELEMENT, Ops::op, ranks>(params).one_shot())) \
  ONEHOP_KERNEL(lamport_two_shot, op, ranks, PushParams,                            \
                (Push<Lamport, ONEHOP_ELEMENT, Ops::op, ranks>(params).two_shot())) \
  ONEHOP_KERNEL(lamport_reduce_scatter, op, ranks, PushParams,                      \
                (Push<Lamport, ONEHOP_ELEMENT, Ops::op, ranks>(params).reduce_scatter()))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_LAMPORT_KERNELS)
#endif
