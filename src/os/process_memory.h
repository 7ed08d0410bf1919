// SPDX-License-Identifier: Apache-2.0
// Reads the memory of another process (Cross Memory Attach). The kernel permits it to a process that may trace
// the other: one of the same user, unless Yama, a seccomp filter or a user namespace forbids it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace onehop::os {

/// Copies [from, from + bytes) of `process` to `to`. Returns 0, or the errno of the failure: EPERM if it is not
/// permitted, ESRCH if the process has ended, EFAULT if it has no such memory.
[[nodiscard]] int read_process(pid_t process, std::uint64_t from, void* to, std::size_t bytes);

/// Whether another process can read this memory, by its first and last byte. Memory that belongs to a device
/// (CUDA's pinned memory with some drivers) or is secret can be read only by its own process.
[[nodiscard]] bool readable_by_others(const void* data, std::size_t bytes);

/// Under Yama's ptrace_scope 1, a process may be traced by its ancestors only. This also permits its parent's
/// other descendants: the ranks that the same launcher started. It does nothing without Yama, and never
/// permits all processes of the machine.
void permit_siblings_to_read();

/// Identifies the PID namespace of this process on this machine; 0: unknown. PIDs mean nothing in another one.
[[nodiscard]] std::uint64_t pid_namespace();

}  // namespace onehop::os
