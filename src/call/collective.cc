// SPDX-License-Identifier: Apache-2.0
#include "onehop/call.h"

#include "call/traits.h"

namespace onehop {

std::string_view to_string(Collective collective) {
  return inline_traits_of(collective).text;
}

const CollectiveTraits& traits_of(Collective collective) {
  return inline_traits_of(collective);
}

}  // namespace onehop
