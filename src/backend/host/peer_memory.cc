// SPDX-License-Identifier: Apache-2.0
#include "backend/host/peer_memory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/check.h"
#include "base/env.h"
#include "os/process_memory.h"

namespace onehop::host {

Wish read_wish() {
  if (!env::get("ONEHOP_SINGLE_COPY")) return Wish::where_faster;
  return env::get_flag("ONEHOP_SINGLE_COPY") ? Wish::always : Wish::never;
}

ProcessNotice make_notice(const os::Id& sample, Wish wish) {
  return {.process = sample,
          .pid_namespace = os::pid_namespace(),
          .sample = reinterpret_cast<std::uint64_t>(&sample),
          .pid = ::getpid(),
          .wish = static_cast<std::uint8_t>(wish)};
}

SingleCopy::SingleCopy(std::span<const ProcessNotice> notices, std::span<ReadMarks* const> marks, int rank)
    : rank_(rank) {
  obstacle_.clear();
  const os::Id& own = notices[static_cast<std::size_t>(rank)].process;
  one_process_ = std::ranges::all_of(
      notices, [&](const os::Id& each) { return each == own; }, &ProcessNotice::process);
  for (std::size_t r = 0; r < notices.size(); ++r) {
    const bool here = notices[r].process == own;
    processes_.push_back(here ? 0 : notices[r].pid);
    marks_.push_back(here ? marks[r] : nullptr);
  }
}

SingleCopy::Reading::Reading(const SingleCopy* copies) : copies_(copies) {
  if (copies == nullptr) return;
  std::atomic<std::uint32_t>& own = copies->marks_[static_cast<std::size_t>(copies->rank_)]->reading;
  // seq_cst, as the load below: with the store and the load in withdraw(), either the owner sees this mark or
  // this rank sees that the data is withdrawn.
  own.store(1, std::memory_order_seq_cst);
  for (std::size_t r = 0; r < copies->marks_.size(); ++r) {
    const ReadMarks* const marks = copies->marks_[r];
    if (marks == nullptr || marks->withdrawn.load(std::memory_order_seq_cst) == 0) continue;
    own.store(0, std::memory_order_release);
    throw Unreadable{.rank = static_cast<int>(r), .error = ECANCELED};
  }
}
SingleCopy::Reading::~Reading() {
  // release: pairs with the load in withdraw(); what was read comes before what the owner does next.
  if (copies_ == nullptr) return;
  copies_->marks_[static_cast<std::size_t>(copies_->rank_)]->reading.store(0, std::memory_order_release);
}

void SingleCopy::withdraw() const noexcept {
  if (!works()) return;
  // seq_cst, as the load below: see Reading.
  marks_[static_cast<std::size_t>(rank_)]->withdrawn.store(1, std::memory_order_seq_cst);
  for (std::size_t r = 0; r < marks_.size(); ++r) {
    if (marks_[r] == nullptr || static_cast<int>(r) == rank_) continue;
    // No deadline: a copying thread of this process always makes progress, and leaving earlier would let it read
    // freed memory.
    while (marks_[r]->reading.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

void SingleCopy::read_directly(const std::byte* from, void* to, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes; done += kReadPiece) {
    const Reading reading(this);
    copy(static_cast<std::byte*>(to) + done, from + done, std::min(kReadPiece, bytes - done));
  }
}

bool SingleCopy::can_show(std::span<const std::byte> data) const {
  if (one_process_) return true;
  return works() && (data.empty() || os::readable_by_others(data.data(), data.size()));
}

void SingleCopy::read(int r, const std::byte* from, void* to, std::size_t bytes) const {
  const pid_t process = processes_[static_cast<std::size_t>(r)];
  if (process == 0) {
    read_directly(from, to, bytes);
    return;
  }
  const int error = os::read_process(process, reinterpret_cast<std::uint64_t>(from), to, bytes);
  if (error != 0) throw Unreadable{.rank = r, .error = error};
}

bool always_wanted(std::span<const ProcessNotice> notices) {
  return std::ranges::any_of(
      notices, [](std::uint8_t wish) { return static_cast<Wish>(wish) == Wish::always; },
      &ProcessNotice::wish);
}

std::string find_objection(std::span<const ProcessNotice> notices, bool core_each) {
  bool same_process = true;
  for (std::size_t r = 0; r < notices.size(); ++r) {
    const auto wish = static_cast<Wish>(notices[r].wish);
    if (wish == Wish::never) return fmt::format("rank {} has ONEHOP_SINGLE_COPY=0", r);
    same_process = same_process && notices[r].process == notices[0].process;
  }
  if (same_process || core_each || always_wanted(notices)) return {};
  return "ranks share processors; ONEHOP_SINGLE_COPY=1 for it all the same";
}

std::string find_obstacle(std::span<const ProcessNotice> notices, int rank) {
  const ProcessNotice& own = notices[static_cast<std::size_t>(rank)];
  for (std::size_t r = 0; r < notices.size(); ++r) {
    const ProcessNotice& peer = notices[r];
    if (peer.process == own.process) continue;
    const auto refuse = [&](const std::string& reason) {
      return fmt::format("rank {} cannot read the memory of rank {}: {}", rank, r, reason);
    };
    if (peer.pid_namespace != own.pid_namespace) return refuse("it is in another PID namespace");
    os::Id sample{};
    if (const int error = os::read_process(peer.pid, peer.sample, &sample, sizeof sample); error != 0)
      return refuse(errno_text(error));
    if (sample != peer.process) return refuse("its process id names another process");
  }
  return {};
}

}  // namespace onehop::host
