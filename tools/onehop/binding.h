// SPDX-License-Identifier: Apache-2.0
// On which processors ranks run: left to the kernel, which moves them about, or bound.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onehop::cli {

enum class Binding : std::uint8_t {
  none,
  cores,  ///< a core each, neighbours next to each other; ranks share cores when there are more of them
  numa,   ///< any core of a NUMA node, ranks in order spread over the nodes; memory comes from there, too
};
[[nodiscard]] std::string_view to_string(Binding binding);
inline constexpr const char* kBindHelp =
    "Processors of the ranks: none, cores (one each) or numa (a node each)";
/// UsageError that lists what is known.
[[nodiscard]] Binding parse_binding(const std::string& name);

/// The processors of each of `ranks` ranks on this machine, of those that this process may use; none for
/// Binding::none. Error{system} when the machine's topology cannot be found out.
[[nodiscard]] std::vector<cpu_set_t> plan_binding(Binding binding, int ranks);

/// Binds the calling thread, and what it starts, as that rank of a plan; an empty plan binds nothing. Before
/// it joins: how a group waits depends on where its ranks may run then.
void bind_this_thread(const std::vector<cpu_set_t>& plan, int rank);

}  // namespace onehop::cli
