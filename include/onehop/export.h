// SPDX-License-Identifier: Apache-2.0
// Symbol visibility of the shared library: public symbols carry ONEHOP_API, all others are hidden.
#pragma once

#define ONEHOP_API __attribute__((visibility("default")))
