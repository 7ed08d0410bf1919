// SPDX-License-Identifier: Apache-2.0
// Lets Python's garbage collector see the objects that an object of a C++ class keeps. Without it a group in whose
// attributes one of its buffers is stored would never be freed.
#pragma once

#include <nanobind/nanobind.h>

namespace onehop_python {

namespace nb = nanobind;

/// For Py_tp_traverse. T::kept() returns a list of pointers to the objects. There is no Py_tp_clear, since they never
/// change: every cycle also contains a dict, a list or the like, and is broken there.
template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  if (!nb::inst_ready(self)) return 0;  // its __init__ has not run
  for (const nb::object* const kept : nb::inst_ptr<T>(self)->kept()) Py_VISIT(kept->ptr());
  return 0;
}

template <class T>
inline PyType_Slot traverse_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)}, {0, nullptr}};

}  // namespace onehop_python
