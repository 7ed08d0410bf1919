// SPDX-License-Identifier: Apache-2.0
// How a group chooses the kind of handle by which it shares memory; and that any backend's handles arrive.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "onehop/onehop.h"

#include "base/check.h"
#include "group/exchange_blocks.h"
#include "group/host_rank.h"
#include "group/state.h"
#include "memory/backend.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/scoped_variable.h"

namespace onehop {
namespace {

using std::chrono::seconds;
using testing::Exit;
using ::testing::HasSubstr;
using testing::Processes;
using testing::run_process_group;
using testing::run_thread_group;
using testing::TempDir;

constexpr int kRanks = 3;

TEST(SingleCopy, IsUsedByAllRanksOrNone) {
  for (const char* const value : {"1", "0"}) {
    const TempDir store;
    Processes processes(kRanks, [&](Rank rank) -> std::string {
      if (rank == Rank{1}) (void)::setenv("ONEHOP_SINGLE_COPY", value, 1);
      const Group group = Group::join(file_store(store.path()), {.rank = rank, .size = kRanks});
      const host::SingleCopy& copies = HostRank::of(group.state()).single_copy();
      if (copies.works() != copies.obstacle().empty()) throw std::logic_error("works with an obstacle");
      return copies.works() ? "works" : copies.obstacle();
    });
    const std::vector<Exit> exits = processes.wait(seconds{20});
    for (const Exit& each : exits) {
      EXPECT_EQ(each.code, 0) << each.text;
      EXPECT_EQ(each.text, exits[0].text);
      if (*value == '0') {
        EXPECT_EQ(each.text, "rank 1 has ONEHOP_SINGLE_COPY=0");
      } else if (each.text != "works") {
        EXPECT_THAT(each.text, HasSubstr("cannot read the memory of rank"));
      }
    }
  }
}

TEST(SingleCopy, WorksAmongThreadsOfOneProcessAndInSubGroups) {
  run_thread_group(kRanks, [](Group& group) {
    EXPECT_TRUE(HostRank::of(group.state()).single_copy().one_process());
    const std::optional<Group> part = group.split(group.rank().value / 2, 0);
    EXPECT_TRUE(HostRank::of(part->state()).single_copy().one_process());
  });
  const testing::ScopedVariable on("ONEHOP_SINGLE_COPY", "1");
  run_process_group(kRanks, [](Group& group) {
    const std::optional<Group> part = group.split(group.rank().value / 2, 0);
    if (part->size() == 1) return;
    EXPECT_EQ(HostRank::of(part->state()).single_copy().works(),
              HostRank::of(group.state()).single_copy().works());
    EXPECT_FALSE(HostRank::of(part->state()).single_copy().one_process());
  });
}

/// The errors of joining on three processes, of which rank 1 has `variable` set to `value`.
std::vector<std::string> refusals_with(const char* variable, const char* value, ErrorCode code,
                                       const JoinOptions& options = {}) {
  const TempDir store;
  Processes processes(kRanks, [&](Rank rank) -> std::string {
    if (rank == Rank{1}) (void)::setenv(variable, value, 1);
    JoinOptions own = options;
    own.rank = rank;
    own.size = kRanks;
    try {
      (void)Group::join(file_store(store.path()), own);
    } catch (const Error& error) {
      if (error.code() != code || error.origin() != Rank{1})
        return fmt::format("{} from rank {}: {}", to_string(error.code()), error.origin().value,
                           error.what());
      return error.message();
    }
    return "joined";
  });
  std::vector<std::string> texts;
  for (const Exit& exit : processes.wait(seconds{40})) texts.push_back(exit.text);
  return texts;
}

TEST(Sharing, OfHostRanksIsByDescriptorsAndSaysSo) {
  for (const ShareBy asked : {ShareBy::automatic, ShareBy::posix_fd}) {
    run_thread_group(2,
                     [](Group& group) {
                       EXPECT_EQ(group.share_by(), ShareBy::posix_fd);
                       EXPECT_EQ(group.split(0)->share_by(), ShareBy::posix_fd);
                     },
                     {.rank = {}, .share_by = asked});
  }
}

TEST(Sharing, InAnotherWayIsRefusedByHostRanksOnAllRanks) {
  for (const char* kind : {"fabric", "ipc"}) {
    for (const std::string& text : refusals_with("ONEHOP_SHARE", kind, ErrorCode::unsupported)) {
      EXPECT_EQ(text,
                fmt::format("rank 1: host ranks share memory by file descriptors; '{}' is for GPUs: use "
                            "ONEHOP_SHARE=auto or fd",
                            kind));
    }
  }
}

TEST(Sharing, ByAnUnknownWayNamesTheLegalOnesOnAllRanks) {
  for (const std::string& text : refusals_with("ONEHOP_SHARE", "memfd", ErrorCode::invalid_argument)) {
    EXPECT_EQ(text, "rank 1: environment variable ONEHOP_SHARE='memfd' must be auto, fd, fabric or ipc");
  }
}

TEST(Sharing, TheOptionCountsMoreThanTheVariable) {
  const TempDir store;
  Processes processes(2, [&](Rank rank) {
    (void)::setenv("ONEHOP_SHARE", "fabric", 1);
    const Group group =
        Group::join(file_store(store.path()), {.rank = rank, .size = 2, .share_by = ShareBy::posix_fd});
    return std::string(to_string(group.share_by()));
  });
  for (const Exit& exit : processes.wait(seconds{40})) EXPECT_EQ(exit.text, "fd");
}

TEST(OverlappingDevices, AVariableThatIsNoFlagIsRefusedOnAllRanks) {
  for (const std::string& text :
       refusals_with("ONEHOP_ALLOW_OVERLAPPING_DEVICES", "maybe", ErrorCode::invalid_argument)) {
    EXPECT_EQ(text, "rank 1: environment variable ONEHOP_ALLOW_OVERLAPPING_DEVICES='maybe' must be 1 or 0");
  }
}

/// Mapped files. Their handle is their path, and a descriptor as well if requested.
class FileBackend final : public MemoryBackend {
 public:
  FileBackend(std::string directory, bool descriptor)
      : directory_(std::move(directory)), descriptor_(descriptor) {}

