// SPDX-License-Identifier: Apache-2.0
// Named fault injection points for tests. ONEHOP_FAULT=<point>:<rank>:<action> makes the process of that rank
// perform the action at the point: kill (SIGKILL), stop (SIGSTOP), exit (_exit(3)), error (throws) or delay
// (sleeps 200 ms). The action happens once, at the first visit, or at the nth with <point>#<n>. Without the
// variable a point costs one load and a branch. Points are part of every build, so that tests run the shipped
// code. The variable grants nothing that its owner's kill(1) does not.
#pragma once

namespace onehop::os {

namespace detail {
extern const bool g_faults_armed;
/// Called immediately before the action, so that tests can record the time.
extern void (*g_before_fault)();
void reach_fault_point(const char* point, const char* part, int rank);
}  // namespace detail

inline void fault_point(const char* point, int rank) {
  if (detail::g_faults_armed) [[unlikely]]
    detail::reach_fault_point(point, "", rank);
}
/// Where the data of `call` is in flight: the point "<call>.data".
inline void data_fault_point(const char* call, int rank) {
  if (detail::g_faults_armed) [[unlikely]]
    detail::reach_fault_point(call, ".data", rank);
}

}  // namespace onehop::os
