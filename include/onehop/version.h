// SPDX-License-Identifier: Apache-2.0
// Version of the headers and of the library at run time. The macros also work in C.
#pragma once

// cmake/OnehopVersion.cmake refuses to configure when these differ from the version in CMakeLists.txt.
#define ONEHOP_VERSION_MAJOR 0
#define ONEHOP_VERSION_MINOR 1
#define ONEHOP_VERSION_PATCH 0
#define ONEHOP_VERSION_STRING "0.1.0"

#if defined(__cplusplus) && __cplusplus >= 201703L  // not for users of c_api.h who compile older C++

#include <string_view>

#include "onehop/export.h"

namespace onehop {

/// "0.1.0". Ranks of different versions refuse to form a group.
[[nodiscard]] ONEHOP_API std::string_view version();

}  // namespace onehop

#endif
