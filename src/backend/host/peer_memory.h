// SPDX-License-Identifier: Apache-2.0
// Data that a rank reads where another rank's caller has it, with one copy instead of two through a staging
// area. It is reached in one of three ways: in symmetric memory, which every rank maps; in the same process; or
// in another process, by a system call (os/process_memory.h).
//
// Only data that is moved unchanged is read from another process. A reduction reads staged data as it combines
// it, so it makes one copy either way, and a copy by the kernel is the slower one.
//
// The owner of such data must leave it alone until the reader is done, which takes a step of step_barrier.h or
// an acknowledgement after the copy. A call that fails breaks that rule. So after the last copy every reader
// checks that no rank has reported a failure, before it trusts what it read.
//
// In one process the owner's caller may even free the data, and to read it then would crash all ranks. So a
// reader marks when it reads, and the owner of a failed call withdraws its data: it waits until no rank reads,
// and none begins to afterwards.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/host/copy.h"
#include "base/check.h"
#include "os/random.h"

namespace onehop::host {

/// What a rank tells the others when it joins, so that they can try to read its memory.
struct ProcessNotice {
  os::Id process{};                 ///< process_id()
  std::uint64_t pid_namespace = 0;  ///< 0: unknown
  std::uint64_t sample = 0;         ///< address of a copy of `process` in private memory
  std::uint64_t trial = 0;          ///< CopyTrial::address()
  std::int32_t pid = 0;
  std::uint8_t wish = 0;  ///< a Wish
};

/// ONEHOP_SINGLE_COPY.
enum class Wish : std::uint8_t {
  never,
  where_faster,  ///< if each rank can have a processor of its own; else the chunks of staging mix better
  always,
};
[[nodiscard]] Wish read_wish();

/// This process's notice. `sample` must live as long as the group is being formed.
[[nodiscard]] ProcessNotice make_notice(const os::Id& sample, Wish wish);

/// Whether one of these ranks wants it wherever it works.
[[nodiscard]] bool always_wanted(std::span<const ProcessNotice> notices);
/// Why these ranks do not try it; empty if they do. `core_each`: os::can_run_at_once.
[[nodiscard]] std::string find_objection(std::span<const ProcessNotice> notices, bool core_each);
/// Reads the sample of every other process. Returns why that fails, or an empty string.
[[nodiscard]] std::string find_obstacle(std::span<const ProcessNotice> notices, int rank);

/// Of one rank, in memory that all ranks of its process map; zero when the group starts.
struct ReadMarks {
  /// 1: the rank reads data of other ranks of its process.
  alignas(64) std::atomic<std::uint32_t> reading{0};
  /// 1: a call of the rank has failed, and its data belongs to its caller again. On its own cache line:
  /// readers load it every time, and it changes at most once.
  alignas(64) std::atomic<std::uint32_t> withdrawn{0};
};

/// Thrown when data cannot be read. The caller finds out whether the rank has died or given up.
struct Unreadable {
  int rank;
  int error;  ///< errno; ECANCELED: the rank has withdrawn its data
};

/// Bytes read at a time from ranks of the same process: about 0.1 ms.
inline constexpr std::size_t kReadPiece = 1 << 20;

/// Whether the ranks of a group read each other's private memory. All ranks have the same answer.
class SingleCopy {
 public:
  /// They do not.
  SingleCopy() = default;
  explicit SingleCopy(std::string obstacle) : obstacle_(std::move(obstacle)) {}
  /// They do. `notices` and `marks`: of all ranks. The marks must outlive this.
  SingleCopy(std::span<const ProcessNotice> notices, std::span<ReadMarks* const> marks, int rank);

  [[nodiscard]] bool works() const { return obstacle_.empty(); }
  /// Every rank maps every rank's memory, since they are threads of one process.
  [[nodiscard]] bool one_process() const { return one_process_; }
  /// Whether the others can read this rank's data.
  [[nodiscard]] bool can_show(std::span<const std::byte> data) const;
  /// Copies data that rank r showed. Precondition: works().
  void read(int r, const std::byte* from, void* to, std::size_t bytes) const;

  /// While it lives, this rank may read what ranks of its process showed. They wait for it when their calls
  /// fail, so it should live for a millisecond at most.
  class Reading {
   public:
    /// Throws Unreadable if one of the ranks has withdrawn its data. nullptr: nothing to protect.
    explicit Reading(const SingleCopy* copies);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    const SingleCopy* copies_;
  };
  /// To be called once a call of this rank has failed and the others can learn why. Afterwards no rank reads
  /// this rank's memory by its address.
  void withdraw() const noexcept;
  /// Why it does not work; empty if it does.
  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }

 private:
  /// Copies data of a rank of this process.
  void read_directly(const std::byte* from, void* to, std::size_t bytes) const;

  std::vector<pid_t> processes_;   ///< per rank: the process to read from, or 0 if it is this one
  std::vector<ReadMarks*> marks_;  ///< per rank; nullptr for ranks of other processes
  int rank_ = 0;
  bool one_process_ = false;
  std::string obstacle_ = "not used in this group";
};

/// Every rank's data of one call, where this rank can read it. Empty: it cannot, and the data is staged.
class PeerData {
 public:
  PeerData() = default;
  /// `at[r]` is an address in the process of rank r.
  PeerData(const std::byte* const* at, const SingleCopy& single_copy) : at_(at), single_copy_(&single_copy) {}
  /// `at[r]` is an address in this process, with `bytes[r]` bytes that this rank maps.
  PeerData(const std::byte* const* at, const std::size_t* bytes) : at_(at), bytes_(bytes) {}

  explicit operator bool() const { return at_ != nullptr; }
  /// Whether this rank maps all of it, so that it may use at() instead of read().
  [[nodiscard]] bool mapped() const {
    return at_ != nullptr && (single_copy_ == nullptr || single_copy_->one_process());
  }
  /// A part of rank r's data, to be used while there is a reading(). Precondition: mapped(). Throws
  /// Error{protocol} if it is not within memory of that rank, which announced where it begins.
  [[nodiscard]] const std::byte* at(int r, std::size_t offset, std::size_t bytes) const {
    require_within(r, offset, bytes);
    return at_[r] + offset;
  }
  [[nodiscard]] SingleCopy::Reading reading() const { return SingleCopy::Reading(single_copy_); }
  /// Copies bytes of rank r's data, in whatever way it is reached. Throws as at() does.
  void read(int r, std::size_t offset, void* to, std::size_t bytes) const {
    require_within(r, offset, bytes);
    const std::byte* const from = at_[r] + offset;
    if (single_copy_ != nullptr) {
      single_copy_->read(r, from, to, bytes);
    } else {
      copy(to, from, bytes);
    }
  }

 private:
  void require_within(int r, std::size_t offset, std::size_t bytes) const {
    if (bytes_ == nullptr || (bytes <= bytes_[r] && offset <= bytes_[r] - bytes)) [[likely]]
      return;
    fail_from(Rank{r}, ErrorCode::protocol, "rank {} announced data that is not within its symmetric memory",
              r);
  }

  const std::byte* const* at_ = nullptr;
  const std::size_t* bytes_ = nullptr;  ///< nullptr: the other rank's process knows
  const SingleCopy* single_copy_ = nullptr;
};

}  // namespace onehop::host
