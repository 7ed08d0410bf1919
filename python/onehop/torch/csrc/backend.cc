// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <ATen/ops/zeros.h>
#include <Python.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include "lists.h"

namespace onehop_torch {
namespace {

/// Checks a tensor that a collective reads or writes in memory order.
void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided,
                    "onehop: sparse tensors are not supported; got a tensor of layout ", tensor.layout());
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()),
                    "onehop: the tensor is not contiguous: sizes ", tensor.sizes(), ", strides ",
                    tensor.strides(), ". Pass tensor.contiguous()");
}

const at::Tensor& single(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "onehop: expected one tensor per rank, got ", tensors.size());
  check_dense(tensors[0]);
  return tensors[0];
}

/// A contiguous input; the copy is made on the current stream.
at::Tensor single_input(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "onehop: expected one tensor per rank, got ", tensors.size());
  return tensors[0].contiguous();
}

const Tensors& single_list(const std::vector<Tensors>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, "onehop: expected one list of tensors per rank, got ", lists.size());
  return lists[0];
}

void check_alike(const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "onehop: the output is of type ",
                   output.scalar_type(), ", the input of type ", input.scalar_type());
  TORCH_CHECK_VALUE(output.device() == input.device(), "onehop: the output is on ", output.device(),
                    ", the input on ", input.device());
}

/// `whole` has `size` blocks of the size of `block`.
void check_blocks(const at::Tensor& whole, const at::Tensor& block, int size, const char* what) {
  check_dense(whole);
  check_dense(block);
  check_alike(whole, block);
  TORCH_CHECK_VALUE(whole.numel() == block.numel() * size, "onehop: ", what, " between ", size,
                    " ranks with ", block.numel(), " elements each needs ", block.numel() * size,
                    " elements in all, got ", whole.numel());
}

size_t scaled(int64_t count, const Elements& elements) {
  return static_cast<size_t>(count) * elements.scale;
}

}  // namespace

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 std::chrono::milliseconds timeout, Membership members, JoinSettings settings)
    : RenamedMethods(rank, size),
      store_(store),
      members_(std::move(members)),
      settings_(std::move(settings)),
      timeout_ms_(timeout.count()),
      point_to_point_(store, rank, members_, cancelled_) {}

