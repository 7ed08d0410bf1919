// SPDX-License-Identifier: Apache-2.0
// A suballocator of symmetric memory, for frameworks that allocate and free tensors.
#pragma once

#include <cstddef>
#include <memory>

#include "onehop/buffer.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// Suballocates a symmetric buffer without synchronizing the ranks. Ranks that make the same calls in the
/// same order get the same offsets, and memory at the same offset on all ranks is symmetric memory.
///
/// Memory freed on a stream may be reused at once. That is safe for work on the same stream, which executes
/// after the work that used the memory before. To use the memory on another stream, order the two streams
/// first, as with framework allocators. The pool ignores the stream argument, so that all ranks make the same
/// choice.
///
/// The pool's bookkeeping lies in host memory; it never accesses the device. Thread-safe.
class ONEHOP_API SymmetricPool {
 public:
  /// Alignment of every allocation in bytes. Sizes are rounded up to a multiple of it.
  static constexpr std::size_t kAlignment = 512;

  /// Takes over `buffer`, which the caller must not use otherwise; the pool keeps a copy. Throws
  /// Error{invalid_argument} unless the buffer is aligned to kAlignment and has at least kAlignment bytes.
  explicit SymmetricPool(SymmetricBuffer buffer);
  SymmetricPool(SymmetricPool&&) noexcept;
  SymmetricPool& operator=(SymmetricPool&&) noexcept;
  /// Invalidates all allocations of the pool, unless a copy of the buffer remains.
  ~SymmetricPool();

  /// Allocates `bytes` bytes by best fit: the smallest free range that is large enough, and the first of
  /// equal ones. The memory is not zeroed. Throws Error{out_of_resources}, which names the requested size,
  /// the largest free range and the total of free bytes.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, Stream stream = {});
  /// Frees an allocation. Throws Error{invalid_argument} unless `data` was returned by `allocate` and has not
  /// been freed since.
  void free(void* data, Stream stream = {});

  /// Byte offset of `data` from the beginning of the pool's memory. With `buffer().sub`, the offset gives the
  /// same part on other ranks. Throws Error{invalid_argument} if `data` lies outside the pool.
  [[nodiscard]] std::size_t offset_of(const void* data) const;
  [[nodiscard]] const SymmetricBuffer& buffer() const;
  /// Total of free bytes, over all free ranges.
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  class State;
  [[nodiscard]] State& in_use() const;
  std::unique_ptr<State> state_;
};

}  // namespace onehop
