// SPDX-License-Identifier: Apache-2.0
// Owner of one range of mapped memory.
#pragma once

#include <cstddef>
#include <utility>

namespace onehop::os {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Maps `bytes` of `fd` shared and read-write. Error names `what`.
  [[nodiscard]] static Mapping map_shared(int fd, std::size_t bytes, const char* what);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  void reset() noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The system's page size.
[[nodiscard]] std::size_t page_size();

}  // namespace onehop::os
