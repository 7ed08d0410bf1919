// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "os/fork_guard.h"

namespace onehop {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kControlDevice = "/dev/nvidiactl";

struct Found {
  std::uint32_t generation = 0;  ///< fork generation of this result
  bool looked = false;
  const CudaDriver* driver = nullptr;  ///< leaked: calls may occur during static destruction
  std::string why;
};

std::mutex& found_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Found& found() {
  static auto& instance = *new Found;
  return instance;
}
/// The driver once it has been found, and the process that found it: every call needs it, and the mutex would make threads wait
/// for each other. nullptr: ask with the mutex, for instance because a test has replaced the driver.
constinit std::atomic<const CudaDriver*> g_usable{nullptr};
constinit std::atomic<std::uint32_t> g_usable_generation{0};

const CudaDriver* usable() noexcept {
  // acquire: pairs with the release in remember(), so that the generation and the table are there.
  const CudaDriver* const driver = g_usable.load(std::memory_order_acquire);
  const bool forked = g_usable_generation.load(std::memory_order_relaxed) != os::fork_generation();
  return forked ? nullptr : driver;
}

/// With the mutex.
void remember(const Found& found) noexcept {
  g_usable_generation.store(found.generation, std::memory_order_relaxed);
  g_usable.store(found.driver, std::memory_order_release);
}

/// The replacement of the driver that a test has installed.
struct Override {
  bool active = false;
  const CudaDriver* driver = nullptr;
  std::string why;
};
Override& replacement() {
  static auto& instance = *new Override;
  return instance;
}

std::atomic<std::uint64_t>& epoch() {
  static std::atomic<std::uint64_t> value{0};
  return value;
}

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

/// Explains in one line why CUDA is not usable, without calling the driver.
std::string explain_missing(const char* loader_error) {
  const bool control = ::access(kControlDevice, F_OK) == 0;
  const std::string reason = loader_error != nullptr ? loader_error : "no reason given";
  if (control) {
    return fmt::format(
        "an NVIDIA kernel driver is loaded ({} exists) but its library cannot be used: {}; install the "
        "driver's user-space part, or give this container the 'compute' driver capability",
        kControlDevice, reason);
  }
  return fmt::format("no NVIDIA driver on this machine: {} not found", kLibrary);
}

enum class Necessity { required, optional };

Found look() {
  Found result;
  result.looked = true;
  // Never closed, because its threads and exit handlers would outlive it.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    result.why = explain_missing(::dlerror());  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    return result;
  }
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    result.why = "the NVIDIA driver is older than CUDA 12: install version 525 or newer";
    return result;
  }
  auto driver = std::make_unique<CudaDriver>();
  const auto resolve = [&](const char* name, int version, Necessity necessity, auto& slot) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult outcome = get(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    if (outcome == CUDA_SUCCESS && address != nullptr) {
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(address);
    } else if (necessity == Necessity::required && result.why.empty()) {
      result.why = fmt::format("the NVIDIA driver has no {} of CUDA {}.{}: install version 525 or newer",
                               name, version / 1000, version % 1000 / 10);
    }
  };
#define ONEHOP_CUDA_FUNCTION(name, version, necessity) \
  resolve("cu" #name, version, Necessity::necessity, driver->name);
#define ONEHOP_CUDA_FUNCTION_OF ONEHOP_CUDA_FUNCTION
#include "driver/cuda_functions.inc"
#undef ONEHOP_CUDA_FUNCTION
#undef ONEHOP_CUDA_FUNCTION_OF
  if (!result.why.empty()) return result;

  if (const CUresult outcome = driver->Init(0); outcome != CUDA_SUCCESS) {
    result.why = fmt::format(
        "{} is installed but finds no usable GPU: {}; the kernel module is not loaded, all devices are "
        "hidden (CUDA_VISIBLE_DEVICES), or this container was started without GPUs",
        kLibrary, cuda_error_text(outcome));
    return result;
  }
  result.driver = driver.release();
  return result;
}

}  // namespace

const CudaDriver* find_cuda_driver(std::string* why) noexcept {
  if (const CudaDriver* const driver = usable()) {
    if (why != nullptr) why->clear();
    return driver;
  }
  const std::lock_guard lock(found_mutex());
  if (replacement().active) {
    if (why != nullptr) *why = replacement().why;
    return replacement().driver;
  }
  Found& known = found();
  if (!known.looked) {
    try {
      known = look();
      known.generation = os::fork_generation();
    } catch (const std::exception& error) {
      known.why = error.what();
      known.looked = true;
    }
    if (known.driver == nullptr) log::debug("CUDA: {}", known.why);
  }
  if (known.driver != nullptr && known.generation != os::fork_generation()) {
    if (why != nullptr) {
      *why =
          "this process was forked from one that had initialized CUDA, which the driver does not support; "
          "fork first, or start a new program";
    }
    return nullptr;
  }
  remember(known);
  if (why != nullptr) *why = known.why;
  return known.driver;
}

const CudaDriver& cuda_driver() {
  if (const CudaDriver* const driver = usable()) [[likely]]
    return *driver;
  std::string why;
  const CudaDriver* const driver = find_cuda_driver(&why);
  if (driver == nullptr) fail(ErrorCode::unsupported, "no GPU can be used: {}", why);
  return *driver;
}

ScopedCudaDriver::ScopedCudaDriver(const CudaDriver* fake, std::string why) {
  const std::lock_guard lock(found_mutex());
  replacement() = {.active = true, .driver = fake, .why = std::move(why)};
  g_usable.store(nullptr, std::memory_order_relaxed);  // no other thread uses the driver
  advance_driver_epoch();
}

ScopedCudaDriver::~ScopedCudaDriver() {
  const std::lock_guard lock(found_mutex());
  replacement() = {};
  advance_driver_epoch();
}

std::uint64_t driver_epoch() noexcept {
  return epoch().load(std::memory_order_acquire);
}

void advance_driver_epoch() noexcept {
  epoch().fetch_add(1, std::memory_order_acq_rel);
}

std::string cuda_error_text(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  const CudaDriver* driver = nullptr;
  {
    // find_cuda_driver must not be called here: its own failure may be the one that is described.
    const std::unique_lock lock(found_mutex(), std::try_to_lock);
    if (lock.owns_lock()) driver = replacement().active ? replacement().driver : found().driver;
  }
  if (driver != nullptr && driver->GetErrorName != nullptr && driver->GetErrorString != nullptr) {
    (void)driver->GetErrorName(result, &name);
    (void)driver->GetErrorString(result, &text);
  }
  if (name == nullptr) return fmt::format("CUDA error {}", static_cast<int>(result));
  return fmt::format("{} ({}): {}", name, static_cast<int>(result), text != nullptr ? text : "no text");
}

void fail_cuda(CUresult result, const std::string& what) {
  ErrorCode code = ErrorCode::driver;
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      code = ErrorCode::out_of_resources;
      break;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      code = ErrorCode::unsupported;
      break;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
      code = ErrorCode::invalid_argument;
      break;
    default:
      break;
  }
  fail(code, "{}: {}", what, cuda_error_text(result));
}

}  // namespace onehop
