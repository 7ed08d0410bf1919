// SPDX-License-Identifier: Apache-2.0
// For tests of the algorithms: records what a rank launches. All addresses are made up, and no GPU is needed.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "onehop/call.h"

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/copy_engine/copy_engine.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/algorithms/reduce_from_peers/reduce_from_peers.h"
#include "backend/cuda/algorithms/scatter_all_gather/scatter_all_gather.h"
#include "backend/cuda/algorithms/streaming/streaming.h"
#include "base/check.h"
#include "support/sanitizers.h"

namespace onehop::cuda::testing {

/// Addresses of one kind lie 2^40 bytes apart.
inline std::byte* made_up_address(int kind, int rank) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(16 * kind + rank + 1) << 40);
}
inline std::byte* segment_of(int rank) {
  return made_up_address(1, rank);
}
/// Far from the end on either side, for calls in place.
inline std::byte* input_of(int rank) {
  return made_up_address(2, rank) + (std::size_t{1} << 38);
}
inline std::byte* output_of(int rank) {
  return made_up_address(3, rank) + (std::size_t{1} << 38);
}

struct Launch {
  std::string_view kernel;
  LaunchShape shape;
  std::variant<PushParams, PushListParams, StreamParams, ChannelParams, WindowBarrierParams,
               ReducePieceParams>
      params;
};
struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  Lane lane = Lane::caller;
};
struct Recorded {
  Mark mark = Mark::first;
  Lane lane = Lane::caller;
};
struct Awaited {
  Mark mark = Mark::first;
  Lane lane = Lane::caller;
};
struct Written {
  std::byte* to = nullptr;
  std::uint32_t word = 0;
};
using Step = std::variant<Launch, Copy, Written, Recorded, Awaited>;

class RecordingLauncher final : public Launcher {
 public:
  static constexpr std::uint64_t kTimeout = 12345;

  RecordingLauncher(const GroupShape& shape, int rank, bool poison = true)
      : Launcher(shape, rank, segments(shape.ranks), poison) {}

  [[nodiscard]] DeviceGuard call_guard() const override {
    return {.failed = &reinterpret_cast<SegmentHead*>(segment(rank()))->failed,
            .notice = nullptr,
            .fault = nullptr,
            .timeout_ns = kTimeout};
  }
  void launch(const ReductionKernel& kernel, const CollectiveCall& /*call*/, const LaunchShape& shape,
              KernelParams params) override {
    add(kernel.name, shape, params.data);
  }
  void launch(const PlainKernel& kernel, const LaunchShape& shape, KernelParams params) override {
    add(kernel.name, shape, params.data);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Lane lane) override {
    steps_.emplace_back(Copy{to, from, bytes, lane});
  }
  void write(std::byte* to, std::uint32_t word) override { steps_.emplace_back(Written{to, word}); }
  void record(Mark mark, Lane lane) override { steps_.emplace_back(Recorded{mark, lane}); }
  void wait_for(Mark mark, Lane lane) override { steps_.emplace_back(Awaited{mark, lane}); }

  [[nodiscard]] const std::deque<Step>& steps() const { return steps_; }
  /// The steps of one kind.
  template <class T>
  [[nodiscard]] std::vector<T> all() const {
    std::vector<T> found;
    for (const Step& step : steps_) {
      if (const T* const each = std::get_if<T>(&step)) found.push_back(*each);
    }
    return found;
  }
  /// The parameters of all launches of a kernel that takes such parameters.
  template <class Params>
  [[nodiscard]] std::vector<Params> all_params() const {
    std::vector<Params> found;
    for (const Launch& launch : all<Launch>()) {
      if (const Params* const each = std::get_if<Params>(&launch.params)) found.push_back(*each);
    }
    return found;
  }

 private:
  static std::vector<std::byte*> segments(int ranks) {
    std::vector<std::byte*> all;
    for (int r = 0; r < ranks; ++r) all.push_back(segment_of(r));
    return all;
  }
  void add(std::string_view kernel, const LaunchShape& shape, const void* params) {
    Launch& launch = std::get<Launch>(steps_.emplace_back(Launch{kernel, shape, {}}));
    const auto keep = [&]<class Params>(Params& kept) { std::memcpy(&kept, params, sizeof kept); };
    if (kernel == "ll_one_shot_list") {
      keep(launch.params.emplace<PushListParams>());
    } else if (kernel.starts_with("streaming_")) {
      keep(launch.params.emplace<StreamParams>());
    } else if (kernel == "exchange_pair") {
      ChannelPairParams pair;
      keep(pair);
      launch.params.emplace<ChannelParams>(
          ChannelParams{static_cast<const ChannelCall&>(pair), {pair.pairs[0]}, {}});
    } else if (kernel == "exchange" || kernel == "scatter_all_gather" || kernel == "reduce_from_peers") {
      keep(launch.params.emplace<ChannelParams>());
    } else if (kernel == "window_barrier") {
      keep(launch.params.emplace<WindowBarrierParams>());
    } else if (kernel == "reduce_piece") {
      keep(launch.params.emplace<ReducePieceParams>());
    } else {
      require(kernel.starts_with("ll_") || kernel.starts_with("lamport_"), "unknown kernel {}", kernel);
      keep(launch.params.emplace<PushParams>());
    }
  }

  std::deque<Step> steps_;
};

/// A call of all ranks of a group.
struct Case {
  const DeviceAlgorithm* algorithm = nullptr;
  Collective collective = Collective::all_reduce;
  GroupShape shape{};
  DType type = DType::bf16;
  ReduceOp op = ReduceOp::sum;
  std::size_t bytes = 0;  ///< of a block; rounded up to an element
  int root = 0;
  std::size_t shift = 0;  ///< of inputs and outputs, in bytes
  bool in_place = false;
  LaunchLimits limits{};