Backend::~Backend() {
  // Python's last reference may have been dropped here. The threads that shutdown() waits for may want the GIL.
  PyThreadState* const python = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  try {
    shutdown();
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
  if (python != nullptr) PyEval_RestoreThread(python);
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<GroupOptions>("onehop", std::chrono::milliseconds(timeout_ms_.load()));
  options->group_name = members_.group;
  for (const int64_t rank : members_.global_ranks) {
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  }
  return options;
}

// ---- Engines ----

void Backend::check_open() const {
  TORCH_CHECK_WITH(DistBackendError, !closed_, "onehop: process group '", members_.group, "' was destroyed");
}

Engine& Backend::engine(at::Device device) {
  Lane& lane = this->lane(device);
  Engine* engine = lane.engine.load(std::memory_order_acquire);
  if (C10_LIKELY(engine != nullptr)) {
    TORCH_CHECK_VALUE(getSize() == 1 || *lane.device == device, "onehop: process group '", members_.group,
                      "' works on ", *lane.device, " since its first call; got a tensor on ", device);
    return *engine;
  }
  return join(lane, device);
}

Engine& Backend::engine_of_kind(at::Device device) {
  Lane& lane = this->lane(device);
  Engine* engine = lane.engine.load(std::memory_order_acquire);
  return engine != nullptr ? *engine : join(lane, device);
}

Engine& Backend::join(Lane& lane, at::Device device) {
  const std::lock_guard lock(lane.joining);
  if (lane.owner) return *lane.owner;
  TORCH_CHECK_WITH(DistBackendError, lane.failure.empty(), lane.failure);
  std::shared_ptr<Engine> engine;
  if (getSize() == 1) {
    engine = std::make_shared<LocalEngine>();
  } else {
    try {
      const int ordinal = device.is_cpu() ? ONEHOP_DEVICE_HOST : static_cast<int>(device.index());
      engine = std::make_shared<GroupEngine>(store_, c10::DeviceTypeName(device.type(), true), getRank(),
                                             getSize(), ordinal, settings_, timeout_ms_.load(), members_,
                                             cancelled_);
    } catch (const c10::Error& error) {
      lane.failure = error.what_without_backtrace();
      throw;
    }
  }
  open(lane, std::move(engine), device);
  return *lane.owner;
}

void Backend::open(Lane& lane, std::shared_ptr<Engine> engine, at::Device device) {
  lane.owner = std::move(engine);
  lane.device = device;
  if (!device.is_cpu()) {
    lane.stream =
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  }
  lane.engine.store(lane.owner.get(), std::memory_order_release);
}

c10d::ErrorType Backend::getError() {
  for (Lane* lane : {&host_, &device_}) {
    Engine* engine = lane->engine.load(std::memory_order_acquire);
    try {
      if (engine != nullptr) engine->check();
    } catch (const c10::Error&) {
      return c10d::ErrorType::COMM_ERROR;
    }
  }
  return c10d::ErrorType::SUCCESS;
}

void Backend::check() {
  for (Lane* lane : {&host_, &device_}) {
    if (Engine* engine = lane->engine.load(std::memory_order_acquire)) engine->check();
  }
}

void Backend::abort(const std::string& reason) {
  *cancelled_ = true;
  for (Lane* lane : {&host_, &device_}) {
    if (Engine* engine = lane->engine.load(std::memory_order_acquire)) engine->abort(reason);
  }
  point_to_point_.abort(reason);
}

void Backend::find_survivors(const std::vector<int>& kept, bool abort) {
  check_open();
  std::vector<Engine*> engines;
  for (Lane* lane : {&host_, &device_}) {
    if (Engine* engine = lane->engine.load(std::memory_order_acquire)) engines.push_back(engine);
  }
  // The ranks agree over the connections of the group, which a store that died with a rank cannot replace.
  TORCH_CHECK_WITH(
      DistBackendError, !engines.empty(), "onehop: shrink_group of process group '", members_.group,
      "': its ranks are not connected, because none of its calls has succeeded. Use new_group, or "
      "pass device_id to init_process_group, which connects them");
  if (abort) this->abort("shrink_group with SHRINK_ABORT");
  executor_.drain();
  for (Engine* engine : engines) engine->find_survivors(kept, timeout_ms_.load());
}

void Backend::give_survivors(Backend& next) {
  const auto from = std::array{&host_, &device_};
  const auto to = std::array{&next.host_, &next.device_};
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i]->owner) continue;
    // Of a group of one rank, LocalEngine carries more types, and needs no group.
    std::shared_ptr<Engine> engine = from[i]->owner->take_survivors(next.settings_, next.members_);
    if (next.getSize() == 1) engine = std::make_shared<LocalEngine>();
    open(*to[i], std::move(engine), *from[i]->device);
  }
}

void Backend::shutdown() {
  if (closed_.exchange(true)) return;
  executor_.stop();
  point_to_point_.stop();
  for (Lane* lane : {&host_, &device_}) {
    if (Engine* engine = lane->engine.load(std::memory_order_acquire)) engine->leave();
  }
  // Work on a device may have failed after the last call that could throw.
  if (Engine* engine = device_.engine.load(std::memory_order_acquire)) engine->check_unreported();
}

void Backend::shutdown_at_exit() {
  if (closed_) return;
  if (!executor_.idle() || !point_to_point_.idle()) abort("a rank exited before its calls were complete");
  shutdown();
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(allocate_, "onehop: process group '", members_.group,
                    "' has no pool of symmetric memory: call onehop.torch.mem_pool(group, bytes) first");
  return allocate_(size, options);
}

// ---- Submission ----

Backend::WorkPtr Backend::submit(Call call, Submission submission) {
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return submit(std::move(calls), std::move(submission));
}

Backend::WorkPtr Backend::submit(std::vector<Call> calls, Submission submission) {
  check_open();
  if (coalescing_) {
    for (Call& call : calls) coalesced_.push_back(std::move(call));
    for (at::Tensor& output : submission.outputs) coalesced_outputs_.push_back(std::move(output));
    // A synchronous call has no handle, as with NCCL: its caller would wait for it before the batch can end.
    return submission.async ? coalesced_work_ : nullptr;
  }
  const auto on = [](const Call& call) { return call.in.defined() ? call.in.device() : call.out.device(); };
  at::Device device = at::kCPU;
  if (!calls.empty() && calls[0].collective != ONEHOP_COLLECTIVE_BARRIER) device = on(calls[0]);
  for (const Call& call : calls) {
    TORCH_CHECK_VALUE(call.collective == ONEHOP_COLLECTIVE_BARRIER || on(call) == device,
                      "onehop: the tensors of one call are on different devices: ", device, " and ",
                      on(call));
  }
  if (!device.is_cpu()) return submit_device(std::move(calls), std::move(submission), device);
  auto work = c10::make_intrusive<HostWork>(getRank(), submission.type, submission.title, Tensors(), 1);
  return submit_host(std::move(calls), std::move(submission), std::move(work));
}

