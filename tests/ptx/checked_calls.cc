// SPDX-License-Identifier: Apache-2.0
#include "ptx/checked_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "onehop/call.h"

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/point_to_point/factors.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/algorithms/streaming/streaming.h"
#include "backend/host/reduce.h"

namespace onehop::ptx {
namespace {

/// Values of which NaNs, infinities, zeros and subnormal numbers are frequent.
template <class Word>
void fill_floats(Bytes& data, Random& random, unsigned exponent_bits) {
  constexpr unsigned kBits = 8 * sizeof(Word);
  const unsigned mantissa_bits = kBits - 1 - exponent_bits;
  const auto sign = static_cast<Word>(Word{1} << (kBits - 1));
  const auto infinity = static_cast<Word>(((Word{1} << exponent_bits) - 1) << mantissa_bits);
  for (std::size_t i = 0; i < data.size(); i += sizeof(Word)) {
    const auto bits = static_cast<Word>(random());
    // Near 1, so that sums are inexact but finite.
    const auto exponent = static_cast<Word>((Word{1} << (exponent_bits - 1)) - 4 + random() % 8);
    auto word = static_cast<Word>(exponent << mantissa_bits | (bits & ((Word{1} << mantissa_bits) - 1)));
    switch (random() % 40) {
      case 0:
        word = static_cast<Word>(~Word{0});
        break;  // the empty word of Lamport buffers
      case 1:
        word = static_cast<Word>(infinity | 1);
        break;
      case 2:
        word = infinity;
        break;
      case 3:
        word = static_cast<Word>(infinity - 1);
        break;  // the largest number
      case 4:
        word = 0;
        break;
      case 5:
        word = 3;
        break;  // subnormal
      case 6:
        word = bits;
        break;
      default:
        break;
    }
    word = static_cast<Word>(word | (bits & sign));
    std::memcpy(data.data() + i, &word, sizeof word);
  }
}

[[nodiscard]] Bytes random_bytes(std::size_t bytes, DType type, Random& random) {
  Bytes data(bytes);
  if (type == DType::bf16) {
    fill_floats<std::uint16_t>(data, random, 8);
  } else if (type == DType::f32) {
    fill_floats<std::uint32_t>(data, random, 8);
  } else if (type == DType::f64) {
    fill_floats<std::uint64_t>(data, random, 11);
  } else {
    for (std::byte& each : data) each = static_cast<std::byte>(random());
    // Words that streams escape, and those that travel as an escape.
    for (std::size_t i = 0; i + 4 <= data.size(); i += 4) {
      if (random() % 2 != 0) continue;
      const std::uint32_t word = cuda::kEscapeKey ^ (random() % 2 != 0 ? 1u : 0u);
      std::memcpy(data.data() + i, &word, sizeof word);
    }
  }
  return data;
}

/// Small numbers of both signs, that are not 1.
[[nodiscard]] Bytes factor_of_rank(DType type, int rank) {
  Bytes factor(size_of(type));
  if (type == DType::bf16) {
    const auto bits = static_cast<std::uint16_t>(0x3f4d + 0x11 * rank + (rank % 2 == 0 ? 0x8000 : 0));
    std::memcpy(factor.data(), &bits, sizeof bits);
  } else if (type == DType::f64) {
    const double number = rank % 2 == 0 ? -0.3 - rank : 1.7 * rank;
    std::memcpy(factor.data(), &number, sizeof number);
  } else {
    factor.front() = static_cast<std::byte>(3 + 2 * rank);
  }
  return factor;
}

[[nodiscard]] std::uint64_t element_of(const Bytes& bytes) {
  std::uint64_t element = 0;
  std::memcpy(&element, bytes.data(), bytes.size());
  return element;
}

[[nodiscard]] Bytes product(DType type, const Bytes& input, const Bytes& factor) {
  Bytes result(input.size());
  const void* const in = input.data();
  host::reduce_function(type, ReduceOp::premul_sum)(result.data(), &in, 1, input.size() / size_of(type),
                                                    product_with(type, element_of(factor)));
  return result;
}

[[nodiscard]] Bytes reduced(const CollectiveCall& call, std::span<const Bytes> inputs, std::size_t offset) {
  Bytes result(call.block_bytes());
  std::vector<const void*> sources;
  for (const Bytes& each : inputs) sources.push_back(each.data() + offset);
  host::reduce_function(call.type, call.op)(result.data(), sources.data(), static_cast<int>(sources.size()),
                                            call.count, call.scale());
  return result;
}

/// What a rank receives.
[[nodiscard]] Bytes result_of(const CollectiveCall& call, std::span<const Bytes> inputs) {
  const std::size_t block = call.block_bytes();
  if (call.collective == Collective::reduce_scatter)
    return reduced(call, inputs, static_cast<std::size_t>(call.rank) * block);
  if (call.traits().reduces) return reduced(call, inputs, 0);
  Bytes result;
  for (int r = 0; r < call.ranks; ++r) {
    if (!call.moves(r, call.rank)) continue;
    const std::span from =
        std::span(inputs[static_cast<std::size_t>(r)]).subspan(call.in_offset(call.rank), block);
    result.insert(result.end(), from.begin(), from.end());
  }
  return result;
}

[[nodiscard]] std::string difference(const UserMemory& memory, const Bytes& expected, std::size_t element) {
  if (!memory.intact()) return "the memory around it has changed";
  std::size_t wrong = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < expected.size(); i += element) {
    if (std::memcmp(memory.data() + i, expected.data() + i, element) == 0) continue;
    if (wrong++ == 0) first = i;
    last = i;
  }
  if (wrong == 0) return {};
  std::uint64_t is = 0;
  std::uint64_t should_be = 0;
  std::memcpy(&is, memory.data() + first, element);
  std::memcpy(&should_be, expected.data() + first, element);
  return fmt::format("{} of {} elements differ, at bytes {} to {}; the first is {:#x} instead of {:#x}",
                     wrong, expected.size() / element, first, last, is, should_be);
}

}  // namespace

