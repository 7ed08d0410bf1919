// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include <deque>

#include "onehop/group_call.h"

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"
#include "collective/refuse.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_ALGORITHM_NONE == static_cast<int>(Algorithm::none));
static_assert(ONEHOP_ALGORITHM_ONE_SHOT == static_cast<int>(Algorithm::one_shot));
static_assert(ONEHOP_ALGORITHM_TWO_SHOT == static_cast<int>(Algorithm::two_shot));
static_assert(ONEHOP_ALGORITHM_TWO_SHOT + 1 == kAlgorithmCount);

namespace {

onehop_call_options_t call_defaults() {
  onehop_call_options_t defaults{};
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.algorithm = ONEHOP_ALGORITHM_AUTO;
  defaults.factor = 1;
  return defaults;
}

CallOptions to_call_options(const onehop_call_options_t* options) {
  if (options == nullptr) return {};
  const onehop_call_options_t given = read_options(options, "options", call_defaults());
  CallOptions out;
  if (given.algorithm != ONEHOP_ALGORITHM_AUTO) {
    const bool known = given.algorithm > ONEHOP_ALGORITHM_NONE && given.algorithm < kAlgorithmCount;
    out.algorithm = static_cast<Algorithm>(known ? given.algorithm : kNoEnumerator);
  }
  if (given.timeout_ms != ONEHOP_TIMEOUT_DEFAULT) out.timeout = Duration{given.timeout_ms};
  out.factor = given.factor;
  out.symmetric = given.symmetric != 0;
  return out;
}

/// Runs `call(group, options)`, which returns the algorithm. If the options cannot be read, all ranks refuse
/// the call, and this one reports why.
template <class Call>
onehop_status_t run(onehop_group_t* group, Collective collective, const onehop_call_options_t* options,
                    onehop_algorithm_t* used, Call&& call) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    CallOptions given;
    try {
      given = to_call_options(options);
    } catch (const Error& reason) {
      refuse_call(target, collective, reason);
      return;
    }
    const Algorithm ran = call(target, given);
    if (used != nullptr) *used = static_cast<onehop_algorithm_t>(ran);
  });
}

/// The open scopes of this thread, the innermost last. A thread that ends drops the scopes that it left open.
std::deque<GroupCall>& open_scopes() {
  thread_local std::deque<GroupCall> scopes;
  return scopes;
}

void require_open(const char* what) {
  require(!open_scopes().empty(), "{} without onehop_group_call_begin on this thread", what);
}

/// Why a caller refuses a call, as it says.
Error to_reason(onehop_status_t status, const char* message) {
  constexpr std::size_t kLongest = 1000;
  const std::string_view given = std::string_view(text(message, "message")).substr(0, kLongest);
  return {to_error_code(status), std::string(given.empty() ? "its caller gave no reason" : given)};
}

/// The call is rejected if counts or offsets are missing.
Blocks to_blocks(const size_t* counts, const size_t* offsets, int ranks) {
  if (counts == nullptr || offsets == nullptr) return {};
  const auto n = static_cast<std::size_t>(ranks);
  return {.counts = {counts, n}, .offsets = {offsets, n}};
}

}  // namespace

extern "C" {

const char* onehop_algorithm_name(onehop_algorithm_t algorithm) {
  return name_of(algorithm, Algorithm::two_shot);
}

onehop_status_t onehop_algorithm_parse(const char* name, onehop_algorithm_t* algorithm) {
  return guard([&] {
    deref(algorithm, "algorithm") = static_cast<onehop_algorithm_t>(parse_algorithm(text(name, "name")));
  });
}

void onehop_call_options_init(onehop_call_options_t* options, size_t size) {
  init_options(options, size, call_defaults());
}

onehop_status_t onehop_all_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                  const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::all_reduce, options, used, [&](Group& target, const CallOptions& given) {
    return all_reduce(target, in, out, count, as_dtype(dtype), as_op(op), Stream{stream}, given);
  });
}

onehop_status_t onehop_all_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, void* stream, const onehop_call_options_t* options,
                                  onehop_algorithm_t* used) {
  return run(group, Collective::all_gather, options, used, [&](Group& target, const CallOptions& given) {
    return all_gather(target, in, out, count, as_dtype(dtype), Stream{stream}, given);
  });
}