void Backend::run_all(Engine& engine, const std::vector<Call>& calls, void* stream, int64_t timeout_ms) {
  for (const Call& call : calls) {
    engine.run(call, stream, timeout_ms);
    if (call.after) call.after();
  }
}

Backend::WorkPtr Backend::submit_host(std::vector<Call> calls, Submission submission,
                                      c10::intrusive_ptr<HostWork> work) {
  begin();
  const int64_t timeout_ms = milliseconds(submission.timeout);
  const auto collective = std::stable_partition(
      calls.begin(), calls.end(), [](const Call& call) { return point_to_point(call.collective); });
  std::vector<Call> collectives(std::make_move_iterator(collective), std::make_move_iterator(calls.end()));
  calls.erase(collective, calls.end());

  // One part for the collectives even if there are none: the call is complete when all parts are.
  work->set_parts(calls.size() + 1, std::move(submission.outputs));
  for (Call& call : calls) {
    if (getSize() == 1) engine(at::kCPU).run(call, nullptr, timeout_ms);  // throws: no peer
    point_to_point_.post(std::move(call), timeout_ms,
                         [work](std::exception_ptr error) { work->finish_part(error); });
  }
  if (collectives.empty()) {
    work->finish_part();
    return work;
  }
  if (submission.async) {
    executor_.post([this, collectives = std::move(collectives), work, timeout_ms] {
      std::exception_ptr error;
      try {
        run_all(engine(at::kCPU), collectives, nullptr,
                timeout_ms);  // the first call waits here for all ranks
      } catch (...) {
        error = std::current_exception();
      }
      work->finish_part(error);
    });
  } else {
    executor_.drain();  // the order of calls is that of the caller
    run_all(engine(at::kCPU), collectives, nullptr, timeout_ms);
    work->finish_part();
  }
  return work;
}

Backend::WorkPtr Backend::submit_device(std::vector<Call> calls, Submission submission, at::Device device) {
  const int64_t timeout_ms = milliseconds(submission.timeout);
  Engine& engine = this->engine(device);
  begin();
  const c10::DeviceGuard device_guard(device);
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream current = streams.getStream(device);
  const c10::Stream stream = submission.async ? *device_.stream : current;
  if (stream != current) {
    c10::Event inputs_ready(device.type());
    inputs_ready.record(current);
    inputs_ready.block(stream);
  }
  {
    const c10::StreamGuard stream_guard(stream);
    void* const handle = stream.native_handle();
    if (calls.size() == 1) {
      run_all(engine, calls, handle, timeout_ms);
    } else {
      engine.begin();
      try {
        for (const Call& call : calls) engine.run(call, handle, timeout_ms);
      } catch (...) {
        engine.drop();
        throw;
      }
      engine.end();
      for (const Call& call : calls) {
        if (call.after) call.after();
      }
    }
  }
  Tensors in_use;
  if (stream != current) {
    for (Call& call : calls) {
      if (call.in.defined()) in_use.push_back(std::move(call.in));
      if (call.out.defined()) in_use.push_back(std::move(call.out));
    }
    in_use.insert(in_use.end(), submission.outputs.begin(), submission.outputs.end());
  }
  return c10::make_intrusive<StreamWork>(getRank(), submission.type, device_.owner, stream, submission.async,
                                         std::move(submission.outputs), std::move(in_use), timeout_ms,
                                         submission.host_waits);
}