std::string Case::describe() const {
  return fmt::format("{}, {} of {} x {}, {}, root {}{}{}{}{}", algorithm->name, to_string(collective), count,
                     to_string(type), op == kWeightedSum ? "weighted sum" : to_string(op), root,
                     shifted ? ", shifted" : "", in_place ? ", in place" : "",
                     limits.blocks ? fmt::format(", {} blocks", *limits.blocks) : "",
                     limits.threads ? fmt::format(", {} threads", *limits.threads) : "");
}

std::size_t CheckedCalls::bytes_of(Amount amount, const CollectiveCall& call) const {
  if (amount == Amount::nothing) return 0;
  return (amount == Amount::block ? 1 : static_cast<std::size_t>(ranks())) * call.block_bytes();
}

CheckedCalls::Checked& CheckedCalls::add(std::span<const std::byte> content, std::size_t shift, bool writable,
                                         std::string_view what, int rank) {
  Pending& pending = pending_.back();
  Checked& added = pending.memory.emplace_back(
      Checked{std::make_unique<UserMemory>(gpus_.memory(), content.size(), shift, writable,
                                           fmt::format("{}: {} of rank {}", pending.name, what, rank)),
              rank, Bytes(content.begin(), content.end())});
  std::ranges::copy(content, added.memory->data());
  return added;
}

