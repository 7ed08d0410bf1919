// SPDX-License-Identifier: Apache-2.0
// ONEHOP_LOG=debug: a line for every call that was made, with the algorithm that carried it.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/log.h"
#include "collective/arguments.h"
#include "group/state.h"

namespace onehop {

namespace detail {
void write_call_log(const Group::State& group, const Arguments& call, Algorithm used, std::string_view how);
}  // namespace detail

/// `how`: what else there is to say of the algorithm, such as its wire protocol. Only for calls without a
/// defect.
inline void log_call(const Group::State& group, const Arguments& call, Algorithm used,
                     std::string_view how = {}) {
  if (log::enabled(log::Level::debug)) [[unlikely]]
    detail::write_call_log(group, call, used, how);
}

}  // namespace onehop
