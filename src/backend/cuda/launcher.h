// SPDX-License-Identifier: Apache-2.0
// What the algorithms of GPUs use to run a call: the group's scratch memory, and a way to launch kernels and
// copies. Plain C++, so that tests can record what an algorithm launches without a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "onehop/device/view.h"
#include "onehop/tuning.h"
#include "onehop/types.h"

#include "backend/cuda/scratch_layout.h"
#include "call/call.h"
#include "call/scale.h"

namespace onehop::cuda {

/// A kernel of an algorithms/*/kernels.cuh. There is one for every element type of the class, reduction and
/// kernel_ranks(), or for one number of ranks only.
struct ReductionKernel {
  const char* name;
  TypeClass types = TypeClass::any;
  int ranks = 0;  ///< 0: kernel_ranks()

  /// The last part of its name.
  [[nodiscard]] constexpr int variant(int group_ranks, bool sum) const {
    return ranks != 0 ? ranks : kernel_ranks(group_ranks, sum);
  }
};

/// The kernels of a reduction: those of sums, scaled or not, and those of all others, which get its number as a parameter.
inline constexpr std::array<std::string_view, 2> kKernelOps{"sum", "other"};
[[nodiscard]] inline std::size_t kernel_of(ReduceOp op) {
  return is_sum(op) ? 0 : 1;
}

/// Any other kernel, of an algorithms/*/kernels.cu.
struct PlainKernel {
  const char* name;
};

struct LaunchShape {
  unsigned grid = 1;  ///< blocks per row
  unsigned rows = 1;
  unsigned block = 1;  ///< threads per block
  /// The kernel waits for the previous one by itself (wait_for_previous), so it may start before that ends.
  bool waits_for_previous = true;
  bool lets_next_start = false;  ///< as soon as it runs: `early` of its parameters (sync/call.cuh)
};

/// Whether a kernel may be launched as a programmatic dependent of the one before it. `behind_early`: that one lets it start
/// while its own blocks may still wait for peers. A kernel whose additional blocks only copy can take more than half of the
/// device. Waiting there, it could keep out another group's kernel that a peer must run before it answers the earlier one.
[[nodiscard]] constexpr bool may_start_early(const LaunchShape& shape, unsigned group_blocks,
                                             bool behind_early) {
  const std::size_t threads = std::size_t{shape.grid} * shape.rows * shape.block;
  const bool takes_half = threads <= std::size_t{group_blocks} * max_threads(2);
  return shape.waits_for_previous && (takes_half || !behind_early);
}

/// The parameters that a kernel takes by value.
struct KernelParams {
  template <class Params>
  KernelParams(const Params& params)  // NOLINT(google-explicit-constructor)
      : data(&params), bytes(sizeof params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= 4096);
  }
  const void* data;
  std::size_t bytes;
};

/// The streams of a call: the caller's, and one of the group for copies that run beside it.
enum class Lane : std::uint8_t { caller, side };
/// Points in a lane that the other lane can wait for.
enum class Mark : std::uint8_t { first, second, third };
inline constexpr std::size_t kMarks = 3;

/// One rank of a group, while one call is being queued. All functions throw Error{driver} if the driver
/// refuses.
class Launcher {
 public:
  /// `segments`: the scratch memory of every rank. `poison`: fill outputs of failed calls with NaN.
  Launcher(const GroupShape& shape, int rank, std::vector<std::byte*> segments, bool poison = true)
      : shape_(shape), rank_(rank), segments_(std::move(segments)), layout_(shape), poison_(poison) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  virtual ~Launcher() = default;

  [[nodiscard]] const GroupShape& shape() const { return shape_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return shape_.ranks; }
  /// The rank `step` places to the right of this one.
  [[nodiscard]] int right(int step) const { return (rank_ + step) % size(); }
  /// A region of the scratch memory of rank r.
  [[nodiscard]] std::byte* scratch(const ScratchRegion& region, int r) const {
    return segment(r) + layout_.offset(region);
  }
  template <class Head>
  [[nodiscard]] Head* head(const ScratchRegion& region, int r) const {
    return reinterpret_cast<Head*>(scratch(region, r));
  }
  /// The scratch memory of rank r, which begins with a SegmentHead.
  [[nodiscard]] std::byte* segment(int r) const { return segments_[static_cast<std::size_t>(r)]; }
  /// Whether a failed call fills output of this type with NaN. Integers have no value that marks them as invalid.
  [[nodiscard]] bool poisons(DType type) const { return poison_ && type_class(type) == TypeClass::floats; }
  /// For the waits of the call's kernels.
  [[nodiscard]] virtual DeviceGuard call_guard() const = 0;

  /// Launches a kernel in the caller's stream. `call` selects the kernel by type and reduction.
  virtual void launch(const ReductionKernel& kernel, const CollectiveCall& call, const LaunchShape& shape,
                      KernelParams params) = 0;
  virtual void launch(const PlainKernel& kernel, const LaunchShape& shape, KernelParams params) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes, Lane lane) = 0;
  /// Writes 4 aligned bytes of this rank's memory, in the caller's stream.
  virtual void write(std::byte* to, std::uint32_t word) = 0;
  virtual void record(Mark mark, Lane lane) = 0;
  /// Makes later work in the lane wait for the mark.
  virtual void wait_for(Mark mark, Lane lane) = 0;

 private:
  const GroupShape shape_;
  const int rank_;
  const std::vector<std::byte*> segments_;
  const ScratchLayout layout_;
  const bool poison_;
};

}  // namespace onehop::cuda
