// SPDX-License-Identifier: Apache-2.0
#include "os/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace onehop::os {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  reset();
}

Mapping Mapping::map_shared(int fd, std::size_t bytes, const char* what) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const int err = errno;
    fail_errno(err,
               fmt::format("mapping {} bytes of {}{}", bytes, what,
                           err == ENOMEM ? " (is ulimit -v or the sysctl vm.max_map_count too low?)" : ""));
  }
  return {static_cast<std::byte*>(data), bytes};
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) (void)::munmap(data_, bytes_);
  data_ = nullptr;
}

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace onehop::os
