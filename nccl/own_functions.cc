// SPDX-License-Identifier: Apache-2.0
#include "own_functions.h"

#include "collectives.h"
#include "group_queue.h"
#include "last_error.h"
#include "set_up.h"

namespace onehop::nccl {
namespace {

Result get_version(int* version) {
  if (version == nullptr) return fail(Result::invalid_argument, "ncclGetVersion: version is NULL");
  *version = kVersion;
  return Result::success;
}

/// The errors of this library as well as the real one's, which knows nothing of these.
const char* get_last_error(void* comm) {
  if (!last_error().empty()) return last_error().c_str();
  static const auto real = reinterpret_cast<const char* (*)(void*)>(library().function("ncclGetLastError"));
  return real != nullptr ? real(comm) : "";
}

const char* get_error_string(Result result) {
  switch (result) {
    case Result::success:
      return "no error";
    case Result::unhandled_cuda_error:
      return "a CUDA call failed";
    case Result::system_error:
      return "a system call failed";
    case Result::internal_error:
      return "internal error";
    case Result::invalid_argument:
      return "invalid argument";
    case Result::invalid_usage:
      return "invalid usage";
    case Result::remote_error:
      return "a peer failed or left";
    case Result::in_progress:
      return "in progress";
    case Result::timeout:
      return "timed out";
  }
  return "unknown result code";
}

enum class Used { always, alone };

struct OwnFunction {
  std::string_view name;
  void* function;
  Used used;
};

template <class Function>
OwnFunction row(std::string_view name, Function* function, Used used) {
  return {name, reinterpret_cast<void*>(function), used};
}

}  // namespace

void* own_function(std::string_view name, Mode mode) {
  static const OwnFunction functions[] = {
      row("ncclAllGather", all_gather, Used::alone),
      row("ncclAllReduce", all_reduce, Used::alone),
      row("ncclAlltoAll", all_to_all, Used::alone),
      row("ncclBcast", broadcast_in_place, Used::alone),
      row("ncclBroadcast", broadcast, Used::alone),
      row("ncclCommAbort", comm_abort, Used::alone),
      row("ncclCommCount", comm_count, Used::alone),
      row("ncclCommCuDevice", comm_cuda_device, Used::alone),
      row("ncclCommDestroy", comm_destroy, Used::alone),
      row("ncclCommFinalize", comm_finalize, Used::alone),
      row("ncclCommGetAsyncError", comm_get_async_error, Used::alone),
      row("ncclCommInitAll", comm_init_all, Used::alone),
      row("ncclCommInitRank", comm_init_rank, Used::alone),
      row("ncclCommInitRankConfig", comm_init_rank_config, Used::alone),
      row("ncclCommUserRank", comm_user_rank, Used::alone),
      row("ncclGather", gather, Used::alone),
      row("ncclGetErrorString", get_error_string, Used::alone),
      row("ncclGetLastError", get_last_error, Used::always),
      row("ncclGetUniqueId", get_unique_id, Used::alone),
      row("ncclGetVersion", get_version, Used::alone),
      row("ncclGroupEnd", group_end, Used::alone),
      row("ncclGroupStart", group_start, Used::alone),
      row("ncclRecv", recv, Used::alone),
      row("ncclReduce", reduce, Used::alone),
      row("ncclReduceScatter", reduce_scatter, Used::alone),
      row("ncclScatter", scatter, Used::alone),
      row("ncclSend", send, Used::alone),
  };
  for (const OwnFunction& each : functions) {
    if (each.name == name && (each.used == Used::always || mode == Mode::alone)) return each.function;
  }
  return nullptr;
}

}  // namespace onehop::nccl
