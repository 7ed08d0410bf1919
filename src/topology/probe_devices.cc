#include <dlfcn.h>
#include <unistd.h>

#include "base/check.h"
#include "topology/probe.h"

namespace onehop {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kControlDevice = "/dev/nvidiactl";

/// Empty when the driver's library can be loaded, else the loader's reason.
std::string library_error() {
  if (void* library = ::dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL)) {
    (void)::dlclose(library);
    return {};
  }
  const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return reason != nullptr ? reason : "no reason given";
}

}  // namespace

std::string driver_note(const std::string& library_error, bool device_node) {
  const bool library = library_error.empty();
  if (library && device_node) {
    return "an NVIDIA driver is present, but this build of onehop does not ask it for devices: none are "
           "listed";
  }
  if (library) {
    return fmt::format(
        "{} is installed but {} does not exist: no GPU, the kernel module is not loaded, or this container "
        "was "
        "started without GPUs",
        kLibrary, kControlDevice);
  }
  if (device_node) {
    return fmt::format(
        "an NVIDIA kernel driver is loaded ({} exists) but its library cannot be used: {}; install the "
        "driver's "
        "user-space part, or give this container the 'compute' driver capability",
        kControlDevice, library_error);
  }
  return fmt::format("no NVIDIA driver on this machine: {} not found", kLibrary);
}

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.notes.push_back(driver_note(library_error(), ::access(kControlDevice, F_OK) == 0));
  return probe;
}

}  // namespace onehop
