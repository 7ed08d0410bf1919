// SPDX-License-Identifier: Apache-2.0
// Lists of tensors as the one dense buffer that a collective reads or writes.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <functional>
#include <utility>
#include <vector>

namespace onehop_torch {

using Tensors = std::vector<at::Tensor>;

inline void check_list(const Tensors& tensors, size_t size, const at::Tensor& like, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == size, "onehop: ", what, " has ", tensors.size(), " tensors, expected ",
                    size, ": one for each rank");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), "onehop: ", what, " has a tensor of type ",
                     tensor.scalar_type(), ", expected ", like.scalar_type());
    TORCH_CHECK_VALUE(tensor.device() == like.device(), "onehop: ", what, " has a tensor on ",
                      tensor.device(), ", expected ", like.device());
  }
}

/// Sets `found` to the device of a tensor that is not on the CPU, if there is one.
inline void find_device(const at::Tensor& tensor, at::Device& found) {
  if (tensor.defined() && !tensor.device().is_cpu()) found = tensor.device();
}
inline void find_device(int64_t /*split*/, at::Device& /*found*/) {}
template <class Element>
void find_device(const std::vector<Element>& list, at::Device& found) {
  for (const Element& element : list) find_device(element, found);
}

inline int64_t total(const Tensors& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.numel();
  return sum;
}

/// The first tensor that has elements, else the first.
inline const at::Tensor& first_of(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != 0) return tensor;
  }
  return tensors[0];
}

/// Whether the tensors are adjacent parts of one allocation, in order: the result of chunk() or split().
/// Those without elements lie anywhere.
inline bool adjacent(const Tensors& tensors) {
  const at::Tensor& first = first_of(tensors);
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!tensor.is_contiguous()) return false;
    const char* begin = static_cast<const char*>(tensor.const_data_ptr());
    if (next != nullptr && (begin != next || !tensor.storage().is_alias_of(first.storage()))) return false;
    next = begin + tensor.nbytes();
  }
  return true;
}

/// One dimension, dense, over the memory of adjacent tensors.
inline at::Tensor span(const Tensors& tensors) {
  return first_of(tensors).as_strided({total(tensors)}, {1});
}

/// The elements of all tensors in order: a view, or a copy that is made on the current stream.
inline at::Tensor flatten_inputs(const Tensors& tensors) {
  if (adjacent(tensors)) return span(tensors);
  Tensors flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

/// Autograd knows nothing of what collectives write. It must not see these copies either: it would refuse parameters, and
/// tensors made in inference mode, which the thread that copies is not in.
struct FlatOutputs {
  at::Tensor buffer;             ///< what the collective writes
  std::function<void()> finish;  ///< distributes the buffer to the tensors; empty for a view
};

inline FlatOutputs flatten_outputs(const Tensors& tensors) {
  if (adjacent(tensors)) return {span(tensors), nullptr};
  at::Tensor buffer = at::empty({total(tensors)}, tensors[0].options());
  return {buffer, [tensors, buffer] {
            const at::AutoDispatchBelowADInplaceOrView outside_autograd;
            int64_t offset = 0;
            for (const at::Tensor& tensor : tensors) {
              at::Tensor target = tensor;
              target.copy_(buffer.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
              offset += tensor.numel();
            }
          }};
}

inline bool same_sizes(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) return false;
  }
  return true;
}

}  // namespace onehop_torch
