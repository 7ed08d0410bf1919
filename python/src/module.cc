// SPDX-License-Identifier: Apache-2.0
// The extension module onehop._core: the C API (onehop/c_api.h) as Python classes. The package onehop adds what is
// easier in Python.
#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include <cstddef>

#include "buffer.h"
#include "gil.h"
#include "group.h"
#include "machine.h"
#include "memory.h"
#include "store.h"

// The function that NB_MODULE defines. The module's own is below.
#define PyInit__core onehop_init_core

NB_MODULE(_core, module) {
  // Objects that live until the interpreter ends are no leaks.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = onehop_version();
  onehop_python::add_memory(module);
  onehop_python::add_stores(module);
  onehop_python::add_group(module);
  onehop_python::add_buffers(module);
  onehop_python::add_machine(module);
  // Runs after those of the package, which are registered later.
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(onehop_python::refuse_foreign_threads));
}

#undef PyInit__core

namespace {

/// The classes belong to one interpreter. A second one would replace them, and take them along when it ends.
int refuse_subinterpreters(PyObject* /*module*/) {
  const int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());
  if (id == 0) return 0;
  if (id > 0) {
    PyErr_SetString(PyExc_ImportError,
                    "onehop works in the main interpreter only, and this is a sub-interpreter; "
                    "import it in the main one, or use a process of its own");
  }
  return -1;
}

}  // namespace

extern "C" NB_EXPORT PyObject* PyInit__core() {
  // Before nanobind changes anything. Python 3.13 and later call this function in the main interpreter, and only the
  // functions that its result names in the one that imports: there, too, this check comes first.
  if (refuse_subinterpreters(nullptr) != 0) return nullptr;
  PyObject* const made = onehop_init_core();
  if (made == nullptr) return nullptr;
  auto* const definition = reinterpret_cast<PyModuleDef*>(made);
  constexpr std::size_t kMost = 8;
  static PyModuleDef_Slot slots[kMost];
  if (definition->m_slots == slots) return made;
  slots[0] = {Py_mod_exec, reinterpret_cast<void*>(refuse_subinterpreters)};
  std::size_t count = 1;
  for (const PyModuleDef_Slot* each = definition->m_slots; each->slot != 0; ++each) {
    if (count + 1 == kMost) {
      PyErr_SetString(PyExc_ImportError, "onehop: nanobind has more slots than expected");
      return nullptr;
    }
    slots[count++] = *each;
  }
  definition->m_slots = slots;
  return made;
}
