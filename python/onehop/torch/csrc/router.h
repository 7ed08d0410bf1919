// SPDX-License-Identifier: Apache-2.0
// The backend "onehop" as torch sees it: onehop where it can carry the process group, another engine elsewhere.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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

#include "backend.h"
#include "placement.h"
#include "renamed.h"

namespace onehop_torch {

/// One rank of a process group. Hands each call to the engine that serves the device of its tensors: onehop's
/// Backend, or, for groups that onehop cannot carry, a backend of torch such as ProcessGroupGloo. The engine
/// is chosen at the first call for CPU tensors, and at the first for those of a device. All ranks choose
/// alike, see Placement. From then on a call costs a load and a virtual call more than the engine's own.
///
/// Thread-safe as the engines are. Methods are called without the GIL.
class Router final : public RenamedMethods {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using TensorLists = std::vector<Tensors>;

  /// `fallback`: "nccl", "gloo" or "none".
  static c10::intrusive_ptr<Router> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           std::chrono::milliseconds timeout, Membership members,
                                           JoinSettings settings, std::string fallback);
  Router(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
         Membership members, JoinSettings settings, std::string fallback, Placement placement);
  ~Router() override;

  const std::string getBackendName() const override { return "onehop"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return onehop_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override;

  bool supportsSplitting() const override { return true; }
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const c10::intrusive_ptr<Options>& options) override;
  // Torch 2.10 has these; see backend.h for why there is no `override`.
  // NOLINTBEGIN(modernize-use-override)
  bool supportsShrinking() const { return true; }
  /// The process group of the ranks that are not excluded, by their numbers in this one, which fails. They all call it, and
  /// only they. Throws if a rank that is not excluded is gone, or an excluded one is still there; may be
  /// repeated then.
  BackendPtr shrink(const std::vector<int64_t>& excluded, int flags,
                    const c10::intrusive_ptr<Options>& options);
  // NOLINTEND(modernize-use-override)
  void eagerConnectSingleDevice(at::Device device) override {
    route(device, timeout()).eagerConnectSingleDevice(device);
  }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_BROADCAST, on(tensors), &c10d::Backend::broadcast, options, tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_REDUCE, on(tensors), &c10d::Backend::allreduce, options, tensors);
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_REDUCE, on(tensors), &c10d::Backend::allreduce_sparse, options,
                   tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_REDUCE, on(tensors), &c10d::Backend::allreduce_coalesced, options,
                   tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_REDUCE, on(tensors), &c10d::Backend::reduce, options, tensors);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_GATHER, on(inputs), &c10d::Backend::allgather, options, outputs,
                   inputs);
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_GATHER, on(inputs), &c10d::Backend::allgather_coalesced, options,
                   outputs, inputs);
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_GATHER, on(inputs), &c10d::Backend::gather, options, outputs, inputs);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_SCATTER, on(outputs), &c10d::Backend::scatter, options, outputs, inputs);
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_REDUCE_SCATTER, on(outputs), &c10d::Backend::reduce_scatter, options,
                   outputs, inputs);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_TO_ALL, on(inputs), &c10d::Backend::alltoall, options, outputs,
                   inputs);
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_GATHER, input.device(), &c10d::Backend::_allgather_base, options,
                   output, input);
  }
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_GATHER, on(inputs), &c10d::Backend::allgather_into_tensor_coalesced,
                   options, outputs, inputs);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_REDUCE_SCATTER, input.device(), &c10d::Backend::_reduce_scatter_base,
                   options, output, input);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_REDUCE_SCATTER, on(inputs),
                   &c10d::Backend::reduce_scatter_tensor_coalesced, options, outputs, inputs);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                            Splits& input_splits, const c10d::AllToAllOptions& options) override {
    return collect(ONEHOP_COLLECTIVE_ALL_TO_ALL, input.device(), &c10d::Backend::alltoall_base, options,
                   output, input, output_splits, input_splits);
  }
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    return transfer(tensors, &c10d::Backend::send, destination, tag);
  }
  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return transfer(tensors, &c10d::Backend::recv, source, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return transfer(tensors, &c10d::Backend::recvAnysource, tag);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return pass(options.device.value_or(at::kCPU), options.timeout,
                [&](c10d::Backend& engine) { return engine.barrier(options); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    route(at::kCPU, options.timeout).monitoredBarrier(options, wait_all_ranks);
  }

  void setSequenceNumberForGroup() override {}  // begins at 0 on all ranks
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;

  /// Throws if a group of onehop's has failed. Never waits.
  void check() { onehop_->check(); }
  /// The same for all process groups of this process.
  static void check_all();

  void abort() override;
  void shutdown() override;
  /// Shuts down all process groups of a process that exits without destroy_process_group. Waits for no peer.
  /// Returns the failures that nothing has thrown.
  static std::vector<std::string> shutdown_all_at_exit();

  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  void set_allocator(onehop_torch::Backend::Allocate allocate) {
    onehop_->set_allocator(std::move(allocate));
  }

  /// The onehop group that serves `device`; see Backend::group. ValueError if another engine does.
  onehop_group_t* group(at::Device device);
  /// The name of the engine that serves `device`: "onehop", "nccl" or "gloo". Waits until all ranks have
  /// created the process group.
  std::string engine(at::Device device) { return route(device, timeout()).getBackendName(); }

 private:
  /// What serves one kind of device.
  struct Lane {
    std::mutex choosing;
    std::atomic<c10d::Backend*> engine = nullptr;  ///< onehop_, `other` or none yet
    BackendPtr other;                              ///< set once, under `choosing`, before `has_other`
    std::atomic<bool> has_other = false;
    std::string failure;  ///< of making `other`; later calls repeat it
  };

  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms_.load()); }
  Lane& lane(at::Device device) { return device.is_cpu() ? host_ : device_; }
  c10d::Backend& route(at::Device device, std::chrono::milliseconds timeout) {
    c10d::Backend* engine = lane(device).engine.load(std::memory_order_acquire);
    if (C10_UNLIKELY(engine == nullptr)) engine = &choose(device, timeout);
    return *engine;
  }
  c10d::Backend& choose(at::Device device, std::chrono::milliseconds timeout);
  BackendPtr make_other(at::Device device, const Placement::Verdict& verdict);
  /// Throws when that takes longer than the timeout.
  void shut_down(const BackendPtr& other);
  void shutdown_at_exit();
  /// The other engines that exist.
  std::vector<c10d::Backend*> others();
  /// Makes later calls that other engines would serve fail in choose().
  void close_others();

  /// Of a call without tensors, which the engine will refuse: the CPU.
  static at::Device on(const Tensors& tensors) {
    return tensors.empty() ? at::Device(at::kCPU) : tensors[0].device();
  }
  /// Calls a method of the engine that serves `device`, with what a batch needs around it.
  template <class Method>
  WorkPtr pass(at::Device device, std::chrono::milliseconds timeout, const Method& method) {
    c10d::Backend& engine = route(device, timeout);
    if (C10_LIKELY(!batching_)) return method(engine);
    return pass_in_batch(engine, method);
  }
  /// The same for a collective whose arguments may be wrong: onehop tells the other ranks of that.
  template <class Method, class Options, class... Arguments>
  WorkPtr collect(onehop_collective_t collective, at::Device device, const Method& method,
                  const Options& options, Arguments&... arguments) {
    c10d::Backend& engine = route(device, options.timeout);
    const auto make = [&](c10d::Backend& each) { return std::invoke(method, each, arguments..., options); };
    const bool by_onehop = &engine == onehop_.get();
    const auto describe = [&](bool async) {
      // If the tensors are on different devices, the other ranks' are likely not on the CPU.
      onehop_torch::Backend::Collective result{collective, device, async};
      (find_device(arguments, result.device), ...);
      return result;
    };
    if (C10_LIKELY(!batching_)) {
      if (!by_onehop) return make(engine);
      return onehop_->attempt([&] { return make(engine); }, [&] { return describe(options.asyncOp); });
    }
    if (by_onehop && !(batch_error_ && batch_collective_)) batch_collective_ = describe(true);
    return pass_in_batch(engine, make);
  }
  /// A send or receive.
  template <class Method, class... Numbers>
  WorkPtr transfer(Tensors& tensors, Method method, Numbers... numbers) {
    return pass(on(tensors), c10d::kUnsetTimeout, [&](c10d::Backend& engine) {
      check_transfer(engine, on(tensors));
      return (engine.*method)(tensors, numbers...);
    });
  }
  static void check_transfer(const c10d::Backend& engine, at::Device device);
  WorkPtr pass_in_batch(c10d::Backend& engine, const std::function<WorkPtr(c10d::Backend&)>& method);

  c10::intrusive_ptr<c10d::Store> store_;
  Membership members_;
  JoinSettings settings_;
  std::string fallback_;
  std::atomic<int64_t> timeout_ms_;
  Placement placement_;
  Cancellation cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> closed_ = false;
  c10::intrusive_ptr<onehop_torch::Backend> onehop_;
  Lane host_;
  Lane device_;

  /// startCoalescing to endCoalescing: calls of one thread.
  bool batching_ = false;
  std::vector<c10d::Backend*> batch_engines_;  ///< that have begun a batch of their own
  std::vector<WorkPtr> batch_works_;           ///< of engines that know no batches
  std::exception_ptr batch_error_;             ///< of the first call that failed; the others are dropped
  /// One that onehop carries, if there is any; the one that failed, if it did.
  std::optional<onehop_torch::Backend::Collective> batch_collective_;
};

/// An engine of torch, which module.cc makes by Python.
struct EngineRequest {
  std::string engine;  ///< "nccl" or "gloo"
  at::Device device;
  std::string reason;                     ///< why onehop cannot carry the process group
  c10::intrusive_ptr<c10d::Store> store;  ///< for this engine alone
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  const Membership& members;
};
Router::BackendPtr make_engine(const EngineRequest& request);

}  // namespace onehop_torch