void Backend::refuse(const Collective& collective, const std::exception_ptr& error) noexcept {
  try {
    if (closed_ || getSize() == 1) return;
    onehop_status_t status = ONEHOP_ERROR_OUT_OF_RESOURCES;
    std::string reason;
    try {
      std::rethrow_exception(error);
    } catch (const c10::DistBackendError&) {
      return;  // The process group has failed: there is nobody to tell.
    } catch (const c10::Error& mistake) {
      status = ONEHOP_ERROR_INVALID_ARGUMENT;
      reason = mistake.what_without_backtrace();
    } catch (const std::exception& failure) {
      reason = failure.what();
    }
    constexpr std::string_view kPrefix = "onehop: ";  // which the others' errors have already
    if (reason.starts_with(kPrefix)) reason.erase(0, kPrefix.size());
    ++sequence_;
    const auto tell = [this, collective, status, reason = std::move(reason)]() noexcept {
      try {
        engine_of_kind(collective.device).refuse(collective.kind, status, reason.c_str());
      } catch (const std::exception&) {
        // No group could be formed, and the others are told of that.
      }
    };
    if (collective.device.is_cpu() && collective.async) {
      executor_.post(tell);
    } else {
      if (collective.device.is_cpu()) executor_.drain();  // the order of calls is that of the caller
      tell();
    }
  } catch (const std::exception&) {
    // This rank has no memory or no thread left; it has an error to throw.
  }
}

void Backend::startCoalescing() {
  coalesced_.clear();  // of a batch that an exception cut short
  coalesced_outputs_.clear();
  coalesced_work_ = c10::make_intrusive<HostWork>(getRank(), c10d::OpType::COALESCED, nullptr, Tensors(), 1);
  coalescing_ = true;
}

Backend::WorkPtr Backend::endCoalescing() {
  TORCH_CHECK_VALUE(coalescing_, "onehop: endCoalescing without startCoalescing");
  coalescing_ = false;
  std::vector<Call> calls = std::exchange(coalesced_, {});
  auto work = std::exchange(coalesced_work_, nullptr);
  Submission submission{c10d::OpType::COALESCED, "onehop:coalesced", true, c10d::kUnsetTimeout,
                        std::exchange(coalesced_outputs_, {})};
  if (calls.empty()) {
    work->finish_part();
    return work;
  }
  const at::Tensor& first = calls[0].in.defined() ? calls[0].in : calls[0].out;
  if (first.defined() && !first.device().is_cpu()) {
    WorkPtr enqueued = submit(std::move(calls), std::move(submission));
    work->finish_part();
    return enqueued;
  }
  return submit_host(std::move(calls), std::move(submission), std::move(work));
}

// ---- Collectives ----

int Backend::check_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "onehop: rank ", root, " is not in this process group of ",
                    getSize(), " ranks");
  return static_cast<int>(root);
}

/// `tensor` is one block. In a group of one rank nothing is added, so any type will do.
void Backend::set_reduction(Call& call, const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  if (getSize() == 1 && op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
  const Elements elements = reduced(tensor, op);
  call.count = scaled(tensor.numel(), elements);
  call.dtype = elements.dtype;
  call.reduction = reduction(tensor, op);
}

Call Backend::build_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  check_dense(tensor);
  Call call{ONEHOP_COLLECTIVE_ALL_REDUCE, tensor, tensor};
  set_reduction(call, tensor, op);
  return call;
}

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return submit(build_all_reduce(single(tensors), options.reduceOp),
                {c10d::OpType::ALLREDUCE, "onehop:all_reduce", options.asyncOp, options.timeout, tensors});
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Call> calls;
  for (const at::Tensor& tensor : tensors) calls.push_back(build_all_reduce(tensor, options.reduceOp));
  return submit(std::move(calls), {c10d::OpType::ALLREDUCE_COALESCED, "onehop:all_reduce_coalesced",
                                   options.asyncOp, options.timeout, tensors});
}

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = single(tensors);
  const Elements elements = moved(tensor);
  Call call{ONEHOP_COLLECTIVE_BROADCAST, tensor, tensor, scaled(tensor.numel(), elements), elements.dtype};
  call.root = check_root(options.rootRank);
  return submit(std::move(call),
                {c10d::OpType::BROADCAST, "onehop:broadcast", options.asyncOp, options.timeout, tensors});
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call = build_all_reduce(single(tensors), options.reduceOp);
  call.collective = ONEHOP_COLLECTIVE_REDUCE;
  call.root = check_root(options.rootRank);
  if (call.root != getRank()) call.out = at::Tensor();
  return submit(std::move(call),
                {c10d::OpType::REDUCE, "onehop:reduce", options.asyncOp, options.timeout, tensors});
}

