// SPDX-License-Identifier: Apache-2.0
// Version, element types and reductions: the functions that need no handle.
#include "onehop/types.h"
#include "onehop/version.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

extern "C" {

// The names below are views of string literals, so they end with a NUL.
const char* onehop_version(void) {
  return version().data();
}

size_t onehop_dtype_size(onehop_dtype_t dtype) {
  return guard_or(std::size_t{0}, [&] { return size_of(to_dtype(dtype)); });
}

const char* onehop_dtype_name(onehop_dtype_t dtype) {
  return guard_or("unknown", [&] { return to_string(to_dtype(dtype)).data(); });
}

const char* onehop_op_name(onehop_op_t op) {
  return guard_or("unknown", [&] { return to_string(to_op(op)).data(); });
}

onehop_status_t onehop_dtype_parse(const char* name, onehop_dtype_t* dtype) {
  return guard([&] { deref(dtype, "dtype") = static_cast<onehop_dtype_t>(parse_dtype(text(name, "name"))); });
}

onehop_status_t onehop_op_parse(const char* name, onehop_op_t* op) {
  return guard([&] { deref(op, "op") = static_cast<onehop_op_t>(parse_reduce_op(text(name, "name"))); });
}

const char* onehop_share_by_name(onehop_share_by_t share_by) {
  return share_by >= 0 && share_by < kShareByCount ? to_string(static_cast<ShareBy>(share_by)).data()
                                                   : "unknown";
}

onehop_status_t onehop_share_by_parse(const char* name, onehop_share_by_t* share_by) {
  return guard([&] {
    deref(share_by, "share_by") = static_cast<onehop_share_by_t>(parse_share_by(text(name, "name")));
  });
}

}  // extern "C"
