// SPDX-License-Identifier: Apache-2.0
// What a rank has besides the mesh of its group: memory of the host in which all ranks make steps, and what differs
// between a rank on the host (host_rank.h) and one with a GPU (device_rank.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/buffer.h"
#include "onehop/tuning.h"

#include "backend/cuda/communicator.h"
#include "backend/host/step_barrier.h"
#include "group/mesh.h"
#include "memory/backend.h"
#include "memory/user_memory.h"
#include "os/timed_mutex.h"

namespace onehop {

/// The addresses of a symmetric buffer as mapped on this rank; each vector has one entry per rank.
struct BufferParts {
  std::vector<std::byte*> data;
  std::vector<std::uint32_t*> host_pads;    ///< see SymmetricBuffer::State::host_pad_bytes
  std::vector<std::uint32_t*> device_pads;  ///< SignalChannels; empty in a group of host ranks
  MappedBlocks owners;                      ///< owners of all mappings
  std::optional<UserMemory> registered{};   ///< this rank's data, if it is memory of the user
};

/// The range of this rank's part of a symmetric buffer, in which collectives look up pointers.
struct BufferRange {
  std::uint64_t number = 0;  ///< the same on all ranks, because buffers are created collectively and counted
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::weak_ptr<SymmetricBuffer::State> state;
};

/// Part of a Group::State, whose mesh it refers to.
class LocalRank {
 public:
  virtual ~LocalRank() = default;
  LocalRank(const LocalRank&) = delete;
  LocalRank& operator=(const LocalRank&) = delete;

  [[nodiscard]] Backend backend() const { return backend_; }
  /// The slowest kind of link between two of the ranks.
  [[nodiscard]] virtual Links links() const { return Links::nvlink; }

  /// For the log.
  struct Description {
    std::string device;
    std::string_view sharing;  ///< how ranks map each other's memory, for example "memfd"
    std::string calls;         ///< how they compare their calls, and what else is the same on all ranks
  };
  [[nodiscard]] virtual Description describe() const = 0;

  [[nodiscard]] host::StepBarrier& step_barrier() { return step_barrier_; }
  [[nodiscard]] const host::StepBarrier& step_barrier() const { return step_barrier_; }
  /// One step of the step barrier: waits for every rank. An error names the rank that did not arrive.
  void wait_for_all(os::CallDeadline& deadline, const char* phase) {
    for (int r = 0; r < mesh_.size(); ++r) {
      if (r != mesh_.rank().value) wait_for(r, deadline, phase);
    }
  }
  void wait_for(int r, os::CallDeadline& deadline, const char* phase) {
    IpcChannel::Mesh::Wait wait(mesh_);
    const auto check = [&] {
      wait.look(set_of(Rank{r}), deadline.arm());
      mesh_.check_for(
          Rank{r}, [&] { return step_barrier_.arrived(r); }, phase);
    };
    if (!step_barrier_.wait(r, deadline, check)) wait.throw_timeout(Rank{r}, deadline.timeout(), phase);
    if (step_barrier_.gave_up(r)) [[unlikely]]
      throw_given_up(Rank{r}, phase);
  }
  /// A call has failed: its data belongs to its caller again, and no rank may take it for a success.
  virtual void withdraw() { step_barrier_.give_up(); }

  /// Makes a failure that this rank's kernels report the group's. Inline, since every call begins with it: it costs a
  /// host rank the test of a pointer.
  void look_for_failure() {
    if (kernels_ != nullptr && kernels_->failed()) [[unlikely]]
      pass_on_failure();
  }
  /// Waits until `stream` has finished, and monitors the peers meanwhile.
  virtual void synchronize(Stream stream, Duration timeout) = 0;

  virtual void before_leaving() noexcept {}
  /// Frees the memory of the group that nothing can use any more. `turn` is the lock of the group's calls, which guards
  /// `buffers`.
  virtual void after_leaving(os::TimedMutex& /*turn*/, const std::vector<BufferRange>& /*buffers*/) noexcept {
  }

  /// Collective, within Group::State::call: allocates symmetric memory.
  [[nodiscard]] virtual BufferParts allocate(std::size_t bytes, const BufferOptions& options,
                                             const Deadline& deadline) = 0;
  /// Collective. If a rank passes a `refusal`, all ranks throw it.
  virtual SymmetricBuffer register_buffer(void* data, std::size_t bytes, const BufferOptions& options,
                                          const Error* refusal = nullptr) = 0;
  /// The mappings of a buffer are about to go. Memory that must stay is taken out of `owners`.
  virtual void before_unmapping(MappedBlocks& /*owners*/) noexcept {}
  /// For operations on streams, of which `what` is one. There are none on the host: Error{unsupported}.
  [[nodiscard]] virtual Communicator& require_communicator(const char* what) const = 0;

 protected:
  LocalRank(IpcChannel::Mesh& mesh, Backend backend) : mesh_(mesh), backend_(backend) {}

  /// Collective, for constructors: makes the memory for steps. Each rank's segment is a host::SegmentHeader, `between`
  /// bytes and the staging area. `initialize`, if any, receives this rank's, before another rank can map it.
  void make_segments(
      std::size_t between, std::size_t staging_bytes, const Deadline& deadline,
      const std::function<void(host::SegmentHeader& own, std::span<std::byte> staging)>& initialize = {});
  [[nodiscard]] static host::SegmentHeader& header_of(const Block& segment) {
    return *reinterpret_cast<host::SegmentHeader*>(segment.data());
  }
  [[nodiscard]] const MappedBlocks& host_segments() const { return host_segments_; }
  [[nodiscard]] const MemoryBackend& host_memory() const { return *host_memory_; }
  /// What describe() says of ranks that share memory in this way, unless they are in one process.
  [[nodiscard]] std::string_view sharing_by(std::string_view method) const {
    return one_process_ ? "one mapping in one process" : method;
  }
  /// `kernels` are those whose failure look_for_failure() finds.
  void set_kernels(const Communicator& kernels) { kernels_ = &kernels; }

  IpcChannel::Mesh& mesh_;

 private:
  virtual void pass_on_failure() noexcept {}
  /// Rank r reports this call as failed, so no other rank may report a success.
  [[noreturn]] void throw_given_up(Rank r, const char* phase);

  const Backend backend_;
  const Communicator* kernels_ = nullptr;  ///< none on the host
  const std::unique_ptr<MemoryBackend> host_memory_ = make_host_backend();
  MappedBlocks host_segments_;
  bool one_process_ = false;
  host::StepBarrier step_barrier_;
};

}  // namespace onehop
