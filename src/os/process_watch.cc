// SPDX-License-Identifier: Apache-2.0
#include "os/process_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace onehop::os {
namespace {

// Since Linux 6.5; older headers lack it.
#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

}  // namespace

ProcessWatch ProcessWatch::of_peer(int socket) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return ProcessWatch(UniqueFd(fd));
  if (errno != ENOPROTOOPT) return {};
  // Fall back to the PID. If the peer has died since it connected, the PID may now name another process. That
  // process is then watched in vain, and the peer's death is detected only through its sockets.
  ucred credentials{};
  size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.pid <= 0)
    return {};
  return ProcessWatch(UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0))));
}

ProcessWatch ProcessWatch::share() const {
  if (!pidfd_) return {};
  return ProcessWatch(UniqueFd(::fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 0)));
}

bool ProcessWatch::has_died() const {
  if (!pidfd_) return false;
  pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0;
}

}  // namespace onehop::os
