// SPDX-License-Identifier: Apache-2.0
// NCCL's numbers of element types and reductions.
#pragma once

#include <algorithm>
#include <array>

#include "onehop/types.h"

namespace onehop {

/// By the number that ncclDataType_t gives each.
inline constexpr std::array kNcclTypes = {DType::i8,  DType::u8,   DType::i32,  DType::u32,
                                          DType::i64, DType::u64,  DType::f16,  DType::f32,
                                          DType::f64, DType::bf16, DType::e4m3, DType::e5m2};
/// By the number that ncclRedOp_t gives each. A premul_sum is an object that a communicator makes.
inline constexpr std::array kNcclOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                                        ReduceOp::avg};

/// The number of a value in one of these tables; -1 if NCCL has none.
template <class Table>
[[nodiscard]] constexpr int nccl_number(const Table& table, typename Table::value_type value) {
  const auto* const found = std::ranges::find(table, value);
  return found != table.end() ? static_cast<int>(found - table.begin()) : -1;
}

}  // namespace onehop
