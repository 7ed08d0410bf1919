// SPDX-License-Identifier: Apache-2.0
// What passes between pairs of ranks: the host's side of pairs.cuh, relay.cuh and combine.cuh.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/cuda_driver.h"
#include "kernel/cuda/call_params.h"
#include "kernel/device_team.h"

namespace onehop {

/// One rank's links to its peers. Used by one thread at a time, with the device current.
class PairLinks {
 public:
  /// `segments` are those of all ranks and outlive this. `blocks`: how many of a launch can be resident on
  /// every rank's device. `dependent`: CudaLaunch::dependent.
  PairLinks(const CudaDriver& driver, DeviceId device, int rank, const std::vector<std::byte*>& segments,
            const cuda::SegmentLayout& layout, int blocks, bool dependent);

  void exchange(const Transfers& transfers, DeviceFault::Phase phase, const DeviceGuard& guard,
                CUstream queue);
  /// With more than 2 ranks: each rank but the root passes on a piece.
  void broadcast(const CollectiveCall& call, const DeviceGuard& guard, CUstream queue);
  /// `combine` is the kernel for the call's type and reduction.
  void reduce_scatter(const CollectiveCall& call, CUfunction combine, const DeviceGuard& guard,
                      CUstream queue);
  void reduce(const CollectiveCall& call, bool two_shot, CUfunction combine, const DeviceGuard& guard,
              CUstream queue);

 private:
  using Params = cuda::PairParams;

  [[nodiscard]] Params params(DeviceFault::Phase phase, const DeviceGuard& guard) const;
  /// From rank `from` to rank `to`, one of which is this one.
  [[nodiscard]] cuda::PairEnd link(int from, int to) const;
  /// What this rank sends to a peer, or receives from it. Where it is not the user's, `data` is null.
  void send(Params& params, int peer, const std::byte* data, std::size_t bytes, cuda::PairShape shape) const;
  void receive(Params& params, int peer, std::byte* data, std::size_t bytes, cuda::PairShape shape) const;
  /// In `most` streams.
  [[nodiscard]] cuda::PairShape chunks(std::size_t bytes, unsigned most) const;
  /// Has several warps share each stream of what is combined or relayed, where that pays: so many that they
  /// and `rows` other rows of streams are no more than may wait (call.cuh), in blocks of `warps`.
  void share_streams(Params& params, unsigned warps, int rows) const;
  /// Of a block.
  [[nodiscard]] unsigned combine_warps(const CollectiveCall& call) const;
  /// A kernel with rows as PairParams says, in blocks of `warps`, each of which has a stream; for so many
  /// packets, too.
  void launch_rows(CUfunction kernel, unsigned warps, std::size_t packets, Params& params, CUstream queue,
                   const char* what);
  void launch_combine(CUfunction combine, unsigned warps, Params& params, CUstream queue, const char* what);

  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }
  /// How many ranks `other` is to the right of `rank`, less one: the entry of PairParams::pairs.
  [[nodiscard]] std::size_t entry(int rank, int other) const {
    return static_cast<std::size_t>((other - rank - 1 + size()) % size());
  }
  [[nodiscard]] std::byte* at(int rank, std::size_t offset) const {
    return segments_[static_cast<std::size_t>(rank)] + offset;
  }
  [[nodiscard]] cuda::PairHead* head(int rank) const {
    return reinterpret_cast<cuda::PairHead*>(at(rank, layout_.pairs()));
  }

  const CudaDriver& driver_;
  const int rank_;
  const std::vector<std::byte*>& segments_;
  const cuda::SegmentLayout layout_;
  const unsigned blocks_;  ///< of all rows that have something to do, at most
  const bool dependent_;
  CUfunction exchange_ = nullptr;
  CUfunction relay_ = nullptr;
};

}  // namespace onehop
