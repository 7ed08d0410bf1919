// SPDX-License-Identifier: Apache-2.0
// Symmetric memory: buffers, signals and pools.
#pragma once

#include <nanobind/nanobind.h>

namespace onehop_python {

void add_buffers(nanobind::module_& module);

}  // namespace onehop_python
