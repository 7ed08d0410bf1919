// SPDX-License-Identifier: Apache-2.0
#include "router.h"

#include <Python.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

namespace onehop_torch {
namespace {

/// How long another engine may take to shut down before the user is told.
constexpr std::chrono::milliseconds kPatience{5000};

/// Routers that exist, for the end of the process. Holds no references.
class Registry {
 public:
  void add(const c10::intrusive_ptr<Router>& router) {
    const std::lock_guard lock(mutex_);
    std::erase_if(routers_, [](const auto& weak) { return weak.expired(); });
    routers_.emplace_back(router);
  }
  std::vector<c10::intrusive_ptr<Router>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<c10::intrusive_ptr<Router>> result;
    for (const auto& weak : routers_) {
      if (auto router = weak.lock()) result.push_back(std::move(router));
    }
    return result;
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Router>> routers_;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

/// Newer versions of torch alone have this method, and call it.
template <class Engine>
Router::WorkPtr gather_into(Engine& engine, at::Tensor& output, at::Tensor& input,
                            const c10d::GatherOptions& options) {
  if constexpr (requires { engine.gather_single(output, input, options); }) {
    return engine.gather_single(output, input, options);
  } else {
    TORCH_CHECK(false, "onehop: this version of torch gathers into lists only");
  }
}

}  // namespace

c10::intrusive_ptr<Router> Router::create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                          std::chrono::milliseconds timeout, Membership members,
                                          JoinSettings settings, std::string fallback) {
  Placement placement(store, rank, size, fallback, members);
  auto router = c10::make_intrusive<Router>(store, rank, size, timeout, std::move(members),
                                            std::move(settings), std::move(fallback), std::move(placement));
  registry().add(router);
  return router;
}

Router::Router(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               std::chrono::milliseconds timeout, Membership members, JoinSettings settings,
               std::string fallback, Placement placement)
    : RenamedMethods(rank, size),
      store_(store),
      members_(std::move(members)),
      settings_(std::move(settings)),
      fallback_(std::move(fallback)),
      timeout_ms_(timeout.count()),
      placement_(std::move(placement)),
      onehop_(c10::make_intrusive<onehop_torch::Backend>(store, rank, size, timeout, members_, settings_)) {
  if (size == 1) host_.engine = device_.engine = onehop_.get();
}

Router::~Router() {
  // Python's last reference may have been dropped here. The threads that the engines wait for may want the GIL.
  PyThreadState* const python = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  try {
    shutdown();
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
  host_.other.reset();
  device_.other.reset();
  onehop_.reset();
  if (python != nullptr) PyEval_RestoreThread(python);
}

// ---- The choice of the engine ----

c10d::Backend& Router::choose(at::Device device, std::chrono::milliseconds timeout) {
  if (closed_) return *onehop_;  // which says so
  Lane& lane = this->lane(device);
  const std::lock_guard lock(lane.choosing);
  if (c10d::Backend* const engine = lane.engine.load(std::memory_order_acquire)) return *engine;
  TORCH_CHECK_WITH(DistBackendError, !*cancelled_, "onehop: process group '", members_.group,
                   "' was aborted");
  TORCH_CHECK_WITH(DistBackendError, lane.failure.empty(), lane.failure);
  const Placement::Verdict verdict =
      placement_.verdict(timeout.count() > 0 ? timeout : this->timeout(), cancelled_);
  TORCH_CHECK_WITH(DistBackendError, verdict.refusal.empty(), "onehop: process group '", members_.group,
                   "': ", verdict.refusal);
  const int most = device.is_cpu() ? ONEHOP_MAX_HOST_RANKS : ONEHOP_MAX_DEVICES;
  const bool fits = verdict.machines == 1 && getSize() <= most;
  if (fits || verdict.fallback == "none") {
    onehop_->setBoundDeviceId(getBoundDeviceId());  // torch tells this object only
    lane.engine.store(onehop_.get(), std::memory_order_release);
    return *onehop_;
  }
  try {
    lane.other = make_other(device, verdict);
  } catch (const c10::Error& error) {
    lane.failure = error.what_without_backtrace();
    throw;
  }
  lane.has_other.store(true, std::memory_order_release);
  lane.engine.store(lane.other.get(), std::memory_order_release);
  return *lane.other;
}

Router::BackendPtr Router::make_other(at::Device device, const Placement::Verdict& verdict) {
  const std::string type = c10::DeviceTypeName(device.type(), true);
  const std::string engine = device.is_cpu() ? "gloo" : verdict.fallback;
  BackendPtr other = make_engine(
      {.engine = engine,
       .device = device,
       .reason = verdict.machines > 1
                     ? c10::str("its ", getSize(), " ranks are on ", verdict.machines, " machines")
                     : c10::str("it has ", getSize(), " ranks"),
       .store = c10::make_intrusive<CancellableStore>(c10::str("fallback/", type, "/"), store_, cancelled_),
       .rank = getRank(),
       .size = getSize(),
       .timeout = timeout(),
       .members = members_});
  other->setBoundDeviceId(getBoundDeviceId());
  other->setGroupUid(getGroupUid());
  other->setGroupDesc(getGroupDesc());
  return other;
}

std::vector<c10d::Backend*> Router::others() {
  std::vector<c10d::Backend*> result;
  for (Lane* lane : {&host_, &device_}) {
    if (lane->has_other.load(std::memory_order_acquire)) result.push_back(lane->other.get());
  }
  return result;
}

onehop_group_t* Router::group(at::Device device) {
  c10d::Backend& engine = route(device, timeout());
  TORCH_CHECK_VALUE(&engine == onehop_.get(), "onehop: process group '", members_.group, "' runs on ",
                    engine.getBackendName(), " for tensors on ", device,
                    "; operators and symmetric memory need a group that onehop carries, within one machine");
  return onehop_->group(device);
}

c10::intrusive_ptr<c10d::Backend> Router::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                const std::vector<int>& ranks,
                                                const c10::intrusive_ptr<Options>& options) {
  const auto self = std::find(ranks.begin(), ranks.end(), getRank());
  if (self == ranks.end()) return nullptr;
  Membership members{options ? options->group_name : members_.group, {}};
  for (const int rank : ranks) members.global_ranks.push_back(members_.global(rank));
  return create(store, static_cast<int>(self - ranks.begin()), static_cast<int>(ranks.size()),
                options ? options->timeout : timeout(), std::move(members), settings_, fallback_);
}

c10::intrusive_ptr<c10d::Backend> Router::shrink(const std::vector<int64_t>& excluded, int flags,
                                                 const c10::intrusive_ptr<Options>& options) {
  constexpr int kAbort = 1;  // torch.distributed.distributed_c10d.SHRINK_ABORT
  TORCH_CHECK_VALUE(!options,
                    "onehop: shrink_group takes no pg_options: the new group has those of the old one");
  for (c10d::Backend* const other : others()) {
    TORCH_CHECK_WITH(DistBackendError, false, "onehop: shrink_group of process group '", members_.group,
                     "': it runs on ", other->getBackendName(), ", not on onehop. Use new_group");
  }
  std::vector<int> kept;
  std::vector<int> removed;
  Membership members;
  int own = -1;
  for (int rank = 0; rank < getSize(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) {
      removed.push_back(rank);
      continue;
    }
    if (rank == getRank()) own = static_cast<int>(kept.size());
    kept.push_back(rank);
    members.global_ranks.push_back(members_.global(rank));
  }
  TORCH_CHECK_VALUE(own >= 0, "onehop: shrink_group: rank ", getRank(),
                    " is excluded, so it must not call it");
  const std::string without = c10::str("without ", list(removed));
  members.group = c10::str(members_.group, " ", without);

  onehop_->find_survivors(kept, (flags & kAbort) != 0);
  // What the group is about to need of the store has keys of its own. Nothing of it is needed now: the server may have
  // died with a rank. That all ranks are on one machine is known, because onehop carried them.
  const auto size = static_cast<int>(kept.size());
  auto router = c10::make_intrusive<Router>(c10::make_intrusive<c10d::PrefixStore>(without + "/", store_),
                                            own, size, timeout(), std::move(members), settings_, fallback_,
                                            Placement({.machines = 1, .fallback = fallback_, .refusal = ""}));
  router->setBoundDeviceId(getBoundDeviceId());
  onehop_->give_survivors(*router->onehop_);
  registry().add(router);
  return router;
}

// ---- Life ----

void Router::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ms_ = timeout.count();
  onehop_->setTimeout(timeout);
  for (c10d::Backend* const other : others()) other->setTimeout(timeout);
}

