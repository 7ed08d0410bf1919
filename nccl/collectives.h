// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives, sends and receives, each as a call of onehop (onehop/call.h).
#pragma once

#include <cstddef>

#include "onehop/types.h"

#include "abi.h"

namespace onehop::nccl {

/// Whether onehop has it. NCCL's other reductions are those that a program has made.
[[nodiscard]] bool is_known(DataType type);
[[nodiscard]] bool is_known(RedOp op);
/// Whether it has nothing but hints about NCCL's kernels, which are not ours. It is the same on all ranks. nullptr: none.
[[nodiscard]] bool can_ignore(const CallConfig* config);
/// Throws Error{invalid_argument} if it is not known.
[[nodiscard]] DType type_of(DataType type);

Result all_reduce(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                  CudaStream stream) noexcept;
Result all_gather(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                  CudaStream stream) noexcept;
Result reduce_scatter(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                      CudaStream stream) noexcept;
Result broadcast(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
                 CudaStream stream) noexcept;
Result broadcast_in_place(void* data, std::size_t count, DataType type, int root, Comm comm,
                          CudaStream stream) noexcept;
Result reduce(const void* in, void* out, std::size_t count, DataType type, RedOp op, int root, Comm comm,
              CudaStream stream) noexcept;
Result all_to_all(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                  CudaStream stream) noexcept;
Result gather(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
              CudaStream stream) noexcept;
Result scatter(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
               CudaStream stream) noexcept;
Result send(const void* in, std::size_t count, DataType type, int peer, Comm comm,
            CudaStream stream) noexcept;
Result recv(void* out, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream) noexcept;

}  // namespace onehop::nccl
