// SPDX-License-Identifier: Apache-2.0
// What each instruction does.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "ptx/threads.h"

namespace onehop::ptx {
namespace {

std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7fffffff : std::bit_cast<std::uint32_t>(value);
}
float f32(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}
double f64(std::uint64_t bits) {
  return std::bit_cast<double>(bits);
}
std::int32_t s32(std::uint64_t bits) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
}
std::uint32_t u32(std::uint64_t bits) {
  return static_cast<std::uint32_t>(bits);
}

/// min.NaN and max.NaN: -0 is less than +0.
std::uint32_t min_nan(float a, float b, bool max) {
  if (std::isnan(a) || std::isnan(b)) return 0x7fffffff;
  if (a == b) return bits_of(std::signbit(a) == max ? b : a);
  return bits_of((a < b) == max ? b : a);
}

std::uint32_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

std::uint32_t to_f16(float value) {
  if (std::isnan(value)) return 0x7fff;
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

std::uint64_t insert_bits(std::uint64_t a, std::uint64_t b, std::uint64_t position, std::uint64_t length,
                          unsigned width) {
  position &= 0xff;
  length &= 0xff;
  if (position >= width || length == 0) return b;
  const std::uint64_t ones = length >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << length) - 1;
  const std::uint64_t mask = ones << position;
  const std::uint64_t result = (b & ~mask) | (a << position & mask);
  return width == 32 ? u32(result) : result;
}

std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t select) {
  const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = select >> (4 * i) & 0xf;
    auto byte = static_cast<std::uint32_t>(both >> (8 * (choice & 7)) & 0xff);
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

std::uint64_t load_bytes(const void* at, unsigned width) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, width);
  return value;
}

}  // namespace

