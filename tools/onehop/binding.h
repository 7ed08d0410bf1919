// SPDX-License-Identifier: Apache-2.0
// The processors that ranks run on: chosen by the kernel, or bound.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "names.h"

namespace onehop::cli {

enum class Binding : std::uint8_t {
  none,
  cores,  ///< one core each, neighboring ranks on neighboring cores; with more ranks than cores, ranks share
  numa,   ///< any core of a NUMA node; ranks in order are spread over the nodes and allocate memory there
};
inline constexpr Named<Binding> kBindings[] = {
    {"none", Binding::none}, {"cores", Binding::cores}, {"numa", Binding::numa}};
[[nodiscard]] inline std::string_view to_string(Binding binding) {
  return name_of(kBindings, binding);
}
inline constexpr const char* kBindHelp =
    "Processors of the ranks: none, cores (one each) or numa (a node each)";

/// The number of cores that this process may use; 0 when the topology of the machine is unknown.
[[nodiscard]] int usable_cores();

/// The processors of each of `ranks` ranks, out of those this process may use; empty for Binding::none.
/// Error{system} when the topology of the machine is unknown.
[[nodiscard]] std::vector<cpu_set_t> plan_binding(Binding binding, int ranks);

/// Binds the calling thread, and its children, as that rank of a plan; an empty plan binds nothing. Call it
/// before the rank joins: the processors of the ranks decide how a group waits.
void bind_this_thread(const std::vector<cpu_set_t>& plan, int rank);

}  // namespace onehop::cli