onehop_status_t onehop_reduce_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                                      onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                      const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::reduce_scatter, options, used, [&](Group& target, const CallOptions& given) {
    return reduce_scatter(target, in, out, count, as_dtype(dtype), as_op(op), Stream{stream}, given);
  });
}

onehop_status_t onehop_broadcast(onehop_group_t* group, const void* in, void* out, size_t count,
                                 onehop_dtype_t dtype, int root, void* stream,
                                 const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::broadcast, options, used, [&](Group& target, const CallOptions& given) {
    return broadcast(target, in, out, count, as_dtype(dtype), Rank{root}, Stream{stream}, given);
  });
}

onehop_status_t onehop_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                              onehop_dtype_t dtype, onehop_op_t op, int root, void* stream,
                              const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::reduce, options, used, [&](Group& target, const CallOptions& given) {
    return reduce(target, in, out, count, as_dtype(dtype), as_op(op), Rank{root}, Stream{stream}, given);
  });
}

onehop_status_t onehop_all_to_all(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, void* stream, const onehop_call_options_t* options,
                                  onehop_algorithm_t* used) {
  return run(group, Collective::all_to_all, options, used, [&](Group& target, const CallOptions& given) {
    return all_to_all(target, in, out, count, as_dtype(dtype), Stream{stream}, given);
  });
}

onehop_status_t onehop_all_to_all_v(onehop_group_t* group, const void* in, const size_t* in_counts,
                                    const size_t* in_offsets, void* out, const size_t* out_counts,
                                    const size_t* out_offsets, onehop_dtype_t dtype, void* stream,
                                    const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::all_to_all_v, options, used, [&](Group& target, const CallOptions& given) {
    return all_to_all_v(target, in, to_blocks(in_counts, in_offsets, target.size()), out,
                        to_blocks(out_counts, out_offsets, target.size()), as_dtype(dtype), Stream{stream},
                        given);
  });
}

onehop_status_t onehop_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                              onehop_dtype_t dtype, int root, void* stream,
                              const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::gather, options, used, [&](Group& target, const CallOptions& given) {
    return gather(target, in, out, count, as_dtype(dtype), Rank{root}, Stream{stream}, given);
  });
}

onehop_status_t onehop_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                               onehop_dtype_t dtype, int root, void* stream,
                               const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::scatter, options, used, [&](Group& target, const CallOptions& given) {
    return scatter(target, in, out, count, as_dtype(dtype), Rank{root}, Stream{stream}, given);
  });
}

onehop_status_t onehop_send(onehop_group_t* group, const void* in, size_t count, onehop_dtype_t dtype,
                            int dst, void* stream, const onehop_call_options_t* options,
                            onehop_algorithm_t* used) {
  return run(group, Collective::send, options, used, [&](Group& target, const CallOptions& given) {
    return send(target, in, count, as_dtype(dtype), Rank{dst}, Stream{stream}, given);
  });
}

onehop_status_t onehop_recv(onehop_group_t* group, void* out, size_t count, onehop_dtype_t dtype, int src,
                            void* stream, const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return run(group, Collective::recv, options, used, [&](Group& target, const CallOptions& given) {
    return recv(target, out, count, as_dtype(dtype), Rank{src}, Stream{stream}, given);
  });
}

onehop_status_t onehop_refuse_call(onehop_group_t* group, onehop_collective_t collective,
                                   onehop_status_t status, const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    const Error reason = to_reason(status, message);
    require(collective >= 0 && collective < kCollectiveCount, "collective {} is unknown", collective);
    refuse_with_reason(target, static_cast<Collective>(collective), reason);
  });
}

onehop_status_t onehop_refuse_registration(onehop_group_t* group, onehop_status_t status,
                                           const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    refuse_registration(target, to_reason(status, message));
  });
}

onehop_status_t onehop_group_call_begin(void) {
  return guard([] { open_scopes().emplace_back(); });
}

onehop_status_t onehop_group_call_end(void) {
  return guard([] {
    require_open("onehop_group_call_end");
    std::deque<GroupCall>& scopes = open_scopes();
    try {
      scopes.back().end();
    } catch (...) {
      scopes.pop_back();
      throw;
    }
    scopes.pop_back();
  });
}

onehop_status_t onehop_group_call_drop(void) {
  return guard([] {
    require_open("onehop_group_call_drop");
    open_scopes().pop_back();
  });
}

}  // extern "C"