Call Backend::build_all_gather(const at::Tensor& output, const at::Tensor& input) const {
  check_blocks(output, input, getSize(), "all_gather");
  const Elements elements = moved(input);
  return {ONEHOP_COLLECTIVE_ALL_GATHER, input, output, scaled(input.numel(), elements), elements.dtype};
}

Call Backend::build_all_gather_list(const Tensors& outputs, const at::Tensor& input) const {
  check_list(outputs, static_cast<size_t>(getSize()), input, "the output of all_gather");
  const at::Tensor& own = outputs[static_cast<size_t>(getRank())];
  TORCH_CHECK_VALUE(own.numel() == input.numel(), "onehop: all_gather: the output of this rank has ",
                    own.numel(), " elements, its input ", input.numel());
  const Elements elements = moved(input);
  FlatOutputs flat = flatten_outputs(outputs);
  Call call{ONEHOP_COLLECTIVE_ALL_GATHER, input, flat.buffer, scaled(input.numel(), elements),
            elements.dtype};
  call.after = std::move(flat.finish);
  if (!same_sizes(outputs)) {  // as seen by all ranks
    call.collective = ONEHOP_COLLECTIVE_ALL_TO_ALL_V;
    for (const at::Tensor& output : outputs) {
      call.in_blocks.counts.push_back(call.count);
      call.in_blocks.offsets.push_back(0);
      call.out_blocks.add(scaled(output.numel(), elements));
    }
  }
  return call;
}

Backend::WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  return submit(build_all_gather(output, input), {c10d::OpType::_ALLGATHER_BASE,
                                                  "onehop:all_gather_single",
                                                  options.asyncOp,
                                                  options.timeout,
                                                  {output}});
}

Backend::WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "onehop: all_gather of ", inputs.size(),
                    " tensors into ", outputs.size());
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) calls.push_back(build_all_gather(outputs[i], inputs[i]));
  return submit(std::move(calls), {c10d::OpType::COALESCED, "onehop:all_gather_coalesced", options.asyncOp,
                                   options.timeout, outputs});
}

Backend::WorkPtr Backend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const Tensors& list = single_list(outputs);
  return submit(build_all_gather_list(list, single_input(inputs)),
                {c10d::OpType::ALLGATHER, "onehop:all_gather", options.asyncOp, options.timeout, list});
}

Backend::WorkPtr Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(getSize()), "onehop: all_gather_coalesced expects ",
                    getSize(), " lists, one for each rank; got ", outputs.size());
  std::vector<Call> calls;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "onehop: all_gather_coalesced of ", inputs.size(),
                        " tensors into a list of ", of_rank.size());
      list.push_back(of_rank[i]);
    }
    calls.push_back(build_all_gather_list(list, inputs[i].contiguous()));
    all.insert(all.end(), list.begin(), list.end());
  }
  return submit(std::move(calls), {c10d::OpType::ALLGATHER_COALESCED, "onehop:all_gather_coalesced",
                                   options.asyncOp, options.timeout, std::move(all)});
}

Backend::WorkPtr Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor input = single_input(inputs);
  const Elements elements = moved(input);
  Call call{ONEHOP_COLLECTIVE_GATHER, input, at::Tensor(), scaled(input.numel(), elements), elements.dtype};
  call.root = check_root(options.rootRank);
  Tensors list;
  if (call.root == getRank()) {
    list = single_list(outputs);
    check_list(list, static_cast<size_t>(getSize()), input, "the output of gather");
    for (const at::Tensor& output : list) {
      TORCH_CHECK_VALUE(output.numel() == input.numel(), "onehop: gather: an output has ", output.numel(),
                        " elements, the input ", input.numel());
    }
    FlatOutputs flat = flatten_outputs(list);
    call.out = flat.buffer;
    call.after = std::move(flat.finish);
  }
  return submit(std::move(call),
                {c10d::OpType::GATHER, "onehop:gather", options.asyncOp, options.timeout, std::move(list)});
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input,
                                        const c10d::GatherOptions& options) {
  const Elements elements = moved(input);
  Call call{ONEHOP_COLLECTIVE_GATHER, input, at::Tensor(), scaled(input.numel(), elements), elements.dtype};
  check_dense(input);
  call.root = check_root(options.rootRank);
  if (call.root == getRank()) {
    check_blocks(output, input, getSize(), "gather");
    call.out = output;
  }
  return submit(std::move(call),
                {c10d::OpType::GATHER, "onehop:gather_single", options.asyncOp, options.timeout, {output}});
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& options) {
  const at::Tensor& output = single(outputs);
  const Elements elements = moved(output);
  Call call{ONEHOP_COLLECTIVE_SCATTER, at::Tensor(), output, scaled(output.numel(), elements),
            elements.dtype};
  call.root = check_root(options.rootRank);
  if (call.root == getRank()) {
    const Tensors& list = single_list(inputs);
    check_list(list, static_cast<size_t>(getSize()), output, "the input of scatter");
    for (const at::Tensor& input : list) {
      TORCH_CHECK_VALUE(input.numel() == output.numel(), "onehop: scatter: an input has ", input.numel(),
                        " elements, the output ", output.numel());
    }
    call.in = flatten_inputs(list);
  }
  return submit(std::move(call),
                {c10d::OpType::SCATTER, "onehop:scatter", options.asyncOp, options.timeout, outputs});
}

