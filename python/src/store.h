// SPDX-License-Identifier: Apache-2.0
// Stores, through which ranks find each other.
#pragma once

#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

namespace onehop_python {

namespace nb = nanobind;

/// The handle behind an onehop.Store. Raises onehop.InvalidArgument for anything else.
onehop_store_t* store_handle(nb::handle store);
void add_stores(nb::module_& module);

}  // namespace onehop_python