uint64_t Router::getSequenceNumberForGroup() {
  uint64_t sum = onehop_->getSequenceNumberForGroup();
  for (c10d::Backend* const other : others()) sum += other->getSequenceNumberForGroup();
  return sum;
}

c10d::ErrorType Router::getError() {
  if (const auto error = onehop_->getError(); error != c10d::ErrorType::SUCCESS) return error;
  for (c10d::Backend* const other : others()) {
    try {
      if (const auto error = other->getError(); error != c10d::ErrorType::SUCCESS) return error;
    } catch (const c10::Error&) {
      // Gloo of some versions does not know.
    }
  }
  return c10d::ErrorType::SUCCESS;
}

void Router::close_others() {
  for (Lane* lane : {&host_, &device_}) {
    if (lane->has_other.load(std::memory_order_acquire)) lane->engine = nullptr;
  }
}

void Router::abort() {
  *cancelled_ = true;
  onehop_->abort();
  close_others();
  for (c10d::Backend* const other : others()) other->abort();
}

void Router::check_all() {
  for (const auto& router : registry().all()) {
    if (!router->closed_) router->check();
  }
}

void Router::shutdown() {
  if (closed_.exchange(true)) return;
  close_others();
  std::exception_ptr failure;
  for (Lane* lane : {&host_, &device_}) {
    if (!lane->has_other.load(std::memory_order_acquire)) continue;
    try {
      shut_down(lane->other);
    } catch (const c10::Error&) {
      failure = std::current_exception();
    }
  }
  onehop_->shutdown();
  if (failure) std::rethrow_exception(failure);
}