Call Backend::build_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                   const c10d::ReduceOp& op) const {
  check_blocks(input, output, getSize(), "reduce_scatter");
  Call call{ONEHOP_COLLECTIVE_REDUCE_SCATTER, input, output};
  set_reduction(call, output, op);
  return call;
}

Backend::WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
  return submit(build_reduce_scatter(output, input, options.reduceOp), {c10d::OpType::_REDUCE_SCATTER_BASE,
                                                                        "onehop:reduce_scatter_single",
                                                                        options.asyncOp,
                                                                        options.timeout,
                                                                        {output}});
}

Backend::WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "onehop: reduce_scatter of ", inputs.size(),
                    " tensors into ", outputs.size());
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(build_reduce_scatter(outputs[i], inputs[i], options.reduceOp));
  }
  return submit(std::move(calls), {c10d::OpType::COALESCED, "onehop:reduce_scatter_coalesced",
                                   options.asyncOp, options.timeout, outputs});
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = single(outputs);
  const Tensors& list = single_list(inputs);
  check_list(list, static_cast<size_t>(getSize()), output, "the input of reduce_scatter");
  TORCH_CHECK_VALUE(same_sizes(list), "onehop: reduce_scatter needs inputs of one size on all ranks");
  return submit(
      build_reduce_scatter(output, flatten_inputs(list), options.reduceOp),
      {c10d::OpType::REDUCE_SCATTER, "onehop:reduce_scatter", options.asyncOp, options.timeout, outputs});
}

Backend::WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                            std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits,
                                            const c10d::AllToAllOptions& options) {
  check_dense(output);
  check_dense(input);
  check_alike(output, input);
  const Elements elements = moved(input);
  Call call{ONEHOP_COLLECTIVE_ALL_TO_ALL, input, output, 0, elements.dtype};
  const Submission submission{
      c10d::OpType::ALLTOALL_BASE, "onehop:all_to_all_single", options.asyncOp, options.timeout, {output}};
  if (output_splits.empty() && input_splits.empty()) {
    TORCH_CHECK_VALUE(
        input.numel() == output.numel() && input.numel() % getSize() == 0,
        "onehop: all_to_all without split sizes needs an input and an output of one size, divisible by ",
        getSize(), " ranks; got ", input.numel(), " and ", output.numel(), " elements");
    call.count = scaled(input.numel() / getSize(), elements);
    return submit(std::move(call), submission);
  }
  call.collective = ONEHOP_COLLECTIVE_ALL_TO_ALL_V;
  const auto blocks = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* what) {
    const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
    const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    std::vector<int64_t> sizes = splits;
    if (sizes.empty()) {
      TORCH_CHECK_VALUE(rows % getSize() == 0, "onehop: all_to_all: the ", what, " has ", rows,
                        " rows, not divisible by ", getSize(), " ranks, and no split sizes");
      sizes.assign(static_cast<size_t>(getSize()), rows / getSize());
    }
    TORCH_CHECK_VALUE(sizes.size() == static_cast<size_t>(getSize()), "onehop: all_to_all: ", sizes.size(),
                      " ", what, " split sizes for ", getSize(), " ranks");
    int64_t sum = 0;
    Blocks result;
    for (const int64_t size : sizes) {
      TORCH_CHECK_VALUE(size >= 0, "onehop: all_to_all: an ", what, " split size is ", size);
      sum += size;
      result.add(scaled(size * row, elements));
    }
    TORCH_CHECK_VALUE(sum == rows, "onehop: all_to_all: the ", what, " split sizes add up to ", sum,
                      ", but the tensor has ", rows, " rows");
    return result;
  };
  call.in_blocks = blocks(input, input_splits, "input");
  call.out_blocks = blocks(output, output_splits, "output");
  return submit(std::move(call), submission);
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "onehop: all_to_all of no tensors");
  check_list(inputs, static_cast<size_t>(getSize()), inputs[0], "the input of all_to_all");
  check_list(outputs, static_cast<size_t>(getSize()), inputs[0], "the output of all_to_all");
  const Elements elements = moved(inputs[0]);
  FlatOutputs flat = flatten_outputs(outputs);
  Call call{ONEHOP_COLLECTIVE_ALL_TO_ALL_V, flatten_inputs(inputs), flat.buffer, 0, elements.dtype};
  call.after = std::move(flat.finish);
  for (const at::Tensor& input : inputs) call.in_blocks.add(scaled(input.numel(), elements));
  for (const at::Tensor& output : outputs) call.out_blocks.add(scaled(output.numel(), elements));
  return submit(std::move(call),
                {c10d::OpType::ALLTOALL, "onehop:all_to_all", options.asyncOp, options.timeout, outputs});
}

