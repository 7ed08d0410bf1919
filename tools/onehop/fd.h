// SPDX-License-Identifier: Apache-2.0
// Owner of one file descriptor, for the command's own use.
#pragma once

#include <unistd.h>

#include <utility>

namespace onehop::cli {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) (void)::close(fd_);  // Linux releases the descriptor whatever close returns
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace onehop::cli
