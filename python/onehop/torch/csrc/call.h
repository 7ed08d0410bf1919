// SPDX-License-Identifier: Apache-2.0
// One collective, send or receive of a process group, checked and in the library's terms.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onehop/c_api.h"

#include "elements.h"

namespace onehop_torch {

/// "all_reduce".
inline std::string name(onehop_collective_t collective) {
  std::string text = onehop_collective_name(collective);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

inline bool point_to_point(onehop_collective_t collective) {
  return collective == ONEHOP_COLLECTIVE_SEND || collective == ONEHOP_COLLECTIVE_RECV;
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
  onehop_collective_t collective;
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

  [[nodiscard]] onehop_call_t on(void* stream, int64_t timeout_ms) const {
    onehop_call_t call;
    onehop_call_init(&call, sizeof call);
    call.collective = collective;
    call.dtype = dtype;
    call.op = reduction.op;
    call.factor = reduction.factor;
    call.root = root;
    if (in.defined()) call.in = in.const_data_ptr();
    if (out.defined()) call.out = out.data_ptr();
    call.count = count;
    call.stream = stream;
    call.in_counts = in_blocks.counts.data();
    call.in_offsets = in_blocks.offsets.data();
    call.out_counts = out_blocks.counts.data();
    call.out_offsets = out_blocks.offsets.data();
    call.timeout_ms = timeout_ms;
    return call;
  }
};

}  // namespace onehop_torch