Backend::WorkPtr Backend::send(Tensors& tensors, int destination, int /*tag*/) {
  const at::Tensor& tensor = single(tensors);
  const Elements elements = moved(tensor);
  Call call{ONEHOP_COLLECTIVE_SEND, tensor, at::Tensor(), scaled(tensor.numel(), elements), elements.dtype};
  call.root = check_root(destination);
  TORCH_CHECK_VALUE(destination != getRank() || getSize() == 1, "onehop: rank ", destination,
                    " cannot send to itself");
  return submit(std::move(call), {c10d::OpType::SEND, "onehop:send", true, c10d::kUnsetTimeout, tensors});
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int source, int /*tag*/) {
  const at::Tensor& tensor = single(tensors);
  const Elements elements = moved(tensor);
  Call call{ONEHOP_COLLECTIVE_RECV, at::Tensor(), tensor, scaled(tensor.numel(), elements), elements.dtype};
  call.root = check_root(source);
  TORCH_CHECK_VALUE(source != getRank() || getSize() == 1, "onehop: rank ", source,
                    " cannot receive from itself");
  return submit(std::move(call), {c10d::OpType::RECV, "onehop:recv", true, c10d::kUnsetTimeout, tensors});
}

Backend::WorkPtr Backend::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK_VALUE(
      false, "onehop: recv needs the source rank: pass src= (receiving from any rank is not supported)");
}

at::Device Backend::barrier_device(const c10d::BarrierOptions& options) {
  // torch asks for a CPU barrier if the process group serves CPU tensors, too. That of a group that has worked on
  // a device must be ordered behind that work, as it is with NCCL. All ranks have joined it, or none.
  if (device_.engine.load(std::memory_order_acquire) != nullptr && getSize() > 1) return *device_.device;
  if (!options.device || options.device->is_cpu()) return at::kCPU;
  if (options.device->has_index()) return *options.device;
  if (!options.device_ids.empty()) {
    return at::Device(options.device->type(), static_cast<c10::DeviceIndex>(options.device_ids[0]));
  }
  if (const auto bound = getBoundDeviceId()) return *bound;
  return c10::impl::VirtualGuardImpl(options.device->type()).getDevice();
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const at::Device device = barrier_device(options);
  Submission submission{c10d::OpType::BARRIER, "onehop:barrier", options.asyncOp, options.timeout, {}};
  if (device.is_cpu()) return submit(Call{ONEHOP_COLLECTIVE_BARRIER}, std::move(submission));
  // Ordered behind what each rank has enqueued before, like that of NCCL.
  const at::Tensor one = at::zeros({1}, at::TensorOptions().device(device).dtype(at::kByte));
  Call call{ONEHOP_COLLECTIVE_ALL_REDUCE, one, one, 1, ONEHOP_DTYPE_U8};
  call.reduction.op = ONEHOP_OP_MAX;
  submission.host_waits = true;
  return submit(std::move(call), std::move(submission));
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  Submission submission{c10d::OpType::BARRIER, "onehop:monitored_barrier", false, options.timeout, {}};
  submit(Call{ONEHOP_COLLECTIVE_BARRIER},
         std::move(submission));  // on a timeout, the error names the rank that is missing
}

}  // namespace onehop_torch
