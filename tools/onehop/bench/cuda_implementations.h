// SPDX-License-Identifier: Apache-2.0
// The implementations that a run measures: onehop, and NCCL on request.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "bench/bench.h"

namespace onehop::cli {

class Implementation {
 public:
  /// `ours`: it is onehop.
  explicit Implementation(std::string name, bool ours = false) : name_(std::move(name)), ours_(ours) {}
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  virtual ~Implementation() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool ours() const { return ours_; }
  /// The memory for input and output, of the size given at construction on every rank.
  [[nodiscard]] virtual std::byte* memory() const = 0;
  /// Queues one call, whose buffers lie in memory().
  virtual Algorithm call(const BenchCall& call, cudaStream_t stream) = 0;
  /// Collective, before the end: releases the resources that all ranks share.
  virtual void leave() {}

 private:
  const std::string name_;
  const bool ours_;
};

class NcclSession;

/// onehop first, then the available peers.
class Implementations {
 public:
  /// Collective. An unavailable peer becomes a note; all ranks have the same peers.
  Implementations(Group& group, const BenchOptions& options, std::size_t bytes);
  ~Implementations();  ///< aborts unless closed
  Implementations(const Implementations&) = delete;
  Implementations& operator=(const Implementations&) = delete;

  [[nodiscard]] const std::vector<std::unique_ptr<Implementation>>& all() const { return all_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// GpuMachine::nccl.
  [[nodiscard]] const std::string& nccl_versions() const { return nccl_versions_; }
  /// After a failure: ends running NCCL calls, which have no deadline and which freeing memory would wait for.
  void abort() noexcept;
  /// Collective, at the end, when no work is queued and no graph exists.
  void close();

 private:
  void add_nccl(Group& group, const BenchOptions& options, const NcclPeer& peer, std::size_t bytes);

  std::vector<std::shared_ptr<NcclSession>> sessions_;
  std::vector<std::unique_ptr<Implementation>> all_;
  std::vector<std::string> notes_;
  std::string nccl_versions_;
};

}  // namespace onehop::cli
