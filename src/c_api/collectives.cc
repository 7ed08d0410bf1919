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

onehop_call_options_t option_defaults() {
  onehop_call_options_t defaults{};
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.algorithm = ONEHOP_ALGORITHM_AUTO;
  defaults.factor = 1;
  return defaults;
}

onehop_call_t call_defaults() {
  onehop_call_t defaults{};
  defaults.collective = kNoEnumerator;
  defaults.dtype = kNoEnumerator;
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.algorithm = ONEHOP_ALGORITHM_AUTO;
  defaults.factor = 1;
  return defaults;
}

/// Of onehop_call_options_t or onehop_call_t.
template <class Given>
CallOptions to_call_options(const Given& given) {
  CallOptions out;
  if (given.algorithm != ONEHOP_ALGORITHM_AUTO) {
    const bool known = given.algorithm > ONEHOP_ALGORITHM_NONE && given.algorithm < kAlgorithmCount;
    out.algorithm = static_cast<Algorithm>(known ? given.algorithm : kNoEnumerator);
  }
  if (given.timeout_ms != ONEHOP_TIMEOUT_DEFAULT) out.timeout = Duration{given.timeout_ms};
  out.factor = given.factor;
  out.symmetric = given.symmetric != 0;
  out.own_factor = given.own_factor;
  out.own_factor_on_host = given.own_factor_on_host != 0;
  return out;
}

Collective as_collective(onehop_collective_t collective) {
  const bool known = collective >= 0 && collective < kCollectiveCount;
  return static_cast<Collective>(known ? collective : kNoEnumerator);
}

/// The call is rejected if counts or offsets are missing.
Blocks to_blocks(const size_t* counts, const size_t* offsets, int ranks) {
  if (counts == nullptr || offsets == nullptr) return {};
  const auto n = static_cast<std::size_t>(ranks);
  return {.counts = {counts, n}, .offsets = {offsets, n}};
}

/// Makes the call that `read` writes into a Call that has its collective. If it cannot be read, all ranks refuse the
/// call, and this one reports why.
template <class Read>
onehop_status_t make(onehop_group_t* group, Collective collective, onehop_algorithm_t* used, Read&& read) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    Call call{.collective = collective};
    try {
      read(call, target);
    } catch (const Error& reason) {
      refuse_call(target, collective, reason);
      return;
    }
    const Algorithm ran = run(target, call);
    if (used != nullptr) *used = static_cast<onehop_algorithm_t>(ran);
  });
}

/// Of the functions with the collectives' names.
onehop_status_t make(onehop_group_t* group, const Call& given, const onehop_call_options_t* options,
                     onehop_algorithm_t* used) {
  return make(group, given.collective, used, [&](Call& call, const Group&) {
    call = given;
    if (options != nullptr)
      call.options = to_call_options(read_options(options, "options", option_defaults()));
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
  init_options(options, size, option_defaults());
}

void onehop_call_init(onehop_call_t* call, size_t size) {
  init_options(call, size, call_defaults());
}

onehop_status_t onehop_run(onehop_group_t* group, const onehop_call_t* call, onehop_algorithm_t* used) {
  constexpr std::size_t kWithCollective = offsetof(onehop_call_t, dtype);
  const bool names_collective = call != nullptr && call->size >= kWithCollective;
  const Collective collective = as_collective(names_collective ? call->collective : kNoEnumerator);
  return make(group, collective, used, [&](Call& out, const Group& target) {
    const onehop_call_t given = read_options(call, "call", call_defaults());
    out = {collective,
           given.in,
           given.out,
           given.count,
           as_dtype(given.dtype),
           as_op(given.op),
           Rank{given.root},
           Stream{given.stream},
           to_call_options(given),
           to_blocks(given.in_counts, given.in_offsets, target.size()),
           to_blocks(given.out_counts, given.out_offsets, target.size())};
  });
}

onehop_status_t onehop_all_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                  const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group, {Collective::all_reduce, in, out, count, as_dtype(dtype), as_op(op), {}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_all_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, void* stream, const onehop_call_options_t* options,
                                  onehop_algorithm_t* used) {
  return make(group, {Collective::all_gather, in, out, count, as_dtype(dtype), {}, {}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_reduce_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                                      onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                      const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group,
              {Collective::reduce_scatter, in, out, count, as_dtype(dtype), as_op(op), {}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_broadcast(onehop_group_t* group, const void* in, void* out, size_t count,
                                 onehop_dtype_t dtype, int root, void* stream,
                                 const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group, {Collective::broadcast, in, out, count, as_dtype(dtype), {}, Rank{root}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                              onehop_dtype_t dtype, onehop_op_t op, int root, void* stream,
                              const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group,
              {Collective::reduce, in, out, count, as_dtype(dtype), as_op(op), Rank{root}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_all_to_all(onehop_group_t* group, const void* in, void* out, size_t count,
                                  onehop_dtype_t dtype, void* stream, const onehop_call_options_t* options,
                                  onehop_algorithm_t* used) {
  return make(group, {Collective::all_to_all, in, out, count, as_dtype(dtype), {}, {}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_all_to_all_v(onehop_group_t* group, const void* in, const size_t* in_counts,
                                    const size_t* in_offsets, void* out, const size_t* out_counts,
                                    const size_t* out_offsets, onehop_dtype_t dtype, void* stream,
                                    const onehop_call_options_t* options, onehop_algorithm_t* used) {
  const int ranks = onehop_group_size(group);
  return make(group,
              {Collective::all_to_all_v,
               in,
               out,
               0,
               as_dtype(dtype),
               {},
               {},
               Stream{stream},
               {},
               to_blocks(in_counts, in_offsets, ranks),
               to_blocks(out_counts, out_offsets, ranks)},
              options, used);
}

onehop_status_t onehop_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                              onehop_dtype_t dtype, int root, void* stream,
                              const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group, {Collective::gather, in, out, count, as_dtype(dtype), {}, Rank{root}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                               onehop_dtype_t dtype, int root, void* stream,
                               const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group, {Collective::scatter, in, out, count, as_dtype(dtype), {}, Rank{root}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_send(onehop_group_t* group, const void* in, size_t count, onehop_dtype_t dtype,
                            int dst, void* stream, const onehop_call_options_t* options,
                            onehop_algorithm_t* used) {
  return make(group, {Collective::send, in, nullptr, count, as_dtype(dtype), {}, Rank{dst}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_recv(onehop_group_t* group, void* out, size_t count, onehop_dtype_t dtype, int src,
                            void* stream, const onehop_call_options_t* options, onehop_algorithm_t* used) {
  return make(group, {Collective::recv, nullptr, out, count, as_dtype(dtype), {}, Rank{src}, Stream{stream}},
              options, used);
}

onehop_status_t onehop_refuse_call(onehop_group_t* group, onehop_collective_t collective,
                                   onehop_status_t status, const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    const Error reason = to_reason(status, message);
    require(collective >= 0 && collective < kCollectiveCount, "collective {} is unknown", collective);
    refuse(target, static_cast<Collective>(collective), reason);
  });
}

onehop_status_t onehop_refuse_registration(onehop_group_t* group, onehop_status_t status,
                                           const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    refuse_registration(target, to_reason(status, message));
  });
}

onehop_status_t onehop_refuse_allocation(onehop_group_t* group, onehop_status_t status, const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    refuse_allocation(target, to_reason(status, message));
  });
}

onehop_status_t onehop_refuse_split(onehop_group_t* group, onehop_status_t status, const char* message) {
  return guard([&] {
    Group& target = deref(group, "group").group;
    refuse_split(target, to_reason(status, message));
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
