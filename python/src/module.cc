// SPDX-License-Identifier: Apache-2.0
// The extension module onehop._core: the C API (onehop/c_api.h) as Python classes. The package onehop adds what is
// easier in Python.
#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include "buffer.h"
#include "group.h"
#include "machine.h"
#include "memory.h"
#include "store.h"

NB_MODULE(_core, module) {
  // Objects that live until the interpreter ends are no leaks.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = onehop_version();
  onehop_python::add_memory(module);
  onehop_python::add_stores(module);
  onehop_python::add_group(module);
  onehop_python::add_buffers(module);
  onehop_python::add_machine(module);
}