  [[nodiscard]] std::size_t granularity() const override { return 4096; }

  [[nodiscard]] Allocation create(std::size_t bytes) const override {
    const std::string path = fmt::format("{}/memory-{}", directory_, ::getpid());
    os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) fail_errno(errno, path);
    auto block = std::make_shared<Mapped>(file.get(), bytes);
    return {std::move(block), {.descriptor = descriptor_ ? std::move(file) : os::UniqueFd(), .bytes = path}};
  }

  [[nodiscard]] std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const override {
    require(static_cast<bool>(handle.descriptor) == descriptor_, "a descriptor is missing, or too many");
    const os::UniqueFd file(::open(handle.bytes.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) fail_errno(errno, handle.bytes);
    return std::make_shared<Mapped>(file.get(), bytes);
  }

  void adopt(Block&) const override {}

 private:
  class Mapped final : public Block {
   public:
    Mapped(int fd, std::size_t bytes)
        : data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), bytes_(bytes) {
      if (data_ == MAP_FAILED) fail_errno(errno, "mmap");
    }
    ~Mapped() override { (void)::munmap(data_, bytes_); }
    [[nodiscard]] std::byte* data() const override { return static_cast<std::byte*>(data_); }
    [[nodiscard]] std::size_t bytes() const override { return bytes_; }

   private:
    void* data_;
    std::size_t bytes_;
  };

  std::string directory_;
  bool descriptor_;
};

TEST(Sharing, HandlesOfBytesAndHandlesWithDescriptorsBothReachEveryProcess) {
  for (const bool descriptor : {false, true}) {
    const TempDir files;
    run_process_group(kRanks, [&](Group& group) {
      const FileBackend backend(files.path(), descriptor);
      const int before = testing::footprint().descriptors;
      const MappedBlocks blocks =
          exchange_blocks(group.state().mesh(), backend, 4096, 0, Deadline::after(seconds{20}), "test")
              .blocks;
      EXPECT_EQ(testing::footprint().descriptors, before) << "the descriptor that was sent is closed";
      const int rank = group.rank().value;
      ASSERT_EQ(blocks.size(), 3U);
      for (const auto& block : blocks) block->data()[rank] = static_cast<std::byte>(rank + 1);
      group.barrier();
      for (const auto& block : blocks) {
        for (int r = 0; r < kRanks; ++r) EXPECT_EQ(block->data()[r], static_cast<std::byte>(r + 1));
      }
    });
  }
}

}  // namespace
}  // namespace onehop
