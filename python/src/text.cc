// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <cstring>

#include "errors.h"

namespace onehop_python {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& what, const char* has) {
  raise_invalid(std::string(name) + " is " + what + ", which has a " + has);
}

}  // namespace

std::string Text::read(const char* name, bool is_password) const {
  const auto what = [&] { return is_password ? "a text" : quoted(str_); };
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(str_.ptr(), &size);
  if (utf8 == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) throw nb::python_error();
    PyErr_Clear();
    refuse(name, what(), "lone surrogate");
  }
  std::string text(utf8, static_cast<std::size_t>(size));
  if (text.find('\0') != std::string::npos) refuse(name, what(), "NUL");
  return text;
}

std::string read_text_of(nb::handle value, const char* name) {
  return Text(nb::str(value)).read(name);
}

std::string read_path(nb::handle path, const char* name) {
  try {
    const nb::object encoded = nb::module_::import_("os").attr("fsencode")(path);
    std::string text(PyBytes_AsString(encoded.ptr()), static_cast<std::size_t>(PyBytes_Size(encoded.ptr())));
    if (text.find('\0') != std::string::npos) refuse(name, quoted(path), "NUL");
    return text;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_UnicodeError)) throw;
  }
  refuse(name, quoted(path), "lone surrogate");
}

std::string shown(nb::handle str) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(str.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

nb::object to_str(const std::string& text) {
  nb::object str =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
  if (!str.is_valid()) throw nb::python_error();
  return str;
}

}  // namespace onehop_python
