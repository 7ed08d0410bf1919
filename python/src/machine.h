// SPDX-License-Identifier: Apache-2.0
// What this machine has and what works on it.
#pragma once

#include <nanobind/nanobind.h>

namespace onehop_python {

void add_machine(nanobind::module_& module);

}  // namespace onehop_python
