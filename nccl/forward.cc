// SPDX-License-Identifier: Apache-2.0
// What stands behind the trampolines of forward.S.
#include <atomic>
#include <cstdint>

#include "abi.h"
#include "library.h"
#include "own_functions.h"

extern "C" {
/// Registers of a result: an ncclResult_t, a pointer, or a struct of up to 16 bytes.
struct OnehopNcclAnswer {
  std::uint64_t first;
  std::uint64_t second;
};
void onehop_nccl_first_call();
void onehop_nccl_missing();
void* onehop_nccl_resolve(unsigned index);
OnehopNcclAnswer onehop_nccl_refuse(unsigned index);
}

namespace {

using namespace onehop::nccl;

struct Function {
  const char* name;
  bool returns_result;
};
constexpr bool kIsResult_result = true;
constexpr bool kIsResult_value = false;

constexpr Function kFunctions[] = {
#define ONEHOP_NCCL_FUNCTION(name, returns) {#name, kIsResult_##returns},
#include "functions.inc"
#undef ONEHOP_NCCL_FUNCTION
};

}  // namespace

extern "C" {

/// Where the trampolines jump to. Filled at the first call of each function, not when the library is loaded: LD_PRELOAD
/// loads it into every process, of which few use NCCL.
std::atomic<void (*)()> onehop_nccl_slots[] = {
#define ONEHOP_NCCL_FUNCTION(name, returns) onehop_nccl_first_call,
#include "functions.inc"
#undef ONEHOP_NCCL_FUNCTION
};

void* onehop_nccl_resolve(unsigned index) {
  const Library& real = library();
  const char* const name = kFunctions[index].name;
  void* target = own_function(name, real.mode);
  if (target == nullptr) target = real.function(name);
  if (target == nullptr) target = reinterpret_cast<void*>(onehop_nccl_missing);
  // relaxed: the code behind the pointer was there before, and threads that find it at the same time find the same.
  onehop_nccl_slots[index].store(reinterpret_cast<void (*)()>(target), std::memory_order_relaxed);
  return target;
}

OnehopNcclAnswer onehop_nccl_refuse(unsigned index) {
  const Function& function = kFunctions[index];
  const Result result = fail_missing(function.name);
  return {function.returns_result ? static_cast<std::uint64_t>(result) : 0, 0};
}
}
