// SPDX-License-Identifier: Apache-2.0
// Compiled kernels as PTX, decoded for the interpreter (interpreter.h). Knows the instructions that the library's
// kernels use and refuses all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace onehop::ptx {

// clang-format off
enum class Op : std::uint8_t {
  mov, trunc16, trunc32, sign_extend32,
  add32, add64, sub32, sub64, mul_lo32, mul_lo64, mul_wide_u, mul_wide_s32, mad_lo32,
  div_u32, div_s32, div_u64, rem_u32, neg64, and_, or_, xor_, not16, not32, not64, not_pred,
  shl32, shl64, shr_u32, shr_u64, min_s32, max_s32, min_u32, max_u32, min_s64, max_s64, min_u64, max_u64,
  add_f32, mul_f32, div_f32, min_nan_f32, max_nan_f32, add_f64, mul_f64, div_f64,
  eq, ne, lt_s32, le_s32, gt_s32, ge_s32, lt_u, le_u, gt_u, ge_u, lt_s64, le_s64, gt_s64, ge_s64,
  eq_f32, lt_f32, gt_f32, num_f32, nan_f32, eq_f64, lt_f64, gt_f64, num_f64, nan_f64,
  selp, bfi32, bfi64, bfind_shiftamt_u32, brev32, prmt, cvt_bf16x2, cvt_f16x2, pack64, unpack64,
  tid_x, ntid_x, ctaid_x, ctaid_y, nctaid_x, nctaid_y, laneid, globaltimer,
  branch, branch_if, branch_unless, call, ret, exit,
  load, store, load_param, load_frame, store_frame, param_address, load_shared, store_shared,
  atom_add32, atom_exch32, red_add64,
  bar, bar_red_and, bar_warp, shfl_idx, vote_all, vote_any, depend_wait, depend_launch,
};
// clang-format on

/// A register of the frame; or, if negative, the complement of an index of Function::constants.
using Operand = std::int32_t;

struct Instruction {
  Op op{};
  std::uint8_t width = 0;   ///< memory: bytes of an element
  std::uint8_t vector = 1;  ///< memory: elements
  std::int32_t offset = 0;  ///< memory: bytes; branches: the target; call: index of Function::calls
  std::int32_t d[4] = {};   ///< destinations, or what is stored
  Operand a = 0;
  Operand b = 0;
  Operand c = 0;
  Operand e = 0;
};

struct Function;

/// Bytes to copy between two frames.
struct ParamCopy {
  std::uint32_t from;
  std::uint32_t to;
  std::uint32_t bytes;
};
struct CallSite {
  const Function* callee = nullptr;
  std::vector<ParamCopy> params;  ///< from the caller's frame to the callee's
  std::vector<ParamCopy> results;
};

/// A frame has the registers, then the memory of parameters and results. Offsets count from its start.
struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Instruction> code;
  std::vector<std::uint32_t> lines;  ///< of the PTX, by instruction
  std::vector<std::uint64_t> constants;
  std::vector<CallSite> calls;
  std::size_t frame_words = 0;
  std::size_t stack_words = 0;  ///< of this frame and the deepest ones that it calls
  std::size_t shared_bytes = 0;
  std::size_t param_bytes = 0;  ///< of a kernel
  unsigned max_threads = 0;     ///< of a kernel
  struct Slot {
    std::uint32_t offset;
    std::uint32_t bytes;
  };
  std::vector<Slot> params;  ///< of a function that is no kernel
  std::vector<Slot> results;
};

/// The text of one file. Functions are decoded when they are first used.
class Module {
 public:
  explicit Module(std::string text);

  /// nullptr: the module has no such function.
  [[nodiscard]] const Function* find(std::string_view name);
  [[nodiscard]] std::vector<std::string> kernels() const;

 private:
  friend class Decoder;
  struct Source {
    std::string_view header;
    std::string_view body;
    bool is_kernel = false;
    std::unique_ptr<Function> decoded;
  };
  std::string text_;
  std::map<std::string, Source, std::less<>> sources_;
  /// Declarations of shared memory outside of functions. Every function has them at the start of its own.
  std::vector<std::string_view> shared_;
};

}  // namespace onehop::ptx
