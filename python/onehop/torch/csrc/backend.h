// SPDX-License-Identifier: Apache-2.0
// A process group that onehop carries: all calls of torch.distributed on a group of one machine.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "call.h"
#include "engine.h"
#include "executor.h"
#include "point_to_point.h"
#include "renamed.h"
#include "work.h"

namespace onehop_torch {

/// What torch's split_group copies from the parent, changes, and passes to Backend::split. A type of its own,
/// because that of torch has no copies in Python.
struct GroupOptions final : c10d::Backend::Options {
  using Options::Options;
};

/// Whether this thread's collective has got as far as its engine (Backend::attempt).
inline thread_local constinit bool t_begun = false;

/// One rank of a process group. Serves CPU tensors and those of one device, by two groups of onehop, which
/// are joined when the first such tensor arrives (the device's also by eagerConnectSingleDevice).
///
/// CPU tensors: a call with opts.asyncOp == false runs in the caller's thread. Asynchronous collectives run
/// in order on one thread of this object, sends and receives on threads of their pairs (point_to_point.h).
/// Device tensors: see StreamWork. No threads.
///
/// Thread-safe as far as the ranks make the same calls in the same order. Methods are called without the GIL.
class Backend final : public RenamedMethods {
 public:
  using TensorLists = std::vector<Tensors>;
  using Allocate = std::function<at::Tensor(int64_t size, const at::TensorOptions& options)>;

  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
          Membership members, JoinSettings settings);
  ~Backend() override;

  const std::string getBackendName() const override { return "onehop"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ms_ = timeout.count(); }

  void eagerConnectSingleDevice(at::Device device) override { group(device); }

  /// A collective that the other ranks make.
  struct Collective {
    onehop_collective_t kind;
    at::Device device;
    bool async;
  };
  /// Makes a collective by `make`. If that throws before this rank has begun the call, because an argument is wrong, the
  /// others get that error from theirs: otherwise this rank's next call would meet the one that they are in.
  /// `describe` returns the Collective.
  template <class Make, class Describe>
  WorkPtr attempt(const Make& make, const Describe& describe) {
    t_begun = false;
    try {
      return make();
    } catch (...) {
      if (!t_begun) refuse(describe(), std::current_exception());
      throw;
    }
  }
  /// Waits for the others as the call would: not if it is asynchronous, nor on a device.
  void refuse(const Collective& collective, const std::exception_ptr& error) noexcept;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& options) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                            Splits& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;

  void setSequenceNumberForGroup() override {}  // begins at 0 on all ranks
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  /// Throws if one of the groups has failed. Never waits.
  void check();

  /// Makes the calls of all ranks on this process group fail.
  void abort() override { abort("the process group was aborted"); }
  void abort(const std::string& reason);
  /// Finishes what was started and leaves. Later calls fail. Throws if a group has failed and nothing has
  /// thrown that before.
  void shutdown() override;
  /// shutdown() for a process that exits without destroy_process_group: peers that still wait for this rank
  /// learn of it now, and unfinished calls of this rank end. Throws as shutdown() does.
  void shutdown_at_exit();

  /// Ends what this rank does on the process group, by `abort` or by waiting, and then the group. Throws unless the ranks
  /// that are left are `kept`; may be repeated then. Collective among them.
  void find_survivors(const std::vector<int>& kept, bool abort);
  /// After find_survivors: moves the groups of the ranks that are left to `next`, which has no others.
  void give_survivors(Backend& next);

  bool supportsTensorAlloc(c10::DeviceIndex) override { return allocate_ != nullptr; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void set_allocator(Allocate allocate) { allocate_ = std::move(allocate); }

  /// The onehop group that serves `device`, joined if necessary. nullptr in a process group of one rank.
  /// Valid while this object lives.
  onehop_group_t* group(at::Device device) {
    check_open();
    return engine(device).group();
  }

 private:
  /// What serves one kind of device.
  struct Lane {
    std::mutex joining;
    std::shared_ptr<Engine> owner;          ///< set once, under `joining`
    std::atomic<Engine*> engine = nullptr;  ///< owner.get(), for calls
    std::optional<at::Device> device;       ///< of `owner`
    std::optional<c10::Stream> stream;      ///< for asynchronous calls on a device
    std::string failure;                    ///< of joining; later calls repeat it
  };
  struct Submission {
    c10d::OpType type;
    const char* title;
    bool async;
    std::chrono::milliseconds timeout;
    Tensors outputs;
    bool host_waits = false;
  };

  Lane& lane(at::Device device) { return device.is_cpu() ? host_ : device_; }
  Engine& engine(at::Device device);
  /// The one that serves this kind of device, joined if necessary.
  Engine& engine_of_kind(at::Device device);
  Engine& join(Lane& lane, at::Device device);
  static void open(Lane& lane, std::shared_ptr<Engine> engine, at::Device device);
  at::Device barrier_device(const c10d::BarrierOptions& options);
  int64_t milliseconds(std::chrono::milliseconds timeout) const {
    return timeout.count() > 0 ? timeout.count() : timeout_ms_.load();
  }

  /// Call builders: check the arguments and describe the call.
  Call build_all_gather(const at::Tensor& output, const at::Tensor& input) const;
  Call build_all_gather_list(const Tensors& outputs, const at::Tensor& input) const;
  Call build_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                            const c10d::ReduceOp& op) const;
  Call build_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  void set_reduction(Call& call, const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  int check_root(int64_t root) const;
  void check_open() const;

  /// The checks are over: from here on, errors are those of the call.
  void begin() {
    ++sequence_;
    t_begun = true;
  }
  WorkPtr submit(Call call, Submission submission);
  WorkPtr submit(std::vector<Call> calls, Submission submission);
  WorkPtr submit_host(std::vector<Call> calls, Submission submission, c10::intrusive_ptr<HostWork> work);
  WorkPtr submit_device(std::vector<Call> calls, Submission submission, at::Device device);
  static void run_all(Engine& engine, const std::vector<Call>& calls, void* stream, int64_t timeout_ms);

  c10::intrusive_ptr<c10d::Store> store_;
  Membership members_;
  JoinSettings settings_;
  std::atomic<int64_t> timeout_ms_;
  Cancellation cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<uint64_t> sequence_ = 0;
  std::atomic<bool> closed_ = false;
  Lane host_;
  Lane device_;
  Executor executor_;  ///< asynchronous collectives on host tensors
  PointToPoint point_to_point_;
  Allocate allocate_;

  /// startCoalescing to endCoalescing: calls of one thread, collected.
  bool coalescing_ = false;
  std::vector<Call> coalesced_;
  Tensors coalesced_outputs_;
  c10::intrusive_ptr<HostWork> coalesced_work_;
};

}  // namespace onehop_torch
