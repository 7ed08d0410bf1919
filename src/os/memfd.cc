#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/units.h"

namespace onehop::os {
namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Bytes the kernel reckons can be had without swapping; SIZE_MAX when it does not say.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  for (std::string unit; file >> name >> kilobytes && std::getline(file, unit);) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return SIZE_MAX;
}

}  // namespace

UniqueFd create_sealed_memfd(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno(errno, "memfd_create");
  const auto size = static_cast<off_t>(bytes);
  // Beyond this limit fallocate would not only fail but kill the process with SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    fail(ErrorCode::out_of_resources,
         "{} of shared memory exceed the file size limit of {} (raise ulimit -f)", format_size(bytes),
         format_size(limit.rlim_cur));
  }
  // memfds have no limit of their own: asked for more than there is, the kernel fills the machine and then
  // kills somebody.
  if (const std::size_t available = available_memory(); bytes > available) {
    fail(ErrorCode::out_of_resources, "allocating {} of shared memory: the machine has {} left",
         format_size(bytes), format_size(available));
  }
  // fallocate, not ftruncate: ftruncate succeeds where there is no memory, and the first touch then kills.
  int err = 0;
  do {
    err = ::fallocate(fd.get(), 0, 0, size) == 0 ? 0 : errno;
  } while (err == EINTR);
  if (err != 0) {
    fail_errno(err, fmt::format("allocating {} of shared memory (is the machine or its cgroup full?)",
                                format_size(bytes)));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail_errno(errno, "sealing shared memory");
  return fd;
}

void require_sealed_memfd(int fd, std::size_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0)
    fail(ErrorCode::protocol, "a peer's descriptor is not sealable memory: {}", errno_text(errno));
  if ((seals & kSeals) != kSeals) {
    fail(ErrorCode::protocol, "a peer's shared memory is not sealed (seals {:#x}, wanted {:#x})", seals,
         kSeals);
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno(errno, "fstat of a peer's shared memory");
  if (static_cast<std::size_t>(info.st_size) != bytes) {
    fail(ErrorCode::protocol, "a peer's shared memory has {} bytes instead of {}", info.st_size, bytes);
  }
}

}  // namespace onehop::os