void Router::shut_down(const BackendPtr& other) {
  // NCCL waits without a deadline for graphs that hold its calls. A thread does so, and is left behind if
  // necessary.
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  std::thread([other = BackendPtr(other), ended]() mutable {
    std::exception_ptr failure;
    try {
      other->shutdown();
    } catch (...) {
      failure = std::current_exception();
    }
    other.reset();  // not after the caller has gone on
    failure ? ended->set_exception(failure) : ended->set_value();
  }).detach();
  const char* const advice = "a CUDA graph that holds its calls must be deleted before destroy_process_group";
  const std::chrono::milliseconds patience = std::min<std::chrono::milliseconds>(timeout(), kPatience);
  if (end.wait_for(patience) != std::future_status::ready) {
    TORCH_WARN("onehop: process group '", members_.group, "' waits for ", other->getBackendName(),
               " to end; ", advice);
    TORCH_CHECK_WITH(DistBackendError, end.wait_for(timeout() - patience) == std::future_status::ready,
                     "onehop: process group '", members_.group, "': ", other->getBackendName(),
                     " has not ended within ", timeout().count(), " ms; ", advice);
  }
  end.get();
}

void Router::shutdown_at_exit() {
  if (closed_.exchange(true)) return;
  *cancelled_ = true;
  close_others();
  for (Lane* lane : {&host_, &device_}) {
    if (!lane->has_other.exchange(false)) continue;
    lane->other->abort();
    // Gloo's abort does nothing, and its destructor waits for the calls under way. The end of the process
    // ends them.
    if (lane->other->getBackendName() == "gloo") lane->other.release();
  }
  onehop_->shutdown_at_exit();
}