  [[nodiscard]] CollectiveCall call(int rank) const {
    CollectiveCall call;
    call.collective = collective;
    call.count = ceil_div(bytes, size_of(type));
    call.type = type;
    call.op = op;
    call.root = Rank{root};
    call.rank = rank;
    call.ranks = shape.ranks;
    call.options.symmetric = algorithm->buffers == Buffers::symmetric;
    call.in = input_of(rank) + shift;
    call.out = output_of(rank) + shift;
    if (const std::optional<int> offset = call.in_place_offset(); in_place && offset)
      call.in = call.out_at() + static_cast<std::ptrdiff_t>(call.block_bytes()) * *offset;
    return call;
  }
  [[nodiscard]] std::size_t block_bytes() const { return call(0).block_bytes(); }
  [[nodiscard]] SymmetricOutput output() const {
    SymmetricOutput output{.window = 0x1000};
    for (int r = 0; r < shape.ranks; ++r) output.outs[static_cast<std::size_t>(r)] = call(r).out_at();
    return output;
  }
  [[nodiscard]] std::string describe() const {
    return fmt::format("{}, {} of {} bytes + {}, {}, {}, {} ranks, root {}, {} blocks, {} bytes of staging{}",
                       algorithm->name, to_string(collective), bytes, shift, to_string(type), to_string(op),
                       shape.ranks, root, shape.blocks, shape.staging_bytes, in_place ? ", in place" : "");
  }
};

/// What every rank launches.
using Launchers = std::vector<std::unique_ptr<RecordingLauncher>>;
inline Launchers run(const Case& each) {
  Launchers launchers;
  const SymmetricOutput output = each.output();
  for (int r = 0; r < each.shape.ranks; ++r) {
    launchers.push_back(std::make_unique<RecordingLauncher>(each.shape, r));
    each.algorithm->run(*launchers.back(), each.call(r), each.limits,
                        each.algorithm->buffers == Buffers::symmetric ? &output : nullptr);
  }
  return launchers;
}

inline std::size_t bytes_between(const std::byte* from, const std::byte* to) {
  return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
}

inline constexpr std::size_t kKiB = 1 << 10;
inline constexpr std::size_t kMiB = 1 << 20;

/// Groups of every size, with much scratch memory and many blocks or little of either.
inline std::vector<GroupShape> group_shapes() {
  std::vector<GroupShape> shapes;
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    shapes.push_back({.ranks = ranks, .staging_bytes = 16 << 20, .blocks = 132});
    shapes.push_back({.ranks = ranks, .staging_bytes = 64 << 10, .blocks = ranks == 5 ? 1u : 33u});
    shapes.push_back({.ranks = ranks, .staging_bytes = (10 << 20) + 12345, .blocks = 78});
    shapes.push_back({.ranks = ranks, .staging_bytes = 16 << 20, .blocks = 264});
  }
  return shapes;
}

/// Calls that the algorithm can carry: of many sizes, types and alignments.
template <class Body>
void for_each_case(const DeviceAlgorithm& algorithm, Body&& body) {
  constexpr std::size_t kSizes[] = {1,      2,          15,      16,       17,       100,
                                    1000,   1024,       1032,    4 * kKiB, 33'333,   64 * kKiB,
                                    65'537, 256 * kKiB, 262'145, kMiB + 3, 4 * kMiB, 4 * kMiB + 1};
  constexpr std::size_t kLongSizes[] = {9'999'991, 64 * kMiB, 300 * kMiB + 4321};
  const bool pushes = algorithm.name.starts_with("ll_") || algorithm.name.starts_with("lamport_");
  const auto types = algorithm.types == TypeClass::floats ? std::array{DType::bf16, DType::e4m3}
                                                          : std::array{DType::u8, DType::i64};
  // With a sanitizer every fifth. The loops over sizes have 36 or 42 cases, so that each sees others.
  constexpr int kStride = onehop::testing::kSanitized ? 5 : 1;
  int count = 0;
  Case each{.algorithm = &algorithm};
  const auto with_sizes = [&](const auto& sizes) {
    for (const std::size_t bytes : sizes) {
      each.bytes = bytes;
      for (const std::size_t shift : {std::size_t{0}, size_of(each.type)}) {
        each.shift = shift;
        if (count++ % kStride == 0) body(std::as_const(each));
      }
    }
  };
  for (int number = 0; number < kCollectiveCount; ++number) {
    each.collective = static_cast<Collective>(number);
    const CollectiveTraits& traits = traits_of(each.collective);
    if (!algorithm.carries(each.collective, TypeClass::floats, Buffers::symmetric)) continue;
    for (const GroupShape& shape : group_shapes()) {
      if (!algorithm.takes(shape.ranks)) continue;
      each.shape = shape;
      for (const DType type : types) {
        each.type = type;
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
          if (op != ReduceOp::sum && !traits.reduces) continue;
          each.op = op;
          for (const int root : {0, shape.ranks - 1}) {
            if (root != 0 && !traits.has_root()) continue;
            each.root = root;
            with_sizes(kSizes);
            if (!pushes) with_sizes(kLongSizes);  // these would be thousands of launches
          }
        }
      }
    }
  }
}

/// Stops at the first case in which a check fails, and names it. Earlier failures of the test do not count, so that every
/// algorithm of a test is checked.
template <class Body>
void for_each_case_until_failure(const DeviceAlgorithm& algorithm, Body&& body) {
  const auto failures = [] {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  };
  const int before = failures();
  for_each_case(algorithm, [&](const Case& each) {
    if (failures() != before) return;
    body(each);
    if (failures() != before) ADD_FAILURE() << each.describe();
  });
}

}  // namespace onehop::cuda::testing
