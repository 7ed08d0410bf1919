// SPDX-License-Identifier: Apache-2.0
// Point-to-point data between ranks: the host side of pairs.cuh, relay.cuh and combine.cuh.
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
  /// `segments` has those of all ranks; they must outlive this object. `blocks`: number of blocks of a launch
  /// that can be resident on every rank's device. `dependent`: CudaLaunch::dependent.
  PairLinks(const CudaDriver& driver, DeviceId device, int rank, const std::vector<std::byte*>& segments,
            const cuda::SegmentLayout& layout, int blocks, bool dependent);

  void exchange(const Transfers& transfers, DeviceFault::Phase phase, const DeviceGuard& guard,
                CUstream queue);
  /// For more than 2 ranks: each rank but the root relays a piece.
  void broadcast(const CollectiveCall& call, const DeviceGuard& guard, CUstream queue);
  /// `combine` is the kernel for the call's type and reduction.
  void reduce_scatter(const CollectiveCall& call, CUfunction combine, const DeviceGuard& guard,
                      CUstream queue);
  void reduce(const CollectiveCall& call, bool two_shot, CUfunction combine, const DeviceGuard& guard,
              CUstream queue);

 private:
  using Params = cuda::PairParams;

  [[nodiscard]] Params params(DeviceFault::Phase phase, const DeviceGuard& guard) const;
  /// The direction from rank `from` to rank `to`; one of them is this rank.
  [[nodiscard]] cuda::PairEnd link(int from, int to) const;
  /// Sets what this rank sends to a peer, or receives from it. If the data is not in the user's memory,
  /// `data` is null.
  void send(Params& params, int peer, const std::byte* data, std::size_t bytes, cuda::PairShape shape) const;
  void receive(Params& params, int peer, std::byte* data, std::size_t bytes, cuda::PairShape shape) const;
  /// Cuts into chunks for at most `most` streams.
  [[nodiscard]] cuda::PairShape chunks(std::size_t bytes, unsigned most) const;
  /// Lets several warps share each stream of combined or relayed data where that pays off. These warps and
  /// `rows` other rows of streams stay within the number that may wait (call.cuh), in blocks of `warps`
  /// warps.
  void share_streams(Params& params, unsigned warps, int rows) const;
  /// The largest number of warps in a block of the combine kernel for this call.
  [[nodiscard]] unsigned combine_warps(const CollectiveCall& call) const;
  /// Launches a kernel with rows as in PairParams, in blocks of `warps` warps with a stream each. The grid
  /// also has threads for `packets` packets.
  void launch_rows(CUfunction kernel, unsigned warps, std::size_t packets, Params& params, CUstream queue,
                   const char* what);
  void launch_combine(CUfunction combine, unsigned warps, Params& params, CUstream queue, const char* what);

  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }
  /// The entry of PairParams::pairs for `other`: its distance to the right of `rank`, minus one.
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
  const unsigned blocks_;  ///< maximum number of blocks of all rows that have work
  const bool dependent_;
  CUfunction exchange_ = nullptr;
  CUfunction relay_ = nullptr;
};

}  // namespace onehop
