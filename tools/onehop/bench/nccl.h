// SPDX-License-Identifier: Apache-2.0
// NCCL, loaded at run time. Declares the interface of version 2.7 (2.27 for windows, 2.28 for all-to-all, gather
// and scatter), so that the build needs neither its header nor its library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "onehop/types.h"

namespace onehop::cli {

struct NcclUniqueId {
  char bytes[128];
};
using NcclComm = void*;
using NcclWindow = void*;
using NcclStream = void*;  ///< cudaStream_t

/// A rank of a communicator.
struct NcclMember {
  NcclComm comm = nullptr;
  int rank = 0;
  int ranks = 0;
};

/// The functions in use. A result of 0 is success.
struct Nccl {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank)(NcclComm*, int ranks, NcclUniqueId, int rank) = nullptr;
  int (*comm_destroy)(NcclComm) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;  ///< may be missing
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, NcclComm, NcclStream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, NcclComm, NcclStream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int type, int op, NcclComm, NcclStream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, NcclComm, NcclStream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int type, int op, int root, NcclComm, NcclStream) = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, NcclStream) = nullptr;
  int (*recv)(void*, std::size_t, int type, int peer, NcclComm, NcclStream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  // Missing before 2.28.
  int (*all_to_all)(const void*, void*, std::size_t, int type, NcclComm, NcclStream) = nullptr;
  int (*gather)(const void*, void*, std::size_t, int type, int root, NcclComm, NcclStream) = nullptr;
  int (*scatter)(const void*, void*, std::size_t, int type, int root, NcclComm, NcclStream) = nullptr;
  // Symmetric windows; missing before 2.27.
  int (*mem_alloc)(void**, std::size_t) = nullptr;
  int (*mem_free)(void*) = nullptr;
  int (*window_register)(NcclComm, void*, std::size_t, NcclWindow*, int flags) = nullptr;
  int (*window_deregister)(NcclComm, NcclWindow) = nullptr;

  [[nodiscard]] bool has_windows() const {
    return mem_alloc != nullptr && mem_free != nullptr && window_register != nullptr &&
           window_deregister != nullptr;
  }
  [[nodiscard]] std::string version() const;                           ///< "2.28.9"
  [[nodiscard]] std::string explain(int result, NcclComm comm) const;  ///< one line
};

/// NCCL_WIN_COLL_SYMMETRIC: all ranks register buffers at the same offset.
inline constexpr int kNcclSymmetricWindow = 1;

/// Sets NCCL_NVLS_ENABLE=0, whatever its value: no multicast on shared machines. Call it before other threads
/// start and before NCCL is loaded.
void forbid_nccl_multicast();

/// Loads `library`: a file, or a directory with it (a library directory, that of Python's nvidia.nccl, or
/// site-packages). Empty: what ONEHOP_NCCL_LIBRARY names in the same way, else libnccl.so.2. It is never
/// unloaded. On failure returns nullopt, with the reason in `why`. Error{invalid_argument} unless
/// forbid_nccl_multicast() was called.
[[nodiscard]] std::optional<Nccl> load_nccl(const std::string& library, std::string& why);

/// Calls load_nccl() once per process and library. Thread-safe.
[[nodiscard]] const Nccl* find_nccl(const std::string& library, std::string& why);

[[nodiscard]] int nccl_type(DType type);
[[nodiscard]] int nccl_op(ReduceOp op);

}  // namespace onehop::cli
