// SPDX-License-Identifier: Apache-2.0
#include "group/device_progress.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/interrupt.h"
#include "call/call_record.h"

namespace onehop {
namespace {

constexpr std::size_t kKindBytes =
    offsetof(CallRecord, root) + sizeof(CallRecord::root) - offsetof(CallRecord, collective);
static_assert(kKindBytes == sizeof(std::uint64_t));

/// Call::collective to Call::root, which lie side by side.
std::uint64_t kind_of(const CallRecord& call) {
  std::uint64_t kind = 0;
  std::memcpy(&kind, &call.collective, sizeof kind);
  return kind;
}

/// One step of a hash: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection for each word.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash += word + 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
  return hash ^ hash >> 31;
}

}  // namespace

void DeviceProgress::record(std::uint64_t number, const CallRecord& call) {
  host::BegunCall& own =
      ranks_[static_cast<std::size_t>(rank_.value)]->calls[number % host::Progress::kKeptCalls];
  const std::uint64_t kind = kind_of(call);
  history_ = mix(mix(mix(history_, call.count), kind), call.factor);
  own.number.store(0, std::memory_order_relaxed);
  // release: pairs with the acquires in recorded() and is_other_history(); a rank that sees one of these values
  // also sees that the number is no longer the old one.
  own.history.store(history_, std::memory_order_release);
  own.count.store(call.count, std::memory_order_release);
  own.kind.store(kind, std::memory_order_release);
  own.factor.store(call.factor, std::memory_order_release);
  // release: pairs with the loads of the number on other ranks; publishes the record. seq_cst: comes before the
  // looks at the other ranks' records (differs()).
  own.number.exchange(number, std::memory_order_seq_cst);
}

bool DeviceProgress::is_other_history(const host::BegunCall& theirs, std::uint64_t number) const {
  const host::BegunCall& own = entry(static_cast<std::size_t>(rank_.value), number);
  const std::uint64_t own_history = own.history.load(std::memory_order_acquire);
  const std::uint64_t history = theirs.history.load(std::memory_order_acquire);
  // Compare only if neither owner has begun to write the record anew.
  return history != own_history && theirs.number.load(std::memory_order_relaxed) == number &&
         own.number.load(std::memory_order_relaxed) == number;
}

std::optional<CallRecord> DeviceProgress::recorded(std::size_t r, std::uint64_t number) const {
  const host::BegunCall& record = entry(r, number);
  if (record.number.load(std::memory_order_acquire) != number) return std::nullopt;
  CallRecord call;
  call.count = record.count.load(std::memory_order_acquire);
  const std::uint64_t kind = record.kind.load(std::memory_order_acquire);
  std::memcpy(&call.collective, &kind, sizeof kind);
  call.factor = record.factor.load(std::memory_order_acquire);
  if (record.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return call;
}

Error DeviceProgress::mismatch(std::size_t r, std::uint64_t number) const {
  const auto own = static_cast<std::size_t>(rank_.value);
  const auto [low, high] = std::minmax(own, r);
  const Rank origin{static_cast<int>(high)};
  const std::uint64_t oldest =
      number > host::Progress::kKeptCalls ? number - host::Progress::kKeptCalls + 1 : 1;
  for (std::uint64_t n = oldest; n <= number; ++n) {
    const std::optional<CallRecord> a = recorded(low, n);
    const std::optional<CallRecord> b = recorded(high, n);
    if (!a || !b || is_same_call(*a, *b)) continue;
    return {ErrorCode::mismatch,
            fmt::format("ranks disagree: rank {} calls {}, rank {} calls {}", low, describe(*a), high,
                        describe(*b)),
            origin};
  }
  return {ErrorCode::mismatch,
          fmt::format("ranks disagree: ranks {} and {} made different calls, more than {} calls ago", low,
                      high, host::Progress::kKeptCalls),
          origin};
}

std::optional<Error> DeviceProgress::find_mismatch() const {
  const auto begun = [&](std::size_t r) { return ranks_[r]->begun.load(std::memory_order_relaxed); };
  const std::uint64_t own = begun(static_cast<std::size_t>(rank_.value));
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const std::uint64_t both = std::min(own, begun(r));
    if (both != 0 && differs(r, both)) return mismatch(r, both);
  }
  return std::nullopt;
}

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
    throw_if_interrupted(phase);
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
