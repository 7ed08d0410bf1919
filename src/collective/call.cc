#include "collective/call.h"

#include "onehop/group.h"

#include "base/check.h"

namespace onehop {
namespace {

const char* kind_name(std::uint8_t kind) {
  switch (static_cast<CallKind>(kind)) {
    case CallKind::barrier:
      return "barrier";
    case CallKind::all_reduce:
      return "all_reduce";
  }
  return "an unknown call";
}

/// "all_reduce(count 1024, f32, sum)".
std::string describe(const host::Call& call) {
  if (static_cast<CallKind>(call.kind) == CallKind::barrier) return "barrier()";
  return fmt::format("{}(count {}, {}, {}{})", kind_name(call.kind), call.count,
                     to_string(static_cast<DType>(call.dtype)), to_string(static_cast<ReduceOp>(call.op)),
                     call.algorithm == kAnyAlgorithm
                         ? std::string()
                         : fmt::format(", {}", to_string(static_cast<Algorithm>(call.algorithm))));
}

bool same(const host::Call& a, const host::Call& b) {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
         a.algorithm == b.algorithm;
}

}  // namespace

const char* to_text(CallDefect defect) {
  switch (defect) {
    case CallDefect::none:
      return "nothing is wrong";
    case CallDefect::unknown_type:
      return "its element type is unknown";
    case CallDefect::unknown_op:
      return "its reduction is unknown";
    case CallDefect::unknown_algorithm:
      return "its algorithm is unknown";
    case CallDefect::too_large:
      return "its count is too large";
    case CallDefect::null_pointer:
      return "a pointer is null";
    case CallDefect::misaligned:
      return "a pointer is not aligned to the element size";
    case CallDefect::overlap:
      return "input and output overlap without being the same";
  }
  return "its arguments are unusable";
}

void require_same_call(const std::vector<const host::Call*>& calls) {
  const host::Call& first = *calls.front();
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const Rank rank{static_cast<int>(r)};
    const host::Call& call = *calls[r];
    if (call.rejected != 0) {
      fail_from(rank, ErrorCode::invalid_argument, "{} of rank {} was rejected: {}", describe(call), r,
                to_text(static_cast<CallDefect>(call.rejected)));
    }
    if (!same(call, first)) {
      fail_from(rank, ErrorCode::mismatch, "ranks disagree: rank 0 calls {}, rank {} calls {}",
                describe(first), r, describe(call));
    }
  }
}

}  // namespace onehop
