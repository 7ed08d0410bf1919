// SPDX-License-Identifier: Apache-2.0
// The methods that torch renamed, under both names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "lists.h"

namespace onehop_torch {

/// The versions of torch in use have the first name, the second, or both, and callers may use either. Those that a version
/// lacks are ordinary methods there, hence no `override`.
class RenamedMethods : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Splits = std::vector<int64_t>;
  using c10d::Backend::Backend;

  // NOLINTBEGIN(modernize-use-override)
  virtual WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& options) = 0;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    return all_gather_single(output, input, options);
  }
  virtual WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) = 0;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
    return all_gather_single_coalesced(outputs, inputs, options);
  }
  virtual WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                        const c10d::ReduceScatterOptions& options) = 0;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) {
    return reduce_scatter_single(output, input, options);
  }
  virtual WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                  const c10d::ReduceScatterOptions& options) = 0;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) {
    return reduce_scatter_single_coalesced(outputs, inputs, options);
  }
  virtual WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                                    Splits& input_splits, const c10d::AllToAllOptions& options) = 0;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                        const c10d::AllToAllOptions& options) {
    return all_to_all_single(output, input, output_splits, input_splits, options);
  }
  virtual WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                                const c10d::GatherOptions& options) = 0;
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
    return gather_single(output, input, options);
  }
  // NOLINTEND(modernize-use-override)
};

}  // namespace onehop_torch