std::vector<CollectiveCall> CheckedCalls::prepare(const Case& each) {
  pending_.push_back({.name = each.describe(), .element = size_of(each.type)});
  const bool symmetric = each.algorithm->buffers == Buffers::symmetric;
  const auto random_shift = [&] { return each.shifted ? random_() % 20 * size_of(each.type) : 0; };
  // Symmetric memory begins at the same offset in a page on all ranks.
  const std::size_t common_shift = random_shift();
  std::vector<CollectiveCall> calls;
  std::vector<Bytes> inputs;
  std::vector<Checked*> outputs;
  for (int r = 0; r < ranks(); ++r) {
    CollectiveCall& call = calls.emplace_back();
    call.collective = each.collective;
    call.count = each.count;
    call.type = each.type;
    call.op = each.op;
    call.root = Rank{each.root};
    call.rank = r;
    call.ranks = ranks();
    call.options.symmetric = symmetric;
    call.options.factor = type_class(each.type) == TypeClass::floats ? 0.7 : 3;
    const bool weighted = each.op == kWeightedSum && call.traits().reduces;
    if (weighted) {
      const Bytes factor = factor_of_rank(each.type, r);
      call.op = ReduceOp::premul_sum;
      call.options.factor = 1;
      call.options.own_factor = add(factor, 0, false, "factor", r).memory->data();
      if (random_() % 2 == 0) call.own_factor = element_of(factor);
    }
    const std::size_t out_shift = symmetric ? common_shift : random_shift();
    const Bytes& input = inputs.emplace_back(
        random_bytes(call.passes_in() ? bytes_of(call.traits().in, call) : 0, each.type, random_));
    // Symmetric memory has the same size on all ranks.
    const std::size_t out_bytes = call.gets_out() || symmetric ? bytes_of(call.traits().out, call) : 0;
    const std::optional<int> place = call.in_place_offset();
    if (each.in_place && place && !input.empty() && call.gets_out()) {
      const std::ptrdiff_t offset = *place * static_cast<std::ptrdiff_t>(call.block_bytes());
      Bytes both = out_bytes > input.size() ? Bytes(out_bytes) : input;
      if (out_bytes > input.size()) std::ranges::copy(input, both.begin() + offset);
      Checked& memory = add(both, out_shift, true, "memory", r);
      outputs.push_back(&memory);
      call.in = memory.memory->data() + std::max<std::ptrdiff_t>(offset, 0);
      call.out = memory.memory->data() - std::min<std::ptrdiff_t>(offset, 0);
      continue;
    }
    if (!input.empty()) call.in = add(input, random_shift(), false, "input", r).memory->data();
    outputs.push_back(nullptr);
    if (out_bytes == 0) continue;
    outputs.back() =
        &add(Bytes(out_bytes, static_cast<std::byte>(random_() % 255)), out_shift, true, "output", r);
    call.out = outputs.back()->memory->data();
  }
  std::vector<Bytes> summands = inputs;
  for (const CollectiveCall& call : calls) {
    if (call.options.own_factor == nullptr) continue;
    Bytes& summand = summands[static_cast<std::size_t>(call.rank)];
    summand = product(call.type, summand, factor_of_rank(call.type, call.rank));
  }
  for (const CollectiveCall& call : calls) {
    Checked* const output = outputs[static_cast<std::size_t>(call.rank)];
    if (!call.gets_out() || output == nullptr) continue;
    std::ranges::copy(result_of(call, summands),
                      output->expected.begin() + (call.out_at() - output->memory->data()));
    for (int r = 0; r < ranks(); ++r) {
      if (call.traits().reduces) {
        output->received = {{call.out_at(), call.block_bytes()}};
      } else if (r != call.rank && !call.block_from(r).empty()) {
        output->received.push_back(call.block_from(r));
      }
    }
  }
  return calls;
}

cuda::SymmetricOutput CheckedCalls::output_of(std::span<const CollectiveCall> calls) {
  cuda::SymmetricOutput output{.window = 0x1000};
  std::ranges::transform(calls, output.outs.begin(),
                         [](const CollectiveCall& call) { return call.out_at(); });
  return output;
}

void CheckedCalls::queue(const Case& each) {
  const std::vector<CollectiveCall> calls = prepare(each);
  const cuda::SymmetricOutput output = output_of(calls);
  for (const CollectiveCall& call : calls) {
    cuda::Launcher& launcher = gpus_.launcher(call.rank);
    each.algorithm->run(launcher,
                        call.options.own_factor == nullptr ? call : cuda::exchange_factors(launcher, call),
                        each.limits, call.options.symmetric ? &output : nullptr);
  }
}

void CheckedCalls::queue_fused(std::span<const Case> cases) {
  std::vector<std::vector<CollectiveCall>> by_rank(static_cast<std::size_t>(ranks()));
  for (const Case& each : cases) {
    for (const CollectiveCall& call : prepare(each))
      by_rank[static_cast<std::size_t>(call.rank)].push_back(call);
    pending_.back().name += ", fused";
  }
  for (int r = 0; r < ranks(); ++r) cuda::run_fused(gpus_.launcher(r), by_rank[static_cast<std::size_t>(r)]);
}

