// SPDX-License-Identifier: Apache-2.0
#include "group/device_progress.h"

#include <thread>

namespace onehop {

DeviceProgress::Verdict DeviceProgress::judge(std::uint64_t number) const {
  Verdict verdict = Verdict::shared;
  for (const host::Progress* each : ranks_) {
    // acquire: pairs with the store in count().
    if (each->begun.load(std::memory_order_acquire) < number) {
      verdict = Verdict::unknown;
    } else if (each->refused[refusals_ & 1].load(std::memory_order_relaxed) != number) {
      // Its entry of this parity cannot hold a later refusal yet. Refusals n and n + 2 share an entry, and a
      // rank makes refusal n + 2 only after all ranks have settled refusal n.
      return Verdict::contradicted;
    }
  }
  return verdict;
}

void DeviceProgress::settle(IpcChannel::Mesh& mesh, const Deadline& deadline, const char* phase) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      const Verdict verdict = judge(refusal_->number);
      if (verdict == Verdict::shared) {
        refusal_.reset();
        refused_.store(false, std::memory_order_relaxed);
        return;
      }
      if (verdict == Verdict::contradicted || deadline.expired()) mesh.fail_call(refusal_->error, phase);
    }
    mesh.check(phase);
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
}

void DeviceProgress::refuse(const Error& error, IpcChannel::Mesh& mesh, os::CallDeadline& deadline,
                            const char* phase) {
  if (refused_.load(std::memory_order_relaxed)) settle(mesh, deadline.arm(), phase);
  {
    const std::lock_guard lock(mutex_);
    host::Progress& own = *ranks_[static_cast<std::size_t>(rank_.value)];
    ++refusals_;
    const std::uint64_t next = own.begun.load(std::memory_order_relaxed) + 1;
    own.refused[refusals_ & 1].store(next, std::memory_order_relaxed);
    refusal_.emplace(Refusal{.number = count(), .error = error});
    refused_.store(true, std::memory_order_relaxed);
  }
  throw error;
}

std::optional<Error> DeviceProgress::contradicted_refusal() {
  if (!refused_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (refusal_ && judge(refusal_->number) == Verdict::contradicted) return refusal_->error;
  return std::nullopt;
}

std::optional<Error> DeviceProgress::open_refusal() {
  if (!refused_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (refusal_ && judge(refusal_->number) != Verdict::shared) return refusal_->error;
  return std::nullopt;
}

RankSet DeviceProgress::behind() const {
  const auto begun = [&](std::size_t r) { return ranks_[r]->begun.load(std::memory_order_relaxed); };
  const std::uint64_t own = begun(static_cast<std::size_t>(rank_.value));
  RankSet behind = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (begun(r) < own) behind |= set_of(Rank{static_cast<int>(r)});
  }
  return behind;
}

}  // namespace onehop
