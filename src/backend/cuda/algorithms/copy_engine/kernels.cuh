// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/copy_engine/reduce_piece.cuh"

#define ONEHOP_REDUCE_PIECE(op, ranks)                      \
  ONEHOP_KERNEL(reduce_piece, op, ranks, ReducePieceParams, \
                (reduce_piece<ONEHOP_ELEMENT, Ops::op, ranks>(params)))
ONEHOP_FOR_EACH_REDUCTION(ONEHOP_REDUCE_PIECE)
