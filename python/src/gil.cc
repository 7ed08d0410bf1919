// SPDX-License-Identifier: Apache-2.0
// The linker directs calls of these functions, from this module and from nanobind, to what is here (--wrap in
// CMakeLists.txt). They can run Python code, which gives up the GIL and takes it again: there, too, a thread has to stop
// if the interpreter has ended (gil.h).
#include "gil.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
#define ONEHOP_WRAP(result, name, parameters, arguments)                     \
  result __real_##name parameters;                                           \
  __attribute__((visibility("hidden"))) result __wrap_##name parameters {    \
    return onehop_python::stopping([&] { return __real_##name arguments; }); \
  }

extern "C" {
ONEHOP_WRAP(PyObject*, PyObject_Vectorcall,
            (PyObject * callable, PyObject* const* args, size_t nargs, PyObject* names),
            (callable, args, nargs, names))
ONEHOP_WRAP(PyObject*, PyObject_VectorcallMethod,
            (PyObject * name, PyObject* const* args, size_t nargs, PyObject* names),
            (name, args, nargs, names))
ONEHOP_WRAP(PyObject*, PyObject_GetAttr, (PyObject * object, PyObject* name), (object, name))
ONEHOP_WRAP(PyObject*, PyObject_GetAttrString, (PyObject * object, const char* name), (object, name))
ONEHOP_WRAP(int, PyObject_HasAttr, (PyObject * object, PyObject* name), (object, name))
#if !defined(Py_LIMITED_API)
ONEHOP_WRAP(int, _PyObject_LookupAttr, (PyObject * object, PyObject* name, PyObject** value),
            (object, name, value))
#endif
ONEHOP_WRAP(int, PyObject_GetBuffer, (PyObject * object, Py_buffer* view, int flags), (object, view, flags))
ONEHOP_WRAP(void, PyBuffer_Release, (Py_buffer * view), (view))
ONEHOP_WRAP(PyObject*, PyObject_Str, (PyObject * object), (object))
ONEHOP_WRAP(PyObject*, PyObject_Repr, (PyObject * object), (object))
ONEHOP_WRAP(PyObject*, PyImport_Import, (PyObject * name), (name))
ONEHOP_WRAP(PyObject*, PyImport_ImportModule, (const char* name), (name))
ONEHOP_WRAP(void, Py_DecRef, (PyObject * object), (object))
ONEHOP_WRAP(void, _Py_Dealloc, (PyObject * object), (object))
}
// NOLINTEND(bugprone-reserved-identifier)
