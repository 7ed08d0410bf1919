// SPDX-License-Identifier: Apache-2.0
// One collective, send or receive of a process group, checked and in the library's terms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "onehop/c_api.h"

#include "elements.h"

namespace onehop_torch {

enum class Kind {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
  send,
  recv,
  barrier,
};

inline const char* name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::all_gather:
      return "all_gather";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::broadcast:
      return "broadcast";
    case Kind::reduce:
      return "reduce";
    case Kind::gather:
      return "gather";
    case Kind::scatter:
      return "scatter";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::all_to_all_v:
      return "all_to_all with split sizes";
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
    case Kind::barrier:
      return "barrier";
  }
  return "?";
}

inline bool point_to_point(Kind kind) {
  return kind == Kind::send || kind == Kind::recv;
}

/// Blocks of all_to_all_v in elements, one entry per rank.
struct Blocks {
  std::vector<size_t> counts;
  std::vector<size_t> offsets;

  void add(size_t count) {
    offsets.push_back(counts.empty() ? 0 : offsets.back() + counts.back());
    counts.push_back(count);
  }
};

/// `in` and `out` are dense, hold their elements in order, and keep the memory alive as long as the call. An
/// undefined tensor is one that this rank does not need.
struct Call {
  Kind kind;
  at::Tensor in;
  at::Tensor out;
  size_t count = 0;  ///< elements of `dtype` per block
  onehop_dtype_t dtype = ONEHOP_DTYPE_U8;
  Reduction reduction;
  int root = 0;       ///< also the peer of send and recv
  Blocks in_blocks;   ///< all_to_all_v
  Blocks out_blocks;  ///< all_to_all_v
  /// Copies the result to where the caller wants it. Runs after the collective, on its thread or stream.
  std::function<void()> after;
};

}  // namespace onehop_torch
