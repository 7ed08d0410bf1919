// SPDX-License-Identifier: Apache-2.0
// What more GPUs would take, from what two took.
#pragma once

#include <string>

#include "bench/bench.h"

namespace onehop::cli {

/// A prediction for `ranks` GPUs that are connected as the 2 measured ones, each pair directly. A call of 2 ranks is one hop,
/// whose time depends on the bytes that cross a link; a call of more ranks sends other bytes, in one hop or two. NCCL's
/// times and the spread of rounds are left out. Error{invalid_argument} if a collective was not measured on 2 GPUs; `name` is
/// the report's.
[[nodiscard]] BenchDocument predict(BenchDocument measured, const std::string& name, int ranks);

}  // namespace onehop::cli
