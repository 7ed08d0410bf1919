// SPDX-License-Identifier: Apache-2.0
// Types and numbers of NCCL's binary interface, as far as this library uses them. Facts of the interface up to 2.32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onehop::nccl {

/// ncclResult_t.
enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

/// ncclUniqueId, which is passed by value.
struct UniqueId {
  static constexpr std::size_t kBytes = 128;
  char bytes[kBytes];
};

/// What an ncclComm_t points to.
class Communicator;
using Comm = Communicator*;

/// ncclDataType_t and ncclRedOp_t, of which programs may pass any number.
enum class DataType : int {};
enum class RedOp : int {};
/// ncclScalarResidence_t.
enum class Residence : int { device = 0, host = 1 };
/// cudaStream_t.
using CudaStream = void*;

/// The beginning of ncclConfig_t, which versions extend at its end.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

/// ncclCollConfig_t, which versions extend at its end: of one call.
struct CallConfig {
  static constexpr unsigned kMagic = 0xcafebeef;  ///< NCCL_API_MAGIC

  std::size_t size;
  unsigned magic;
  unsigned version;
  void* extensions;
  int fewest_blocks, most_blocks, multicast_blocks, cluster_size;
  const char* algorithms;
  int algorithms_are_forced;
  int policy;
  std::uint64_t tag;
  void* launched;  ///< an event, recorded when the kernel has been launched
};

/// NCCL_SHRINK_ABORT, a flag of ncclCommShrink.
inline constexpr int kShrinkAbort = 1;

/// NCCL_REVOKE_DEFAULT: ncclCommRevoke has no other flags.
inline constexpr int kRevokeDefault = 0;

/// NCCL_WIN_COLL_SYMMETRIC, a flag of ncclCommWindowRegister.
inline constexpr int kCollSymmetric = 1;

/// What ncclGetVersion answers where there is no NCCL: the newest version whose functions are exported.
inline constexpr int kVersion = 23203;

}  // namespace onehop::nccl
