// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/reduce_from_peers/reduce_from_peers.cuh"

#define ONEHOP_REDUCE_FROM_PEERS(op, ranks)                  \
  ONEHOP_KERNEL(reduce_from_peers, op, ranks, ChannelParams, \
                (reduce_from_peers<ONEHOP_ELEMENT, Ops::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_REDUCE_FROM_PEERS)
