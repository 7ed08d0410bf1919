// SPDX-License-Identifier: Apache-2.0
// A rank on the host: messages between two ranks, and copies straight out of other ranks' memory, where the ranks can read
// it and gain by it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/host/copy_trial.h"
#include "backend/host/peer_memory.h"
#include "backend/host/point_to_point.h"
#include "group/local_rank.h"
#include "group/process.h"
#include "group/state.h"

namespace onehop {

/// The other ranks read from it while the group forms, so it stays where it is.
class HostRank final : public LocalRank {
 public:
  /// Collective. `staging_bytes`: of each rank's staging area.
  HostRank(IpcChannel::Mesh& mesh, std::size_t staging_bytes, const Deadline& deadline);

  /// For code that serves host ranks only.
  [[nodiscard]] static HostRank& of(const Group::State& group) {
    return static_cast<HostRank&>(group.local());
  }

  [[nodiscard]] host::PointToPoint& pairs() { return pairs_; }
  [[nodiscard]] const host::SingleCopy& single_copy() const { return single_copy_; }
  /// Memory for input that a call makes of its caller's. It stays where it is until the next such call, since the other ranks
  /// may read it until withdraw().
  [[nodiscard]] std::byte* made_input(std::size_t bytes);

  [[nodiscard]] Description describe() const override;
  void withdraw() override;
  void synchronize(Stream stream, Duration timeout) override;
  [[nodiscard]] BufferParts allocate(std::size_t bytes, const BufferOptions& options,
                                     const Deadline& deadline) override;
  SymmetricBuffer register_buffer(void* data, std::size_t bytes, const BufferOptions& options,
                                  const Error* refusal) override;
  [[nodiscard]] Communicator& require_communicator(const char* what) const override;

 private:
  /// Fills in what other ranks need to read this one's memory. `staging` is for a trial.
  void announce(host::SegmentHeader& own, std::span<std::byte> staging);
  /// Collective: finds out whether the ranks can read each other's memory.
  [[nodiscard]] host::SingleCopy try_single_copy(const Deadline& deadline);
  /// Why private memory should not be read although it can be; empty if it should. Collective.
  [[nodiscard]] std::string find_slowness(std::span<const host::ProcessNotice> notices,
                                          const Deadline& deadline);

  const os::Id process_ = process_id();   ///< read by the other ranks: host::ProcessNotice::sample
  std::optional<host::CopyTrial> trial_;  ///< read by the other ranks while the group forms
  host::PointToPoint pairs_;
  host::SingleCopy single_copy_;
  std::unique_ptr<std::byte[]> made_input_;
  std::size_t made_input_bytes_ = 0;
};

}  // namespace onehop