void CheckedCalls::queue_exchange(const std::vector<std::vector<std::size_t>>& bytes) {
  pending_.push_back({.name = "exchange"});
  const auto n = static_cast<std::size_t>(ranks());
  std::vector<Transfers> transfers(n);
  std::vector<Bytes> outputs(n);
  for (std::size_t from = 0; from < n; ++from) {
    Bytes input;
    for (std::size_t to = 0; to < n; ++to) {
      const Bytes block = random_bytes(bytes[from][to], DType::u8, random_);
      input.insert(input.end(), block.begin(), block.end());
      outputs[to].insert(outputs[to].end(), block.begin(), block.end());
    }
    const std::byte* in = add(input, random_() % 16, false, "input", static_cast<int>(from)).memory->data();
    for (std::size_t to = 0; to < n; ++to) {
      transfers[from][to].in = std::exchange(in, in + bytes[from][to]);
      transfers[from][to].sent = bytes[from][to];
    }
  }
  for (std::size_t to = 0; to < n; ++to) {
    Checked& output = add(Bytes(outputs[to].size()), random_() % 16, true, "output", static_cast<int>(to));
    output.expected = outputs[to];
    std::byte* out = output.memory->data();
    for (std::size_t from = 0; from < n; ++from) {
      transfers[to][from].out = std::exchange(out, out + bytes[from][to]);
      transfers[to][from].received = bytes[from][to];
    }
  }
  for (int r = 0; r < ranks(); ++r)
    cuda::exchange(gpus_.launcher(r), transfers[static_cast<std::size_t>(r)],
                   DeviceFault::phase_of(Collective::all_to_all_v));
}

bool CheckedCalls::has_failed(int rank) {
  return *gpus_.launcher(rank).call_guard().failed != 0;
}

void CheckedCalls::set_failed(int rank) {
  *gpus_.launcher(rank).call_guard().failed = 1;
}

std::string CheckedCalls::finish_with_failures(std::span<const int> ranks, Poison poison) {
  const std::deque<Pending> finished = std::exchange(pending_, {});
  gpus_.simulation().run();
  std::string report;
  for (const Pending& each : finished) {
    for (const Checked& checked : each.memory) {
      if (std::ranges::find(ranks, checked.rank) == ranks.end()) continue;
      Bytes expected = checked.expected;
      std::size_t poisoned = 0;
      if (has_failed(checked.rank)) {
        for (const std::span<const std::byte> part : checked.received) {
          const Bytes nan(each.element, std::byte{0xff});
          for (const std::byte* at = part.data(); at < part.data() + part.size(); at += each.element) {
            const bool is_nan = std::memcmp(at, nan.data(), each.element) == 0;
            poisoned += is_nan ? 1 : 0;
            if (is_nan || poison == Poison::whole)
              std::ranges::copy(nan, expected.begin() + (at - checked.memory->data()));
          }
        }
        if (poisoned == 0 && !checked.received.empty())
          report += fmt::format("{}: no NaN\n", checked.memory->name());
      }
      const std::string wrong = difference(*checked.memory, expected, each.element);
      if (!wrong.empty()) report += fmt::format("{}: {}\n", checked.memory->name(), wrong);
    }
  }
  return report;
}

std::string CheckedCalls::finish() {
  const std::deque<Pending> finished = std::exchange(pending_, {});
  try {
    gpus_.run();
  } catch (const std::exception& error) {
    std::string report = error.what();
    for (const Pending& each : finished) report += "\nqueued: " + each.name;
    return report;
  }
  std::string report;
  for (const Pending& each : finished) {
    for (const Checked& checked : each.memory) {
      const std::string wrong = difference(*checked.memory, checked.expected, each.element);
      if (!wrong.empty()) report += fmt::format("{}: {}\n", checked.memory->name(), wrong);
    }
  }
  return report;
}

}  // namespace onehop::ptx
