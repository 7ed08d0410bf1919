// SPDX-License-Identifier: Apache-2.0
// Symmetric memory in parts: for frameworks, whose tensors come and go.
#pragma once

#include <cstddef>
#include <memory>

#include "onehop/buffer.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// Hands out parts of a symmetric buffer, without meeting the other ranks: ranks that make the same calls in
/// the same order get the same offsets, and what is at the same offset on all ranks is symmetric memory.
///
/// Memory freed on a stream may be handed out again at once: for work on the same stream that is right, since
/// it runs after what used the memory before. Who uses it on another stream puts the two in order first, as
/// allocators of frameworks do. The pool looks at no stream, so that its choice is the same on all ranks.
///
/// It keeps its books in host memory and never touches the device. Thread-safe.
class ONEHOP_API SymmetricPool {
 public:
  /// Everything handed out begins at a multiple of it, and is rounded up to one.
  static constexpr std::size_t kAlignment = 512;

  /// `buffer` is the pool's alone from here on, and kept by it. Error{invalid_argument} unless it begins at a
  /// multiple of kAlignment and is as long at least.
  explicit SymmetricPool(SymmetricBuffer buffer);
  SymmetricPool(SymmetricPool&&) noexcept;
  SymmetricPool& operator=(SymmetricPool&&) noexcept;
  /// Memory that was handed out is gone with it, unless a copy of the buffer remains.
  ~SymmetricPool();

  /// The smallest free run that is long enough, and of these the first. Not zeroed. Error{out_of_resources}
  /// names what was asked for, the longest free run and all that is free.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, Stream stream = {});
  /// Error{invalid_argument} unless `data` came from `allocate` and was not freed since.
  void free(void* data, Stream stream = {});

  /// Of anything in the pool's memory, from its beginning: with `buffer().sub` it leads to the same part on
  /// other ranks. Error{invalid_argument} for what is elsewhere.
  [[nodiscard]] std::size_t offset_of(const void* data) const;
  [[nodiscard]] const SymmetricBuffer& buffer() const;
  /// Bytes that are not handed out, in however many runs.
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  class State;
  [[nodiscard]] State& in_use() const;
  std::unique_ptr<State> state_;
};

}  // namespace onehop
