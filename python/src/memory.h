// SPDX-License-Identifier: Apache-2.0
// One rank's part of symmetric memory as a Python object that arrays can be made from without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>

namespace onehop_python {

namespace nb = nanobind;

class Memory {
 public:
  /// `owner` keeps the memory valid. `device` is a CUDA ordinal, or below 0 for host memory.
  Memory(void* data, std::size_t bytes, int device, nb::object owner)
      : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::array<const nb::object*, 1> kept() const { return {&owner_}; }

 private:
  void* data_;
  std::size_t bytes_;
  int device_;
  nb::object owner_;
};

/// The Memory behind a Python object; nullptr if it is something else.
const Memory* as_memory(nb::handle object);
void add_memory(nb::module_& module);

}  // namespace onehop_python
