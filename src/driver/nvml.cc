// SPDX-License-Identifier: Apache-2.0
#include "driver/nvml.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "driver/cuda_driver.h"

namespace onehop {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";

struct Found {
  bool looked = false;
  const Nvml* nvml = nullptr;  ///< leaked: calls may occur during static destruction
  std::string why;
};

struct Override {
  bool active = false;
  const Nvml* nvml = nullptr;
  std::string why;
};

std::mutex& found_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Override& replacement() {
  static auto& instance = *new Override;
  return instance;
}

enum class Necessity { required, optional };

Found look() {
  Found result;
  result.looked = true;
  // Never closed and never shut down, because other users of NVML in this process may depend on it.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    result.why = fmt::format("NVML cannot be loaded: {}", reason != nullptr ? reason : "no reason given");
    return result;
  }
  auto nvml = std::make_unique<Nvml>();
  const auto resolve = [&](const char* name, Necessity necessity, auto& slot) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(::dlsym(library, name));
    if (slot == nullptr && necessity == Necessity::required && result.why.empty())
      result.why = fmt::format("{} has no {}: install driver version 525 or newer", kLibrary, name);
  };
#define ONEHOP_NVML_FUNCTION(name, necessity, result_type, parameters) \
  resolve("nvml" #name, Necessity::necessity, nvml->name);
#include "driver/nvml_functions.inc"
#undef ONEHOP_NVML_FUNCTION
  if (!result.why.empty()) return result;

  if (const NvmlResult outcome = nvml->Init_v2(); outcome != kNvmlSuccess) {
    result.why = fmt::format("NVML does not start: {}", nvml_error_text(*nvml, outcome));
    return result;
  }
  result.nvml = nvml.release();
  return result;
}

}  // namespace

const Nvml* find_nvml(std::string* why) noexcept {
  static auto& known = *new Found;  // NOLINT(bugprone-unhandled-exception-at-new): once, a few bytes
  const std::lock_guard lock(found_mutex());
  if (replacement().active) {
    if (why != nullptr) *why = replacement().why;
    return replacement().nvml;
  }
  if (!known.looked) {
    try {
      known = look();
    } catch (const std::exception& error) {
      known.why = error.what();
      known.looked = true;
    }
    if (known.nvml == nullptr) log::debug("{}", known.why);
  }
  if (why != nullptr) *why = known.why;
  return known.nvml;
}

std::string nvml_error_text(const Nvml& nvml, NvmlResult result) {
  const char* const text = nvml.ErrorString != nullptr ? nvml.ErrorString(result) : nullptr;
  return fmt::format("{} (NVML error {})", text != nullptr ? text : "no text", static_cast<int>(result));
}

ScopedNvml::ScopedNvml(const Nvml* fake, std::string why) {
  const std::lock_guard lock(found_mutex());
  replacement() = {.active = true, .nvml = fake, .why = std::move(why)};
  advance_driver_epoch();
}

ScopedNvml::~ScopedNvml() {
  const std::lock_guard lock(found_mutex());
  replacement() = {};
  advance_driver_epoch();
}

}  // namespace onehop
