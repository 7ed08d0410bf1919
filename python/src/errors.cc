// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <algorithm>
#include <new>
#include <utility>

#include "text.h"

namespace onehop_python {
namespace {

/// Exceptions of callbacks during the current call of this thread.
thread_local std::optional<nb::python_error> kept;

[[noreturn]] void set_and_throw(nb::object exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

nb::object make_exception(onehop_status_t status, std::string message, int rank) {
  // Messages have one line; values that they quote, such as arrays, may have several.
  std::ranges::replace(message, '\n', ' ');
  const nb::object text = to_str(message);
  const nb::object origin = rank < 0 ? nb::none() : nb::object(nb::int_(rank));
  return nb::module_::import_("onehop.errors").attr("_of")(onehop_status_name(status), text, origin);
}

/// Called by the library, without the GIL, while a call of this thread waits.
int run_signal_handlers(void* /*context*/) {
  int failed = 0;
  with_gil([&] {
    {
      const NestedCalls nested;
      failed = PyErr_CheckSignals();
    }
    if (failed != 0) keep_exception(nb::python_error());
  });
  return failed != 0 ? 1 : 0;
}

}  // namespace

void raise(onehop_status_t status, const std::string& message, int rank) {
  set_and_throw(make_exception(status, message, rank));
}

void raise_invalid(const std::string& message) {
  raise(ONEHOP_ERROR_INVALID_ARGUMENT, message);
}

std::string quoted(nb::handle value) {
  constexpr std::size_t kLongest = 80;
  std::string text = shown(nb::repr(value));
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string type_text(nb::handle value) {
  const nb::object type = nb::borrow(value.type());
  const std::string module = shown(nb::str(type.attr("__module__")));
  const std::string name = shown(nb::str(type.attr("__qualname__")));
  return module == "builtins" ? name : module + "." + name;
}

Reason current_reason() noexcept {
  Reason reason;
  try {
    try {
      throw;
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) {
        reason.status = ONEHOP_ERROR_ABORTED;  // interrupted
      } else if (error.matches(PyExc_MemoryError)) {
        reason.status = ONEHOP_ERROR_OUT_OF_RESOURCES;
      }
      const nb::object error_class = nb::module_::import_("onehop.errors").attr("Error");
      reason.text = shown(nb::str(error.value()));
      // The messages of onehop's own say enough.
      if (!nb::isinstance(error.value(), error_class) || reason.text.empty())
        reason.text = type_text(error.value()) + ": " + reason.text;
    } catch (const std::bad_alloc&) {
      reason = {ONEHOP_ERROR_OUT_OF_RESOURCES, "out of memory"};
    } catch (const std::exception& error) {
      reason.text = error.what();
    }
  } catch (...) {
    // The exception has no text.
    reason.text = "an exception that cannot be shown";
  }
  return reason;
}

void watch_signals() {
  thread_local bool known = false;
  if (known) return;
  known = true;
  // Python runs signal handlers on its main thread only.
  const nb::module_ threading = nb::module_::import_("threading");
  if (threading.attr("current_thread")().is(threading.attr("main_thread")()))
    onehop_set_interrupt_check(run_signal_handlers, nullptr);
}

void keep_exception(nb::python_error error) noexcept {
  const bool kept_interrupt = kept && !kept->matches(PyExc_Exception);
  if (!kept_interrupt) kept.emplace(std::move(error));
}

NestedCalls::NestedCalls() noexcept : outer_(std::exchange(kept, std::nullopt)) {}

NestedCalls::~NestedCalls() {
  kept.reset();
  if (outer_) kept.emplace(std::move(*outer_));
}

void raise_interrupt() {
  if (kept && !kept->matches(PyExc_Exception)) throw nb::python_error(*std::exchange(kept, std::nullopt));
}

void finish(onehop_status_t status) {
  if (!kept) {
    if (status != ONEHOP_OK) raise(status, onehop_last_error(), onehop_last_error_rank());
    return;
  }
  nb::python_error error = *std::exchange(kept, std::nullopt);
  if (!error.matches(PyExc_Exception)) throw error;
  if (status == ONEHOP_OK) return;  // the library tried again, and it worked
  const nb::object exception = make_exception(status, onehop_last_error(), onehop_last_error_rank());
  PyException_SetCause(exception.ptr(), nb::borrow(error.value()).release().ptr());
  set_and_throw(exception);
}

}  // namespace onehop_python
