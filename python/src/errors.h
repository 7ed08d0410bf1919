// SPDX-License-Identifier: Apache-2.0
// Errors of the C API as Python exceptions (onehop/errors.py), and calls that wait without the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include <optional>
#include <string>

#include "gil.h"

namespace onehop_python {

namespace nb = nanobind;

/// Raises the exception of `status`. `rank` is below 0 if only the caller is affected.
[[noreturn]] void raise(onehop_status_t status, const std::string& message, int rank = -1);
/// Raises onehop.InvalidArgument.
[[noreturn]] void raise_invalid(const std::string& message);

/// The C++ object of an instance of T. Raises TypeError for anything else, and for one whose __init__ has not run.
template <class T>
T& object_of(nb::handle instance) {
  T* object = nullptr;
  if (!nb::try_cast(instance, object, false) || object == nullptr) {
    PyErr_Format(PyExc_TypeError, "expected an initialized %U, got %R",
                 nb::object(nb::type<T>().attr("__name__")).ptr(), instance.ptr());
    throw nb::python_error();
  }
  return *object;
}

/// repr(value), shortened, for messages.
std::string quoted(nb::handle value);
/// The name of the type of `value`, for messages.
std::string type_text(nb::handle value);

/// What other ranks hear of an exception.
struct Reason {
  onehop_status_t status = ONEHOP_ERROR_INVALID_ARGUMENT;
  std::string text;
};
/// Of the exception that is being handled, of Python or C++.
Reason current_reason() noexcept;

/// Makes signal handlers of Python run while a call of this thread waits. Cheap after the first time.
void watch_signals();
/// Keeps the exception that a callback of this call raised. It becomes the cause of the call's error. One that
/// is no `Exception` (KeyboardInterrupt) replaces that error.
void keep_exception(nb::python_error error) noexcept;
/// While Python code runs inside a call: calls that it makes itself keep exceptions of their own.
class NestedCalls {
 public:
  NestedCalls() noexcept;
  ~NestedCalls();
  NestedCalls(const NestedCalls&) = delete;
  NestedCalls& operator=(const NestedCalls&) = delete;

 private:
  std::optional<nb::python_error> outer_;
};
/// Raises the interrupt (an exception that is no `Exception`) that the call kept, if there is one.
void raise_interrupt();
/// Raises what the call kept, or else the error of `status`.
void finish(onehop_status_t status);

/// Within a handler of what a call has raised before it could be made: the other ranks make it and wait for this one.
/// Tells them through `tell(status, reason)`, of the C API. Raises nothing, since the caller has an error already.
template <class Tell>
void refuse(Tell&& tell) {
  const Reason reason = current_reason();
  without_gil([&] { (void)tell(reason.status, reason.text.c_str()); });
}

/// Reads the arguments of a call by `read`. If that raises, the other ranks hear of it through `tell`.
template <class Read, class Tell>
void read_or_refuse(Read&& read, Tell&& tell) {
  try {
    read();
  } catch (...) {
    refuse(tell);
    raise_interrupt();  // Ctrl-C while the other ranks were told
    throw;
  }
}

/// Makes a call of the C API without the GIL and raises its error.
template <class Call>
void run(Call&& call) {
  watch_signals();
  finish(without_gil(call));
}

/// The same with the GIL, for calls that do not wait.
inline void check(onehop_status_t status) {
  if (status != ONEHOP_OK) finish(status);
}

}  // namespace onehop_python
