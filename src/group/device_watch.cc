// SPDX-License-Identifier: Apache-2.0
#include "group/device_watch.h"

#include <bit>

#include "onehop/call.h"

#include "base/check.h"
#include "base/deadline.h"
#include "base/interrupt.h"
#include "os/fork_guard.h"

namespace onehop {
namespace {

constexpr const char* kPhase = "work on its GPU";

Rank first_of(RankSet ranks) {
  return ranks == 0 ? Rank{} : Rank{std::countr_zero(ranks)};
}

const char* name_of(DeviceFault::Phase phase) {
  if (phase == DeviceFault::user) return "a kernel";
  if (phase == DeviceFault::signal) return "wait_signal";
  if (phase == DeviceFault::barrier) return "barrier";
  if (phase == DeviceFault::phase_of(Collective::send)) return "send or recv";
  return traits_of(static_cast<Collective>(phase - DeviceFault::first_collective)).name;
}

/// The device function that failed, for kernels that do more than wait.
const char* device_function(DeviceFault::Phase phase) {
  return phase == DeviceFault::signal ? "put_signal or wait_signal" : name_of(phase);
}

}  // namespace

Error error_of(const DeviceFailure& failure, Rank rank) {
  if (failure.reason == DeviceFault::left) {
    return {ErrorCode::peer_lost,
            fmt::format("{}: rank {} left the group while rank {} waited for it on its GPU",
                        name_of(failure.phase), failure.awaited.value, rank.value),
            failure.awaited};
  }
  if (failure.reason == DeviceFault::misplaced) {
    return {
        ErrorCode::mismatch,
        fmt::format("{}: the outputs of ranks {} and {} have different offsets in symmetric memory, or only "
                    "one of them is in place, although CallOptions::symmetric promises otherwise",
                    name_of(failure.phase), failure.awaited.value, rank.value),
        failure.awaited};
  }
  if (failure.reason == DeviceFault::no_channel) {
    return {ErrorCode::invalid_argument,
            fmt::format("{}: a kernel of rank {} used channel {} of a buffer that has 0..{}; make the buffer "
                        "with more (BufferOptions::channels)",
                        device_function(failure.phase), rank.value, failure.argument, failure.limit - 1),
            rank};
  }
  if (failure.reason == DeviceFault::no_rank) {
    return {ErrorCode::invalid_argument,
            fmt::format("{}: a kernel of rank {} named rank {} of a group that has 0..{}",
                        device_function(failure.phase), rank.value, failure.argument, failure.limit - 1),
            rank};
  }
  return {ErrorCode::timeout,
          fmt::format("{}: rank {} waited for rank {} on its GPU until its timeout", name_of(failure.phase),
                      rank.value, failure.awaited.value),
          failure.awaited};
}

DeviceWatch::DeviceWatch(std::shared_ptr<IpcChannel::Mesh> mesh, Communicator& communicator,
                         DeviceProgress& progress, Duration timeout)
    : mesh_(std::move(mesh)),
      communicator_(communicator),
      progress_(progress),
      timeout_(timeout),
      generation_(os::fork_generation()),
      thread_([this] { run(); }) {}

DeviceWatch::~DeviceWatch() {
  if (generation_ != os::fork_generation()) {
    // The child of a fork has no such thread, so there is nothing to join.
    new (&thread_) std::thread;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DeviceWatch::look() noexcept {
  try {
    for (int r = 0; r < mesh_->size(); ++r) {
      if (r != mesh_->rank().value && mesh_->has_left(Rank{r})) communicator_.mark_left(Rank{r});
    }
    if (const std::optional<Error> refusal = progress_.contradicted_refusal()) mesh_->fail_group(*refusal);
    if (const std::optional<Error> mismatch = progress_.find_mismatch()) mesh_->fail_group(*mismatch);
    std::optional<DeviceFailure> failure = communicator_.failure();
    if (failure && mesh_->usable()) {
      if (failure->reason == DeviceFault::timeout) failure->awaited = blame(failure->awaited);
      mesh_->fail_group(error_of(*failure, mesh_->rank()));
    }
    if (!mesh_->left() && mesh_->look(kPhase)) communicator_.abort();
  } catch (const Error& error) {
    communicator_.abort();
    mesh_->fail_group(error);  // does nothing if it has failed already
  } catch (const std::exception&) {
    // Out of memory: the next look may succeed, and waits on the device have deadlines of their own.
  }
}

Rank DeviceWatch::blame(Rank awaited) {
  if (mesh_->size() == 2 && !mesh_->is_split_off()) return awaited;
  const IpcChannel::Mesh::Question question = mesh_->ask();
  const Deadline end = Deadline::after(kTimeToAnswer);
  const Deadline late_end = Deadline::after(2 * kTimeToAnswer);
  RankSet silent = mesh_->silent(question);
  // Stop once another rank has reported a failure: it may have left since, and would never answer.
  while (silent != 0 && mesh_->usable() && !(std::has_single_bit(silent) ? end : late_end).expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    silent = mesh_->silent(question);
  }
  if (silent != 0) {
    const Rank found = (silent & set_of(awaited)) != 0 ? awaited : first_of(silent);
    return mesh_->blame(found, question, kPhase).origin;
  }
  const RankSet behind = progress_.behind();
  return behind == 0 || (behind & set_of(awaited)) != 0 ? awaited : first_of(behind);
}

RankSet DeviceWatch::peers() const {
  RankSet all = 0;
  for (int r = 0; r < mesh_->size(); ++r) {
    if (r != mesh_->rank().value) all |= set_of(Rank{r});
  }
  return all;
}

Error DeviceWatch::stream_timeout(IpcChannel::Mesh::Wait& wait, Duration timeout) {
  const Rank own = mesh_->rank();
  Rank blamed;
  if (wait.question().number != 0) blamed = first_of(mesh_->silent(wait.question()));
  if (!blamed.none()) blamed = wait.blame(blamed, kPhase).origin;
  if (blamed.none()) blamed = first_of(progress_.behind());
  if (blamed.none()) {
    return {ErrorCode::timeout,
            fmt::format("synchronize: rank {} waited {} ms for its stream", own.value, timeout.count()), own};
  }
  return {ErrorCode::timeout,
          fmt::format("synchronize: rank {} waited {} ms for its stream, which waits for rank {}", own.value,
                      timeout.count(), blamed.value),
          blamed};
}

void DeviceWatch::synchronize(Stream stream, Duration timeout) {
  constexpr const char* kSynchronize = "synchronize";
  mesh_->check(kSynchronize);
  const Deadline deadline = Deadline::after(timeout);
  // Waits on the device have the group's timeout or one of their own. A shorter timeout here needs no grace.
  const Deadline grace_end = timeout < timeout_ ? deadline : Deadline::after(deadline.left() + kGrace);
  const Deadline spin_end = Deadline::after(Duration{1});
  IpcChannel::Mesh::Wait wait(*mesh_);
  while (!communicator_.idle(stream)) {
    if (deadline.expired()) {
      const bool grace_is_over = grace_end.expired();  // read before the last look
      if (communicator_.failure()) look();
      mesh_->check(kSynchronize);
      if (grace_is_over) {
        const Error error = stream_timeout(wait, timeout);
        mesh_->fail_group(error);
        communicator_.abort();
        mesh_->check(kSynchronize);  // throws the group's failure, which another rank may have found first
      }
    }
    // Most work takes less than a millisecond; longer waits are not worth a core.
    if (!spin_end.expired()) continue;
    const RankSet behind = progress_.behind();
    wait.look(behind != 0 ? behind : peers(), deadline);
    throw_if_interrupted(kSynchronize);
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  // The watch may not have seen it yet.
  if (communicator_.failure()) look();
  mesh_->check(kSynchronize);
}

void DeviceWatch::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return stop_; })) look();
}

}  // namespace onehop
