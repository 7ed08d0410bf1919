// SPDX-License-Identifier: Apache-2.0
#include "onehop/types.h"

#include <array>
#include <functional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/dtype_info.h"
#include "base/element.h"

namespace onehop {
namespace {

constexpr std::array<std::pair<ReduceOp, std::string_view>, kReduceOpCount> kOps{{
    {ReduceOp::sum, "sum"},
    {ReduceOp::prod, "prod"},
    {ReduceOp::min, "min"},
    {ReduceOp::max, "max"},
    {ReduceOp::avg, "avg"},
    {ReduceOp::premul_sum, "premul_sum"},
}};

constexpr std::array<std::string_view, kAlgorithmCount> kAlgorithms{"none", "one-shot", "two-shot"};

/// By number.
constexpr std::array<std::pair<ShareBy, std::string_view>, kShareByCount> kShareBys{{
    {ShareBy::automatic, "auto"},
    {ShareBy::posix_fd, "fd"},
    {ShareBy::fabric, "fabric"},
    {ShareBy::ipc, "ipc"},
}};

/// Those of a table's rows, for messages.
template <class Rows, class NameOf>
std::string names_in(const Rows& rows, NameOf name_of) {
  std::string names;
  for (const auto& row : rows) names.append(names.empty() ? "" : " ").append(std::invoke(name_of, row));
  return names;
}

}  // namespace

std::size_t size_of(DType type) {
  const DTypeInfo* const info = info_of(type);
  require(info != nullptr, "unknown element type number {}", static_cast<int>(type));
  return info->bytes;
}

bool is_float(DType type) {
  return float_format(type).has_value();
}

bool is_signed(DType type) {
  const DTypeInfo* const info = info_of(type);
  return info != nullptr && info->is_signed;
}

std::optional<FloatFormat> float_format(DType type) {
  const DTypeInfo* const info = info_of(type);
  return info != nullptr ? info->format : std::nullopt;
}

std::string dtype_names() {
  return names_in(kDTypes, &DTypeInfo::name);
}

std::string_view to_string(DType type) {
  const DTypeInfo* const info = info_of(type);
  return info != nullptr ? info->name : "unknown";
}

std::string_view to_string(ReduceOp op) {
  const auto index = static_cast<std::size_t>(op);
  return index < kOps.size() ? kOps[index].second : "unknown";
}

std::string_view to_string(ShareBy share_by) {
  const auto index = static_cast<std::size_t>(share_by);
  return index < kShareBys.size() ? kShareBys[index].second : "unknown";
}

std::string_view to_string(Algorithm algorithm) {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < kAlgorithms.size() ? kAlgorithms[index] : "unknown";
}

DType parse_dtype(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.name || name == info.alias) return info.type;
  }
  // As C, frameworks and nccl-tests call them.
  if (name == "half" || name == "fp16") return DType::f16;
  if (name == "float" || name == "fp32") return DType::f32;
  if (name == "double" || name == "fp64") return DType::f64;
  if (name == "fp8_e4m3") return DType::e4m3;
  if (name == "fp8_e5m2") return DType::e5m2;
  fail(ErrorCode::invalid_argument, "unknown element type '{}'; known: {}", name, dtype_names());
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (const auto& [op, known] : kOps) {
    if (name == known) return op;
  }
  fail(ErrorCode::invalid_argument, "unknown reduction '{}'; known: {}", name,
       names_in(kOps, &decltype(kOps)::value_type::second));
}

Algorithm parse_algorithm(std::string_view name) {
  for (std::size_t i = 1; i < kAlgorithms.size(); ++i) {
    if (name == kAlgorithms[i]) return static_cast<Algorithm>(i);
  }
  fail(ErrorCode::invalid_argument, "unknown algorithm '{}'; known: {}", name,
       names_in(std::span(kAlgorithms).subspan(1), std::identity()));
}

ShareBy parse_share_by(std::string_view name) {
  for (const auto& [share_by, known] : kShareBys) {
    if (name == known) return share_by;
  }
  fail(ErrorCode::invalid_argument, "unknown handle type '{}' for sharing memory; known: {}", name,
       names_in(kShareBys, &decltype(kShareBys)::value_type::second));
}

}  // namespace onehop
