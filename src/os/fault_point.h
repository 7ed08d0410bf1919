// SPDX-License-Identifier: Apache-2.0
// Named synchronisation points for fault tests. ONEHOP_FAULT=<point>:<rank>:<action> makes the process that
// is that rank die, stop, exit, fail or dawdle when it gets there: kill (SIGKILL), stop (SIGSTOP), exit
// (_exit(3)), error (throws), delay (sleeps 200 ms). It strikes once, at the first visit, or at the nth with
// <point>#<n>. Without the variable a point costs one load and a
// branch. Built into every build, so that what is tested is what ships; the variable can do no more than its
// owner's kill could.
#pragma once

namespace onehop::os {

namespace detail {
extern const bool g_faults_armed;
/// Called right before a fault strikes: tests note the time.
extern void (*g_before_fault)();
void reach_fault_point(const char* point, int rank);
}  // namespace detail

inline void fault_point(const char* point, int rank) {
  if (detail::g_faults_armed) [[unlikely]]
    detail::reach_fault_point(point, rank);
}

}  // namespace onehop::os
