// SPDX-License-Identifier: Apache-2.0
// Lets inspect.signature see functions of this module. The linker directs nanobind's calls of PyType_FromSpec to what is
// here (--wrap in CMakeLists.txt): nanobind's types of functions and methods are immutable, and onehop._signatures gives
// them the attribute that inspect reads. NB_DOMAIN keeps the types of other packages' modules apart from these.
#include <Python.h>

#include <string_view>

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
PyObject* __real_PyType_FromSpec(PyType_Spec* spec);
__attribute__((visibility("hidden"))) PyObject* __wrap_PyType_FromSpec(PyType_Spec* spec) {
  PyType_Spec made = *spec;
  const std::string_view name = spec->name;
  if (name == "nanobind.nb_func" || name == "nanobind.nb_method" || name == "nanobind.nb_bound_method")
    made.flags &= ~static_cast<unsigned>(Py_TPFLAGS_IMMUTABLETYPE);
  return __real_PyType_FromSpec(&made);
}
}
// NOLINTEND(bugprone-reserved-identifier)
