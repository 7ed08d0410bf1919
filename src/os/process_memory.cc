// SPDX-License-Identifier: Apache-2.0
#include "os/process_memory.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace onehop::os {

int read_process(pid_t process, std::uint64_t from, void* to, std::size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{.iov_base = out, .iov_len = bytes};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
    const iovec remote{.iov_base = reinterpret_cast<void*>(from), .iov_len = bytes};
    const ssize_t got = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    // A single call moves at most 2 GiB. It also ends early where the memory ends.
    const auto moved = static_cast<std::size_t>(got);
    out += moved;
    from += moved;
    bytes -= moved;
  }
  return 0;
}

bool readable_by_others(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  std::byte ends[2];
  const iovec local{.iov_base = ends, .iov_len = sizeof ends};
  const iovec remote[2] = {
      {.iov_base = const_cast<std::byte*>(begin), .iov_len = 1},
      {.iov_base = const_cast<std::byte*>(begin + (bytes == 0 ? 0 : bytes - 1)), .iov_len = 1}};
  return ::process_vm_readv(::getpid(), &local, 1, remote, 2, 0) == 2;
}

void permit_siblings_to_read() {
  // The parent of a daemon is the first process, from which every process descends.
  if (const pid_t parent = ::getppid(); parent > 1) (void)::prctl(PR_SET_PTRACER, parent, 0, 0, 0);
}

std::uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace onehop::os
