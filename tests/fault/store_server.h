// SPDX-License-Identifier: Apache-2.0
// The server of a TCP store in a process of its own: a test that forks ranks must not run threads.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace onehop::fault {

/// Ends the calling process when its parent, which must be `parent`, dies for any reason.
void end_with_parent(pid_t parent);

class StoreServer {
 public:
  StoreServer();
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace onehop::fault
