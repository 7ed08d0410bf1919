// SPDX-License-Identifier: Apache-2.0
// Those whose calls are measured: we, and NCCL where it is asked for.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "bench/bench.h"

namespace onehop::cli {

class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  [[nodiscard]] virtual const char* name() const = 0;
  [[nodiscard]] virtual bool ours() const = 0;
  /// Memory of the kind this one is measured with; as many bytes as it was made for, on every rank.
  [[nodiscard]] virtual std::byte* memory() const = 0;
  /// Queues one call; inside memory().
  virtual Algorithm call(const CollectiveCall& call, cudaStream_t stream) = 0;
  /// Collective, before the end: gives back what all ranks hold together.
  virtual void leave() {}
};

class NcclSession;

/// We first, then the peers that could be had.
class Contenders {
 public:
  /// Collective. A peer that cannot be had is a note; all ranks have the same ones.
  Contenders(Group& group, const BenchOptions& options, std::size_t bytes);
  ~Contenders();  ///< aborts unless closed
  Contenders(const Contenders&) = delete;
  Contenders& operator=(const Contenders&) = delete;

  [[nodiscard]] const std::vector<std::unique_ptr<Contender>>& all() const { return all_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] const std::string& nccl_version() const { return nccl_version_; }
  /// After a failure: ends what NCCL may have running, since it knows no deadlines and freeing memory waits
  /// for it.
  void abort() noexcept;
  /// Collective, at the end, when nothing is queued any more and no graph is left.
  void close();

 private:
  void add_nccl(Group& group, const BenchOptions& options, std::size_t bytes);

  std::shared_ptr<NcclSession> nccl_;
  std::vector<std::unique_ptr<Contender>> all_;
  std::vector<std::string> notes_;
  std::string nccl_version_;
};

}  // namespace onehop::cli
