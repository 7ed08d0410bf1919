// SPDX-License-Identifier: Apache-2.0
// Text and paths that Python passes, as the C API takes them: in UTF-8, which ends at the first NUL.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

namespace onehop_python {

namespace nb = nanobind;

/// A parameter of type str. It is read with its name, for messages.
class Text {
 public:
  Text() = default;
  explicit Text(nb::object str) : str_(std::move(str)) {}

  /// In UTF-8. Raises onehop.InvalidArgument if there are NULs or lone surrogates: the C API would take another text,
  /// or there is none. The message has the text, except for a password.
  [[nodiscard]] std::string read(const char* name, bool is_password = false) const;

 private:
  nb::object str_;
};

/// str(value), read in the same way.
std::string read_text_of(nb::handle value, const char* name);
/// The bytes of a path: str, bytes or os.PathLike. Raises onehop.InvalidArgument if it holds a NUL or a lone surrogate.
std::string read_path(nb::handle path, const char* name);

/// As much of a str as is text, for messages.
std::string shown(nb::handle str);
/// Text of the library as a str. A path or a name may hold bytes that are not UTF-8: they become \xNN.
nb::object to_str(const std::string& text);

}  // namespace onehop_python

namespace nanobind::detail {

template <>
struct type_caster<onehop_python::Text> {
  NB_TYPE_CASTER(onehop_python::Text, const_name("str"))

  bool from_python(handle src, uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    if (!PyUnicode_Check(src.ptr())) return false;
    value = onehop_python::Text(borrow(src));
    return true;
  }
};

}  // namespace nanobind::detail
