// SPDX-License-Identifier: Apache-2.0
// Parameters that a call reads by itself, so that it can say what is wrong with them, to the other ranks as well: nanobind's
// TypeError comes before the call.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "errors.h"

namespace onehop_python {

/// A parameter of type T, or what was passed in its place. Valid during the call.
template <class T>
class Given {
 public:
  Given() = default;
  explicit Given(T value) : value_(value) {}
  explicit Given(nb::handle wrong) : wrong_(wrong) {}

  /// Raises onehop.InvalidArgument if it is no T. `remedy` says what to pass: "the number of a rank".
  [[nodiscard]] T read(const char* name, const char* remedy) const {
    if (wrong_.is_valid()) raise_invalid(std::string(name) + " is " + quoted(wrong_) + "; pass " + remedy);
    return value_;
  }

 private:
  T value_{};
  nb::handle wrong_;
};

}  // namespace onehop_python

namespace nanobind::detail {

template <class T>
struct type_caster<onehop_python::Given<T>> {
  NB_TYPE_CASTER(onehop_python::Given<T>, make_caster<T>::Name)

  bool from_python(handle src, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<T> caster;
    value = caster.from_python(src, flags, cleanup) ? onehop_python::Given<T>(caster.value)
                                                    : onehop_python::Given<T>(src);
    return true;
  }
};

}  // namespace nanobind::detail