std::vector<std::string> Router::shutdown_all_at_exit() {
  std::vector<std::string> failures;
  for (const auto& router : registry().all()) {
    try {
      router->shutdown_at_exit();
    } catch (const c10::Error& error) {
      failures.emplace_back(error.what_without_backtrace());
    }
  }
  return failures;
}

bool Router::supportsTensorAlloc(c10::DeviceIndex device) {
  c10d::Backend* const engine = device_.engine.load(std::memory_order_acquire);
  return (engine != nullptr ? *engine : *onehop_).supportsTensorAlloc(device);
}

at::Tensor Router::allocateTensor(long size, at::TensorOptions options) {
  c10d::Backend* const engine = device_.engine.load(std::memory_order_acquire);
  return (engine != nullptr ? *engine : *onehop_).allocateTensor(size, options);
}

std::shared_ptr<c10::Allocator> Router::getMemAllocator() {
  c10d::Backend* const engine = device_.engine.load(std::memory_order_acquire);
  return (engine != nullptr ? *engine : *onehop_).getMemAllocator();
}

// ---- Batches ----

void Router::startCoalescing() {
  batch_engines_.clear();  // of a batch that an exception cut short
  batch_works_.clear();
  batch_error_ = nullptr;
  batch_collective_.reset();
  batching_ = true;
}

Router::WorkPtr Router::pass_in_batch(c10d::Backend& engine,
                                      const std::function<WorkPtr(c10d::Backend&)>& method) {
  if (batch_error_) return nullptr;
  try {
    if (!engine.supportsCoalescing()) return batch_works_.emplace_back(method(engine));
    if (std::find(batch_engines_.begin(), batch_engines_.end(), &engine) == batch_engines_.end()) {
      engine.startCoalescing();
      batch_engines_.push_back(&engine);
    }
    return method(engine);
  } catch (...) {
    // Thrown by endCoalescing: torch never ends a batch that an exception leaves, and keeps later calls back.
    batch_error_ = std::current_exception();
    return nullptr;
  }
}

Router::WorkPtr Router::endCoalescing() {
  TORCH_CHECK_VALUE(batching_, "onehop: endCoalescing without startCoalescing");
  batching_ = false;
  std::vector<WorkPtr> works = std::exchange(batch_works_, {});
  const auto collective = std::exchange(batch_collective_, std::nullopt);
  if (const std::exception_ptr error = std::exchange(batch_error_, nullptr)) {
    for (c10d::Backend* const engine : std::exchange(batch_engines_, {})) {
      if (engine == onehop_.get()) engine->startCoalescing();  // drops its calls
      engine->endCoalescing();
    }
    if (collective) onehop_->refuse(*collective, error);
    std::rethrow_exception(error);
  }
  if (works.empty() && batch_engines_.empty()) {
    onehop_->startCoalescing();
    return onehop_->endCoalescing();  // completed
  }
  for (c10d::Backend* const engine : std::exchange(batch_engines_, {})) {
    const auto end = [engine] { return engine->endCoalescing(); };
    const bool tells = collective && engine == onehop_.get();
    works.push_back(tells ? onehop_->attempt(end, [&] { return *collective; }) : end());
  }
  if (works.size() == 1) return works[0];
  return c10::make_intrusive<BatchWork>(getRank(), std::move(works));
}

// ---- Calls ----

Router::WorkPtr Router::gather_single(at::Tensor& output, at::Tensor& input,
                                      const c10d::GatherOptions& options) {
  const auto method = [](auto& engine, auto&... arguments) { return gather_into(engine, arguments...); };
  return collect(ONEHOP_COLLECTIVE_GATHER, input.device(), method, options, output, input);
}

/// Gloo sends and receives by the host, and does not look where a tensor is: the system call that gets a device's
/// address ends the process.
void Router::check_transfer(const c10d::Backend& engine, at::Device device) {
  TORCH_CHECK_VALUE(device.is_cpu() || engine.getBackendName() != "gloo",
                    "onehop: Gloo cannot send or receive ", "tensors on ", device,
                    "; pass tensor.cpu(), or set ONEHOP_FALLBACK=nccl on all ranks");
}

}  // namespace onehop_torch