void Simulation::execute(Thread& t, unsigned quantum) {
  const Function* function = t.function;
  const Instruction* code = function->code.data();
  const std::uint64_t* constants = function->constants.data();
  std::uint64_t* r = t.frame;
  std::uint32_t pc = t.pc;
  Kernel& kernel = *t.block->kernel;
  const auto get = [&](Operand o) { return o >= 0 ? r[o] : constants[~o]; };
  const auto param_begin = reinterpret_cast<std::uintptr_t>(kernel.params);
  const std::size_t param_bytes = kernel.function->param_bytes;
  const auto in_params = [&](std::uintptr_t at, std::size_t bytes) {
    return at - param_begin < param_bytes && at + bytes <= param_begin + param_bytes;
  };
  unsigned loops = 0;  // backward branches since the last store: the thread may be polling
  const auto follow = [&](std::int32_t target) {
    if (static_cast<std::uint32_t>(target) <= pc && ++loops > 2) quantum = 0;
    pc = static_cast<std::uint32_t>(target);
  };
  const auto checked = [&](std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) {
    try {
      memory_.check(at, bytes, width, writes);
    } catch (const std::runtime_error& error) {
      t.pc = pc;
      fail(t, error.what());
    }
  };

  while (true) {
    if (quantum == 0) {
      t.pc = pc;
      return;
    }
    --quantum;
    ++steps_;
    const Instruction& i = code[pc];
    const auto set = [&](std::uint64_t value) {
      r[i.d[0]] = value;
      ++pc;
    };
    switch (i.op) {
      case Op::mov:
        set(get(i.a));
        break;
      case Op::trunc16:
        set(get(i.a) & 0xffff);
        break;
      case Op::trunc32:
        set(u32(get(i.a)));
        break;
      case Op::sign_extend32:
        set(static_cast<std::uint64_t>(static_cast<std::int64_t>(s32(get(i.a)))));
        break;
      case Op::add32:
        set(u32(get(i.a) + get(i.b)));
        break;
      case Op::add64:
        set(get(i.a) + get(i.b));
        break;
      case Op::sub32:
        set(u32(get(i.a) - get(i.b)));
        break;
      case Op::sub64:
        set(get(i.a) - get(i.b));
        break;
      case Op::mul_lo32:
        set(u32(get(i.a) * get(i.b)));
        break;
      case Op::mul_lo64:
        set(get(i.a) * get(i.b));
        break;
      case Op::mul_wide_u:
        set(get(i.a) * get(i.b));
        break;
      case Op::mul_wide_s32:
        set(static_cast<std::uint64_t>(static_cast<std::int64_t>(s32(get(i.a))) * s32(get(i.b))));
        break;
      case Op::mad_lo32:
        set(u32(get(i.a) * get(i.b) + get(i.c)));
        break;
      case Op::div_u32:
      case Op::div_u64:
      case Op::rem_u32:
        if (get(i.b) == 0) {
          t.pc = pc;
          fail(t, "division by 0");
        }
        set(i.op == Op::rem_u32 ? get(i.a) % get(i.b) : get(i.a) / get(i.b));
        break;
      case Op::div_s32: {
        const std::int64_t b = s32(get(i.b));
        if (b == 0) {
          t.pc = pc;
          fail(t, "division by 0");
        }
        set(u32(static_cast<std::uint64_t>(s32(get(i.a)) / b)));
        break;
      }
      case Op::neg64:
        set(0 - get(i.a));
        break;
      case Op::and_:
        set(get(i.a) & get(i.b));
        break;
      case Op::or_:
        set(get(i.a) | get(i.b));
        break;
      case Op::xor_:
        set(get(i.a) ^ get(i.b));
        break;
      case Op::not16:
        set(~get(i.a) & 0xffff);
        break;
      case Op::not32:
        set(u32(~get(i.a)));
        break;
      case Op::not64:
        set(~get(i.a));
        break;
      case Op::not_pred:
        set(get(i.a) ^ 1);
        break;
      case Op::shl32:
        set(u32(get(i.b)) > 31 ? 0 : u32(get(i.a) << u32(get(i.b))));
        break;
      case Op::shl64:
        set(u32(get(i.b)) > 63 ? 0 : get(i.a) << u32(get(i.b)));
        break;
      case Op::shr_u32:
      case Op::shr_u64:
        set(u32(get(i.b)) > 63 ? 0 : get(i.a) >> u32(get(i.b)));
        break;
      case Op::min_s32:
        set(u32(static_cast<std::uint64_t>(std::min(s32(get(i.a)), s32(get(i.b))))));
        break;
      case Op::max_s32:
        set(u32(static_cast<std::uint64_t>(std::max(s32(get(i.a)), s32(get(i.b))))));
        break;
      case Op::min_u32:
      case Op::min_u64:
        set(std::min(get(i.a), get(i.b)));
        break;
      case Op::max_u32:
      case Op::max_u64:
        set(std::max(get(i.a), get(i.b)));
        break;
      case Op::min_s64:
        set(static_cast<std::uint64_t>(
            std::min(static_cast<std::int64_t>(get(i.a)), static_cast<std::int64_t>(get(i.b)))));
        break;
      case Op::max_s64:
        set(static_cast<std::uint64_t>(
            std::max(static_cast<std::int64_t>(get(i.a)), static_cast<std::int64_t>(get(i.b)))));
        break;
      case Op::add_f32:
        set(bits_of(f32(get(i.a)) + f32(get(i.b))));
        break;
      case Op::mul_f32:
        set(bits_of(f32(get(i.a)) * f32(get(i.b))));
        break;
      case Op::div_f32:
        set(bits_of(f32(get(i.a)) / f32(get(i.b))));
        break;
      case Op::min_nan_f32:
        set(min_nan(f32(get(i.a)), f32(get(i.b)), false));
        break;
      case Op::max_nan_f32:
        set(min_nan(f32(get(i.a)), f32(get(i.b)), true));
        break;
      case Op::add_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) + f64(get(i.b))));
        break;
      case Op::mul_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) * f64(get(i.b))));
        break;
      case Op::div_f64:
        set(std::bit_cast<std::uint64_t>(f64(get(i.a)) / f64(get(i.b))));
        break;
      case Op::eq:
        set(get(i.a) == get(i.b));
        break;
      case Op::ne:
        set(get(i.a) != get(i.b));
        break;
      case Op::lt_s32:
        set(s32(get(i.a)) < s32(get(i.b)));
        break;
      case Op::le_s32:
        set(s32(get(i.a)) <= s32(get(i.b)));
        break;
      case Op::gt_s32:
        set(s32(get(i.a)) > s32(get(i.b)));
        break;
      case Op::ge_s32:
        set(s32(get(i.a)) >= s32(get(i.b)));
        break;
      case Op::lt_u:
        set(get(i.a) < get(i.b));
        break;
      case Op::le_u:
        set(get(i.a) <= get(i.b));
        break;
      case Op::gt_u:
        set(get(i.a) > get(i.b));
        break;
      case Op::ge_u:
        set(get(i.a) >= get(i.b));
        break;
      case Op::lt_s64:
        set(static_cast<std::int64_t>(get(i.a)) < static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::le_s64:
        set(static_cast<std::int64_t>(get(i.a)) <= static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::gt_s64:
        set(static_cast<std::int64_t>(get(i.a)) > static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::ge_s64:
        set(static_cast<std::int64_t>(get(i.a)) >= static_cast<std::int64_t>(get(i.b)));
        break;
      case Op::eq_f32:
        set(f32(get(i.a)) == f32(get(i.b)));
        break;
      case Op::lt_f32:
        set(f32(get(i.a)) < f32(get(i.b)));
        break;
      case Op::gt_f32:
        set(f32(get(i.a)) > f32(get(i.b)));
        break;
      case Op::num_f32:
        set(!std::isnan(f32(get(i.a))) && !std::isnan(f32(get(i.b))));
        break;
      case Op::nan_f32:
        set(std::isnan(f32(get(i.a))) || std::isnan(f32(get(i.b))));
        break;
      case Op::eq_f64:
        set(f64(get(i.a)) == f64(get(i.b)));
        break;
      case Op::lt_f64:
        set(f64(get(i.a)) < f64(get(i.b)));
        break;
      case Op::gt_f64:
        set(f64(get(i.a)) > f64(get(i.b)));
        break;
      case Op::num_f64:
        set(!std::isnan(f64(get(i.a))) && !std::isnan(f64(get(i.b))));
        break;
      case Op::nan_f64:
        set(std::isnan(f64(get(i.a))) || std::isnan(f64(get(i.b))));
        break;
      case Op::selp:
        set((get(i.c) & 1) != 0 ? get(i.a) : get(i.b));
        break;
      case Op::bfi32:
        set(insert_bits(get(i.a), get(i.b), get(i.c), get(i.e), 32));
        break;
      case Op::bfi64:
        set(insert_bits(get(i.a), get(i.b), get(i.c), get(i.e), 64));
        break;
      case Op::bfind_shiftamt_u32:
        set(u32(get(i.a)) == 0 ? 0xffffffff : static_cast<unsigned>(std::countl_zero(u32(get(i.a)))));
        break;
      case Op::brev32: {
        std::uint32_t reversed = 0;
        for (unsigned bit = 0; bit < 32; ++bit) reversed |= (u32(get(i.a)) >> bit & 1) << (31 - bit);
        set(reversed);
        break;
      }
      case Op::prmt:
        set(permute(u32(get(i.a)), u32(get(i.b)), u32(get(i.c))));
        break;
      case Op::cvt_bf16x2:
        set(to_bf16(f32(get(i.a))) << 16 | to_bf16(f32(get(i.b))));
        break;
      case Op::cvt_f16x2:
        set(to_f16(f32(get(i.a))) << 16 | to_f16(f32(get(i.b))));
        break;
      case Op::pack64:
        set(u32(get(i.a)) | get(i.b) << 32);
        break;
      case Op::unpack64: {
        const std::uint64_t value = get(i.a);
        r[i.d[0]] = u32(value);
        r[i.d[1]] = value >> 32;
        ++pc;
        break;
      }
      case Op::tid_x:
        set(t.index);
        break;
      case Op::ntid_x:
        set(kernel.grid.threads);
        break;
      case Op::ctaid_x:
        set(t.block->x);
        break;
      case Op::ctaid_y:
        set(t.block->y);
        break;
      case Op::nctaid_x:
        set(kernel.grid.blocks);
        break;
      case Op::nctaid_y:
        set(kernel.grid.rows);
        break;
      case Op::laneid:
        set(t.index % kWarp);
        break;
      case Op::globaltimer:
        set(steps_);
        break;
      case Op::branch:
        follow(i.offset);
        break;
      case Op::branch_if:
        if ((get(i.a) & 1) != 0)
          follow(i.offset);
        else
          ++pc;
        break;
      case Op::branch_unless:
        if ((get(i.a) & 1) == 0)
          follow(i.offset);
        else
          ++pc;
        break;
      case Op::call: {
        const CallSite& site = function->calls[static_cast<std::size_t>(i.offset)];
        std::uint64_t* const frame = r + function->frame_words;
        for (const ParamCopy& copy : site.params)
          std::memcpy(reinterpret_cast<std::byte*>(frame) + copy.to,
                      reinterpret_cast<const std::byte*>(r) + copy.from, copy.bytes);
        t.returns.push_back({function, pc, r});
        function = t.function = site.callee;
        r = t.frame = frame;
        code = function->code.data();
        constants = function->constants.data();
        pc = 0;
        break;
      }
      case Op::ret: {
        const Thread::Return back = t.returns.back();
        t.returns.pop_back();
        const CallSite& site =
            back.function->calls[static_cast<std::size_t>(back.function->code[back.pc].offset)];
        for (const ParamCopy& copy : site.results)
          std::memcpy(reinterpret_cast<std::byte*>(back.frame) + copy.to,
                      reinterpret_cast<const std::byte*>(r) + copy.from, copy.bytes);
        function = t.function = back.function;
        r = t.frame = back.frame;
        code = function->code.data();
        constants = function->constants.data();
        pc = back.pc + 1;
        break;
      }
      case Op::exit:
        t.pc = pc;
        return end_thread(t);
      case Op::load: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        if (!in_params(at, bytes)) checked(at, bytes, bytes, false);
        if (i.vector > 1 && t.moved == 0 && random(16) == 0 && std::ranges::find(i.d, i.a) == std::end(i.d)) {
          // Only some elements now; the others when the thread goes on.
          t.moved = 1 + random((1u << i.vector) - 2);
          for (unsigned k = 0; k < i.vector; ++k) {
            if ((t.moved >> k & 1) != 0)
              r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
          }
          t.pc = pc;
          return;
        }
        for (unsigned k = 0; k < i.vector; ++k) {
          if ((t.moved >> k & 1) != 0) continue;
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
        }
        t.moved = 0;
        ++pc;
        break;
      }
      case Op::store: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        checked(at, bytes, bytes, true);
        const auto put = [&](unsigned k) {
          const std::uint64_t value = get(i.d[k]);
          std::memcpy(reinterpret_cast<std::byte*>(at) + k * i.width, &value, i.width);
        };
        last_progress_ = steps_;
        if (i.vector > 1 && t.moved == 0 && random(16) == 0) {
          // Only some elements now; the others when the thread goes on.
          t.moved = 1 + random((1u << i.vector) - 2);
          for (unsigned k = 0; k < i.vector; ++k) {
            if ((t.moved >> k & 1) != 0) put(k);
          }
          t.pc = pc;
          return;
        }
        for (unsigned k = 0; k < i.vector; ++k) {
          if ((t.moved >> k & 1) == 0) put(k);
        }
        t.moved = 0;
        loops = 0;
        ++pc;
        break;
      }
      case Op::load_param: {
        const auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        const std::uintptr_t at = i.b == 1 ? param_begin + offset : get(i.a) + offset;
        const std::size_t bytes = std::size_t{i.width} * i.vector;
        if (!in_params(at, bytes) || at % bytes != 0) {
          t.pc = pc;
          fail(t, "a parameter that does not exist");
        }
        for (unsigned k = 0; k < i.vector; ++k)
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(at) + k * i.width, i.width);
        ++pc;
        break;
      }
      case Op::param_address:
        set(param_begin);
        break;
      case Op::load_frame:
        for (unsigned k = 0; k < i.vector; ++k)
          r[i.d[k]] = load_bytes(reinterpret_cast<const std::byte*>(r) + i.offset + k * i.width, i.width);
        ++pc;
        break;
      case Op::store_frame:
        for (unsigned k = 0; k < i.vector; ++k) {
          const std::uint64_t value = get(i.d[k]);
          std::memcpy(reinterpret_cast<std::byte*>(r) + i.offset + k * i.width, &value, i.width);
        }
        ++pc;
        break;
      case Op::load_shared:
      case Op::store_shared: {
        const std::uint64_t at =
            u32(get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset)));
        if (i.vector != 1 || at % i.width != 0 || at + i.width > t.block->shared.size()) {
          t.pc = pc;
          fail(t, "outside of shared memory");
        }
        std::byte* const data = t.block->shared.data() + at;
        if (i.op == Op::load_shared) {
          r[i.d[0]] = load_bytes(data, i.width);
        } else {
          const std::uint64_t value = get(i.d[0]);
          std::memcpy(data, &value, i.width);
          last_progress_ = steps_;
          loops = 0;
        }
        ++pc;
        break;
      }
      case Op::atom_add32:
      case Op::atom_exch32: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        checked(at, 4, 4, true);
        auto* const word = reinterpret_cast<std::uint32_t*>(at);
        const std::uint32_t old = *word;
        *word = i.op == Op::atom_add32 ? old + u32(get(i.b)) : u32(get(i.b));
        last_progress_ = steps_;
        loops = 0;
        set(old);
        break;
      }
      case Op::red_add64: {
        const std::uintptr_t at = get(i.a) + static_cast<std::uint64_t>(static_cast<std::int64_t>(i.offset));
        checked(at, 8, 8, true);
        *reinterpret_cast<std::uint64_t*>(at) += get(i.b);
        last_progress_ = steps_;
        loops = 0;
        ++pc;
        break;
      }
      case Op::bar:
        t.pc = pc;
        return arrive(t, u32(get(i.a)), u32(get(i.b)), true, -1);
      case Op::bar_red_and:
        t.pc = pc;
        return arrive(t, u32(get(i.a)), u32(get(i.b)), (get(i.c) & 1) != 0, i.d[0]);
      case Op::bar_warp:
        t.pc = pc;
        (void)arrive_at(t, i, u32(get(i.a)), 0);
        return;
      case Op::shfl_idx:
      case Op::vote_all:
      case Op::vote_any:
        t.pc = pc;
        (void)arrive_at(t, i, u32(get(i.e)), get(i.a));
        return;
      case Op::depend_wait:
        if (lanes_[kernel.lane]->done < kernel.position) {
          t.pc = pc;
          t.state = Thread::State::at_dependency;
          return suspend(t);
        }
        ++pc;
        break;
      case Op::depend_launch:
        if (!t.block->allows_next) --kernel.holding;
        t.block->allows_next = true;
        ++pc;
        break;
    }
  }
}

}  // namespace onehop::ptx
