// SPDX-License-Identifier: Apache-2.0
#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/units.h"
#include "os/memory_limit.h"

namespace onehop::os {
namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Reserve for the process's other memory: page tables of its mappings, the heap.
constexpr std::size_t kReserve = std::size_t{4} << 20;
// Pages are allocated in chunks of this size, and the limits are checked before each.
constexpr std::size_t kSmallestPart = std::size_t{256} << 10;
constexpr std::size_t kLargestPart = std::size_t{16} << 20;
// Each chunk is at most this fraction of the memory left, so that ranks that allocate concurrently, each
// having just found enough, do not exhaust a limit together.
constexpr std::size_t kRanksAtOnce = 128;

/// A memfd has no limit of its own: if the request exceeds the available memory, the kernel fills the machine
/// or the cgroup and then kills a process without an error. The available memory is therefore checked first,
/// and again while other ranks may be allocating.
void allocate_pages(int fd, std::size_t bytes) {
  const MemoryLimits limits;
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t rest = bytes - done;
    const MemoryRoom room = limits.left();
    if (room.left < kReserve || rest > room.left - kReserve) {
      fail(ErrorCode::out_of_resources,
           "allocating {} of shared memory: {} has {} left for the {} still to come (and {} are kept free)",
           human_bytes(bytes), room.where, human_bytes(room.left), human_bytes(rest), human_bytes(kReserve));
    }
    const std::size_t part = std::min(
        rest,
        std::clamp(room.left / kRanksAtOnce / kSmallestPart * kSmallestPart, kSmallestPart, kLargestPart));
    // fallocate rather than ftruncate: ftruncate succeeds without available memory, and the first access then
    // kills the process.
    if (::fallocate(fd, 0, static_cast<off_t>(done), static_cast<off_t>(part)) == 0) {
      done += part;
    } else if (errno != EINTR) {
      fail_errno(errno, fmt::format("allocating {} of shared memory (is the machine or its cgroup full?)",
                                    human_bytes(bytes)));
    }
  }
}

}  // namespace

UniqueFd create_sealed_memfd(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno(errno, "memfd_create");
  // Beyond RLIMIT_FSIZE fallocate not only fails but kills the process with SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    fail(ErrorCode::out_of_resources,
         "{} of shared memory exceed the file size limit of {} (raise ulimit -f)", human_bytes(bytes),
         human_bytes(limit.rlim_cur));
  }
  allocate_pages(fd.get(), bytes);
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
