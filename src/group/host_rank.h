// SPDX-License-Identifier: Apache-2.0
// What a rank on the host has besides the mesh and the steps of its group: messages between two ranks, and copies straight
// out of other ranks' memory, where the ranks can read it and gain by it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "backend/host/copy_trial.h"
#include "backend/host/peer_memory.h"
#include "backend/host/point_to_point.h"
#include "group/process.h"
#include "memory/backend.h"

namespace onehop {

/// Part of a Group::State. The other ranks read from it while the group forms, so it stays where it is.
class HostRank {
 public:
  /// `staging_bytes`: of each rank's staging area.
  HostRank(int size, std::size_t staging_bytes)
      : pair_bytes_(host::PointToPoint::area_bytes(size, staging_bytes)), staging_bytes_(staging_bytes) {}
  HostRank(const HostRank&) = delete;
  HostRank& operator=(const HostRank&) = delete;

  /// Bytes between the header of a rank's segment and its staging area.
  [[nodiscard]] std::size_t pair_bytes() const { return pair_bytes_; }
  /// Fills in this rank's segment, before another rank can map it.
  void announce(std::byte* segment);
  /// Collective, when all segments are mapped and the group can make steps.
  void connect(Group::State& group, const MappedBlocks& segments, const Deadline& deadline);

  [[nodiscard]] host::PointToPoint& pairs() { return pairs_; }
  [[nodiscard]] const host::SingleCopy& single_copy() const { return single_copy_; }
  /// Memory for input that a call makes of its caller's. It stays where it is until the next such call, since the other ranks
  /// may read it until withdraw().
  [[nodiscard]] std::byte* made_input(std::size_t bytes);
  /// A call has failed: its data belongs to its caller again.
  void withdraw() { single_copy_.withdraw(); }

 private:
  /// Collective: finds out whether the ranks can read each other's memory.
  [[nodiscard]] host::SingleCopy try_single_copy(Group::State& group, const MappedBlocks& segments,
                                                 const Deadline& deadline) const;
  /// Why private memory should not be read although it can be; empty if it should. Collective.
  [[nodiscard]] std::string find_slowness(Group::State& group, std::span<const host::ProcessNotice> notices,
                                          const Deadline& deadline) const;

  const std::size_t pair_bytes_;
  const std::size_t staging_bytes_;
  const os::Id process_ = process_id();   ///< read by the other ranks: host::ProcessNotice::sample
  std::optional<host::CopyTrial> trial_;  ///< read by the other ranks in connect()
  host::PointToPoint pairs_;
  host::SingleCopy single_copy_;
  std::unique_ptr<std::byte[]> made_input_;
  std::size_t made_input_bytes_ = 0;
};

}  // namespace onehop
