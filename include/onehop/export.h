// SPDX-License-Identifier: Apache-2.0
// Symbol visibility of the shared library. Everything public carries ONEHOP_API; the rest stays hidden.
#pragma once

#define ONEHOP_API __attribute__((visibility("default")))
