// SPDX-License-Identifier: Apache-2.0
#include "fault/store_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>

#include "onehop/store.h"

namespace onehop::fault {

void end_with_parent(pid_t parent) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
}

StoreServer::StoreServer() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    end_with_parent(parent);
    try {
      const std::unique_ptr<TcpStoreServer> server = TcpStoreServer::start({});
      const std::uint16_t port = server->port();
      (void)!::write(ends[1], &port, sizeof port);
      while (true) (void)::pause();
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  const bool up = pid_ > 0 && ::read(ends[0], &port_, sizeof port_) == sizeof port_;
  ::close(ends[0]);
  if (!up) throw std::runtime_error("the store's server did not start");
}

StoreServer::~StoreServer() {
  (void)::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

}  // namespace onehop::fault
