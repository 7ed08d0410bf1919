// SPDX-License-Identifier: Apache-2.0
// libonehop_nccl.so as torch and vLLM use NCCL: opened at run time, its functions found by name.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "abi.h"

namespace onehop::nccl {

template <class Signature>
Signature* function(const char* name) {
  static void* const library = ::dlopen(ONEHOP_NCCL, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  void* const found = ::dlsym(library, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Signature*>(found);
}

inline std::string last_error() {
  return function<const char*(Comm)>("ncclGetLastError")(nullptr);
}

/// NCCL_COLLCONFIG_INITIALIZER.
inline CallConfig call_config() {
  CallConfig config{};
  config.size = sizeof(config);
  config.magic = CallConfig::kMagic;
  config.algorithms_are_forced = 1;
  return config;
}

/// The functions that tests of communicators use.
struct Api {
  using Moving = Result(const void*, void*, std::size_t, DataType, Comm, CudaStream);
  using Rooted = Result(const void*, void*, std::size_t, DataType, int root, Comm, CudaStream);
  using Reducing = Result(const void*, void*, std::size_t, DataType, RedOp, Comm, CudaStream);
  using OnComm = Result(Comm);
  using AskedComm = Result(Comm, int*);

  Result (*get_unique_id)(UniqueId*) = function<Result(UniqueId*)>("ncclGetUniqueId");
  Result (*init_rank)(Comm*, int, UniqueId,
                      int) = function<Result(Comm*, int, UniqueId, int)>("ncclCommInitRank");
  Result (*init_rank_config)(Comm*, int, UniqueId, int, const Config*) =
      function<Result(Comm*, int, UniqueId, int, const Config*)>("ncclCommInitRankConfig");
  Result (*init_rank_scalable)(Comm*, int size, int rank, int count, const UniqueId*, const Config*) =
      function<Result(Comm*, int, int, int, const UniqueId*, const Config*)>("ncclCommInitRankScalable");
  Result (*init_all)(Comm*, int, const int*) = function<Result(Comm*, int, const int*)>("ncclCommInitAll");
  Result (*split)(Comm, int color, int key, Comm*,
                  const Config*) = function<Result(Comm, int, int, Comm*, const Config*)>("ncclCommSplit");
  Result (*shrink)(Comm, const int* excluded, int count, Comm*, const Config*, int flags) =
      function<Result(Comm, const int*, int, Comm*, const Config*, int)>("ncclCommShrink");
  Result (*revoke)(Comm, int flags) = function<Result(Comm, int)>("ncclCommRevoke");
  OnComm* finalize = function<OnComm>("ncclCommFinalize");
  OnComm* destroy = function<OnComm>("ncclCommDestroy");
  OnComm* abort = function<OnComm>("ncclCommAbort");
  Result (*async_error)(Comm, Result*) = function<Result(Comm, Result*)>("ncclCommGetAsyncError");
  AskedComm* count = function<AskedComm>("ncclCommCount");
  AskedComm* cuda_device = function<AskedComm>("ncclCommCuDevice");
  AskedComm* user_rank = function<AskedComm>("ncclCommUserRank");
  Result (*group_start)() = function<Result()>("ncclGroupStart");
  Result (*group_end)() = function<Result()>("ncclGroupEnd");
  Reducing* all_reduce = function<Reducing>("ncclAllReduce");
  Reducing* reduce_scatter = function<Reducing>("ncclReduceScatter");
  Moving* all_gather = function<Moving>("ncclAllGather");
  Moving* all_to_all = function<Moving>("ncclAlltoAll");
  Rooted* broadcast = function<Rooted>("ncclBroadcast");
  Rooted* gather = function<Rooted>("ncclGather");
  Rooted* scatter = function<Rooted>("ncclScatter");
  Result (*reduce)(const void*, void*, std::size_t, DataType, RedOp, int, Comm, CudaStream) =
      function<Result(const void*, void*, std::size_t, DataType, RedOp, int, Comm, CudaStream)>("ncclReduce");
  Result (*create_pre_mul_sum)(RedOp*, const void* scalar, DataType, Residence, Comm) =
      function<Result(RedOp*, const void*, DataType, Residence, Comm)>("ncclRedOpCreatePreMulSum");
  Result (*destroy_reduction)(RedOp, Comm) = function<Result(RedOp, Comm)>("ncclRedOpDestroy");
  Result (*bcast)(void*, std::size_t, DataType, int, Comm, CudaStream) =
      function<Result(void*, std::size_t, DataType, int, Comm, CudaStream)>("ncclBcast");
  Result (*all_reduce_config)(const void*, void*, std::size_t, DataType, RedOp, Comm, CudaStream,
                              const CallConfig*) =
      function<Result(const void*, void*, std::size_t, DataType, RedOp, Comm, CudaStream, const CallConfig*)>(
          "ncclAllReduceConfig");
  Result (*gather_config)(const void*, void*, std::size_t, DataType, int, Comm, CudaStream,
                          const CallConfig*) =
      function<Result(const void*, void*, std::size_t, DataType, int, Comm, CudaStream, const CallConfig*)>(
          "ncclGatherConfig");
  Result (*mem_alloc)(void**, std::size_t) = function<Result(void**, std::size_t)>("ncclMemAlloc");
  Result (*mem_free)(void*) = function<Result(void*)>("ncclMemFree");
  Result (*enroll)(Comm, void*, std::size_t,
                   void**) = function<Result(Comm, void*, std::size_t, void**)>("ncclCommRegister");
  Result (*deregister)(Comm, void*) = function<Result(Comm, void*)>("ncclCommDeregister");
  Result (*window_register)(Comm, void*, std::size_t, void**, int) =
      function<Result(Comm, void*, std::size_t, void**, int)>("ncclCommWindowRegister");
  Result (*window_deregister)(Comm, void*) = function<Result(Comm, void*)>("ncclCommWindowDeregister");
  Result (*send)(const void*, std::size_t, DataType, int, Comm, CudaStream) =
      function<Result(const void*, std::size_t, DataType, int, Comm, CudaStream)>("ncclSend");
  Result (*recv)(void*, std::size_t, DataType, int, Comm, CudaStream) =
      function<Result(void*, std::size_t, DataType, int, Comm, CudaStream)>("ncclRecv");
};

}  // namespace onehop::nccl
