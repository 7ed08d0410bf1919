// Version of the headers and of the library that is running.
#pragma once

#include <string_view>

#include "onehop/export.h"

#define ONEHOP_VERSION_MAJOR 0
#define ONEHOP_VERSION_MINOR 1
#define ONEHOP_VERSION_PATCH 0
#define ONEHOP_VERSION_STRING "0.1.0"

namespace onehop {

/// "0.1.0". Ranks of different versions refuse to form a group.
[[nodiscard]] ONEHOP_API std::string_view version();

}  // namespace onehop
