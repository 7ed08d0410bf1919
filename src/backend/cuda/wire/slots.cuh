// SPDX-License-Identifier: Apache-2.0
// The slots of the library's kernels (onehop/device/wire/slot.cuh), by the format of the elements.
#pragma once

#include "onehop/device/wire/slot.cuh"

namespace onehop::cuda {

template <class E>
using LL = device::LLSlot<8>;

/// The NaN that replaces a word of all ones is the format's usual NaN, which every NaN result is anyway
/// (onehop/device/element.cuh). A class of its own, so that it may be named for formats without a NaN.
template <class E>
struct Lamport : device::LamportSlot<16, E::kNanWord> {
  using device::LamportSlot<16, E::kNanWord>::LamportSlot;
};

}  // namespace onehop::cuda
