// SPDX-License-Identifier: Apache-2.0
#include "onehop/version.h"

namespace onehop {

std::string_view version() {
  return ONEHOP_VERSION_STRING;
}

}  // namespace onehop
