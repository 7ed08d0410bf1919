// SPDX-License-Identifier: Apache-2.0
// Where there is an NCCL: which calls are carried, and forwarding the others with their types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "abi.h"
#include "collectives.h"
#include "communicator.h"
#include "group_queue.h"
#include "library.h"

namespace onehop::nccl {

/// A string as a template argument.
template <std::size_t kSize>
struct Name {
  char text[kSize];
  // NOLINTNEXTLINE(*-explicit-*): from a literal, in place of a template argument
  constexpr Name(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
};

/// Calls the real function of that name.
template <Name kName, class... Args>
Result forward(Args... args) noexcept {
  static auto* const real = reinterpret_cast<Result (*)(Args...)>(library().function(kName.text));
  return real != nullptr ? real(args...) : fail_missing(kName.text);
}

/// Whether an argument of a call on `comm` allows this library to carry it. Only what is the same on all ranks may decide.
inline bool allows_carrying(Comm comm, Comm /*itself*/) {
  return is_carried(comm);
}
inline bool allows_carrying(Comm /*comm*/, DataType type) {
  return is_known(type);
}
inline bool allows_carrying(Comm comm, RedOp op) {
  return is_known(op) || has_reduction(comm, op);
}
inline bool allows_carrying(Comm /*comm*/, const CallConfig* config) {
  return can_ignore(config);
}
template <class Other>
bool allows_carrying(Comm /*comm*/, const Other& /*other*/) {
  return true;
}

template <class Other>
void note_forwarded(const Other& /*other*/) {}
inline void note_forwarded(Comm comm) {
  count_forwarded(comm);
}

template <Name kName, auto kOwn>
struct Dispatch;

/// Carries the call with kOwn or forwards it.
template <Name kName, class... Args, Result (*kOwn)(Args...) noexcept>
struct Dispatch<kName, kOwn> {
  static Result call(Args... args) noexcept {
    const Comm comm = std::get<Comm>(std::tuple<Args...>(args...));
    if ((allows_carrying(comm, args) && ...)) return kOwn(args...);
    (note_forwarded(args), ...);
    // The calls that are carried must not be made either, if NCCL refuses this one.
    return note_for_group(forward<kName>(args...));
  }
};

}  // namespace onehop::nccl
