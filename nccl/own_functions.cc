// SPDX-License-Identifier: Apache-2.0
#include "own_functions.h"

#include <fmt/core.h>

#include "accelerate.h"
#include "collectives.h"
#include "dispatch.h"
#include "group_queue.h"
#include "last_error.h"
#include "memory.h"
#include "reductions.h"
#include "set_up.h"

namespace onehop::nccl {
namespace {

Result get_version(int* version) {
  if (version == nullptr) return fail(Result::invalid_argument, "ncclGetVersion: version is NULL");
  *version = kVersion;
  return Result::success;
}

/// The last error of this library and that of the real one, since which was later is not known.
const char* get_last_error(void* comm) {
  static const auto real = reinterpret_cast<const char* (*)(void*)>(library().function("ncclGetLastError"));
  return last_error(real != nullptr ? real(comm) : nullptr);
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
      return "a peer failed, left or did not come in time";
    case Result::in_progress:
      return "in progress";
  }
  return "unknown result code";
}

/// A function in the modes that have it; nullptr: the real one is wanted.
struct OwnFunction {
  std::string_view name;
  void* alone;
  void* accelerate;
};

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

/// Calls on carried communicators.
template <Name kName, auto kOwn>
OwnFunction carried() {
  return {kName.text, address_of(kOwn), address_of(&Dispatch<kName, kOwn>::call)};
}

/// A call with a configuration, of which only hints are known here.
template <Name kName, auto kOwn>
struct WithConfig;

template <Name kName, class... Args, Result (*kOwn)(Args...) noexcept>
struct WithConfig<kName, kOwn> {
  static Result call(Args... args, const CallConfig* config) noexcept {
    if (can_ignore(config)) return kOwn(args...);
    return note_for_group(
        fail(Result::invalid_usage, fmt::format("{}: the config is not initialized, or has algSelection "
                                                "or launchCompletionEvent, which need NCCL",
                                                kName.text)));
  }
};

template <Name kName, auto kOwn>
OwnFunction carried_with_config() {
  return carried<kName, &WithConfig<kName, kOwn>::call>();
}

template <class Alone, class Accelerate>
OwnFunction each(std::string_view name, Alone* alone, Accelerate* accelerate) {
  return {name, address_of(alone), address_of(accelerate)};
}

template <class Accelerate>
OwnFunction accelerated(std::string_view name, Accelerate* function) {
  return {name, nullptr, address_of(function)};
}

template <class Alone>
OwnFunction alone(std::string_view name, Alone* function) {
  return {name, address_of(function), nullptr};
}

}  // namespace

void* own_function(std::string_view name, Mode mode) {
  static const OwnFunction functions[] = {
      carried<"ncclAllGather", all_gather>(),
      carried<"ncclAllReduce", all_reduce>(),
      carried<"ncclAlltoAll", all_to_all>(),
      carried<"ncclBcast", broadcast_in_place>(),
      carried<"ncclBroadcast", broadcast>(),
      carried<"ncclGather", gather>(),
      carried<"ncclRecv", recv>(),
      carried<"ncclReduce", reduce>(),
      carried<"ncclReduceScatter", reduce_scatter>(),
      carried<"ncclScatter", scatter>(),
      carried<"ncclSend", send>(),
      carried_with_config<"ncclAllGatherConfig", all_gather>(),
      carried_with_config<"ncclAllReduceConfig", all_reduce>(),
      carried_with_config<"ncclAlltoAllConfig", all_to_all>(),
      carried_with_config<"ncclBroadcastConfig", broadcast>(),
      carried_with_config<"ncclGatherConfig", gather>(),
      carried_with_config<"ncclReduceConfig", reduce>(),
      carried_with_config<"ncclReduceScatterConfig", reduce_scatter>(),
      carried_with_config<"ncclScatterConfig", scatter>(),
      each("ncclCommAbort", comm_abort, accelerate::comm_abort),
      each("ncclCommDestroy", comm_destroy, accelerate::comm_destroy),
      each("ncclCommGetAsyncError", comm_get_async_error, accelerate::comm_get_async_error),
      each("ncclCommInitAll", comm_init_all, accelerate::comm_init_all),
      each("ncclCommInitRank", comm_init_rank, accelerate::comm_init_rank),
      each("ncclCommInitRankConfig", comm_init_rank_config, accelerate::comm_init_rank_config),
      each("ncclCommInitRankScalable", comm_init_rank_scalable, accelerate::comm_init_rank_scalable),
      each("ncclCommRevoke", comm_revoke, accelerate::comm_revoke),
      each("ncclCommShrink", comm_shrink, accelerate::comm_shrink),
      each("ncclCommSplit", comm_split, accelerate::comm_split),
      each("ncclCommWindowDeregister", comm_window_deregister, accelerate::comm_window_deregister),
      each("ncclCommWindowRegister", comm_window_register, accelerate::comm_window_register),
      each("ncclRedOpCreatePreMulSum", create_pre_mul_sum, accelerate::create_pre_mul_sum),
      each("ncclRedOpDestroy", destroy_reduction, accelerate::destroy_reduction),
      each("ncclGetUniqueId", get_unique_id, accelerate::get_unique_id),
      each("ncclGroupEnd", group_end, accelerate::group_end),
      each("ncclGroupStart", group_start, accelerate::group_start),
      accelerated("ncclGroupSimulateEnd", accelerate::group_simulate_end),
      alone("ncclCommCount", comm_count),
      alone("ncclCommCuDevice", comm_cuda_device),
      alone("ncclCommDeregister", comm_deregister),
      alone("ncclCommFinalize", comm_finalize),
      alone("ncclCommRegister", comm_register),
      alone("ncclCommUserRank", comm_user_rank),
      alone("ncclGetErrorString", get_error_string),
      alone("ncclGetVersion", get_version),
      alone("ncclMemAlloc", mem_alloc),
      alone("ncclMemFree", mem_free),
  };
  // In every mode: functions that are missing leave their text there.
  if (name == "ncclGetLastError") return address_of(get_last_error);
  if (mode == Mode::off && library().handle == nullptr) {
    // Programs print it, so it must not be NULL.
    return name == "ncclGetErrorString" ? address_of(get_error_string) : nullptr;
  }
  if (mode == Mode::off) return nullptr;
  for (const OwnFunction& function : functions) {
    if (function.name == name) return mode == Mode::alone ? function.alone : function.accelerate;
  }
  return nullptr;
}

}  // namespace onehop::nccl
