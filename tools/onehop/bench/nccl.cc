// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/nccl.h"

namespace onehop::cli {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr const char* kMulticast = "NCCL_NVLS_ENABLE";

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> candidates(const std::string& library) {
  const std::optional<std::string> named =
      library.empty() ? env::get("ONEHOP_NCCL_LIBRARY") : std::optional(library);
  if (!named) return {kLibrary};
  if (!is_directory(*named)) return {*named};
  return {fmt::format("{}/{}", *named, kLibrary), fmt::format("{}/lib/{}", *named, kLibrary),
          fmt::format("{}/nvidia/nccl/lib/{}", *named, kLibrary)};
}

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

std::string Nccl::version() const {
  int code = 0;
  if (get_version(&code) != 0) return "of unknown version";
  // Versions up to 2.8 have another format; they lack the functions compared here.
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string Nccl::explain(int result, NcclComm comm) const {
  std::string text = error_string(result);
  const char* const more = last_error != nullptr ? last_error(comm) : nullptr;
  if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void forbid_nccl_multicast() {
  (void)::setenv(kMulticast, "0", 1);  // NOLINT(concurrency-mt-unsafe): no other threads yet
}

std::optional<Nccl> load_nccl(const std::string& library_name, std::string& why) {
  require(env::get(kMulticast) == "0", "{} must be 0 before NCCL is loaded", kMulticast);
  why.clear();
  void* library = nullptr;
  for (const std::string& path : candidates(library_name)) {
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* const reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    why = fmt::format("{}; name the library or its directory in {}", reason != nullptr ? reason : path,
                      library_name.empty() ? "ONEHOP_NCCL_LIBRARY" : "--peer NAME=LIBRARY");
  }
  if (library == nullptr) return std::nullopt;
  why.clear();
  Nccl nccl;
  bool complete = true;
  const auto need = [&](const char* name, auto& function) {
    look_up(library, name, function);
    complete = complete && function != nullptr;
  };
  need("ncclGetVersion", nccl.get_version);
  need("ncclGetUniqueId", nccl.get_unique_id);
  need("ncclCommInitRank", nccl.comm_init_rank);
  need("ncclCommDestroy", nccl.comm_destroy);
  need("ncclCommAbort", nccl.comm_abort);
  need("ncclGetErrorString", nccl.error_string);
  need("ncclAllReduce", nccl.all_reduce);
  need("ncclAllGather", nccl.all_gather);
  need("ncclReduceScatter", nccl.reduce_scatter);
  need("ncclBroadcast", nccl.broadcast);
  need("ncclReduce", nccl.reduce);
  need("ncclSend", nccl.send);
  need("ncclRecv", nccl.recv);
  need("ncclGroupStart", nccl.group_start);
  need("ncclGroupEnd", nccl.group_end);
  if (!complete) {
    why = "the library named so is not NCCL, or older than 2.7: functions are missing";
    return std::nullopt;
  }
  look_up(library, "ncclGetLastError", nccl.last_error);
  look_up(library, "ncclAlltoAll", nccl.all_to_all);
  look_up(library, "ncclGather", nccl.gather);
  look_up(library, "ncclScatter", nccl.scatter);
  look_up(library, "ncclMemAlloc", nccl.mem_alloc);
  look_up(library, "ncclMemFree", nccl.mem_free);
  look_up(library, "ncclCommWindowRegister", nccl.window_register);
  look_up(library, "ncclCommWindowDeregister", nccl.window_deregister);
  return nccl;
}

const Nccl* find_nccl(const std::string& library, std::string& why) {
  struct Outcome {
    std::optional<Nccl> nccl;
    std::string why;
  };
  static std::mutex mutex;
  static std::map<std::string, Outcome> tried;
  const std::lock_guard lock(mutex);
  auto found = tried.find(library);
  if (found == tried.end()) {
    Outcome outcome;
    outcome.nccl = load_nccl(library, outcome.why);
    found = tried.emplace(library, std::move(outcome)).first;
  }
  why = found->second.why;
  return found->second.nccl ? &*found->second.nccl : nullptr;
}

int nccl_type(DType type) {
  return nccl_number(kNcclTypes, type);
}

int nccl_op(ReduceOp op) {
  return nccl_number(kNcclOps, op);  // cmd_bench.cc refuses premul_sum
}

}  // namespace onehop::cli
