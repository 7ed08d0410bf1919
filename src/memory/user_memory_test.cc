// SPDX-License-Identifier: Apache-2.0
#include "memory/user_memory.h"

#include "memory/cuda_testing.h"
#include "support/errors.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kBytes = FakeCuda::kGranularity;
constexpr DeviceId kHere{0};
constexpr DeviceId kPeer{1};

/// Returns the memory as if another process had shared it.
UserMemory from_elsewhere(UserMemory memory) {
  memory.place = from_elsewhere(memory.place);
  return memory;
}

TEST(UserMemory, OfCudaMallocGoesByCudaIpcFromAnyOffset) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({});
  const SharedUserMemory shared = share_user_memory(base + 1000, 50, kHere);
  EXPECT_FALSE(shared.memory.has_descriptor);
  EXPECT_FALSE(shared.descriptor);
  EXPECT_EQ(shared.memory.place.offset, 1000U);

  const std::shared_ptr<Block> theirs = map_user_memory(from_elsewhere(shared.memory), {}, kPeer);
  EXPECT_EQ(theirs->bytes(), 50U) << "what was shared, and not its whole allocation";
  EXPECT_EQ(cuda.opened(), 1U);
  const std::shared_ptr<Block> own = map_user_memory(shared.memory, {}, kPeer);
  EXPECT_EQ(own->data(), base + 1000) << "ranks of one process use it as it is";
}

TEST(UserMemory, SharedAgainIsNotOpenedAgain) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({});
  const UserMemory first = from_elsewhere(share_user_memory(base, kBytes, kHere).memory);
  std::shared_ptr<Block> theirs = map_user_memory(first, {}, kPeer);
  for (int again = 0; again < 3; ++again) {
    const UserMemory next = from_elsewhere(share_user_memory(base, kBytes, kHere).memory);
    EXPECT_EQ(map_user_memory(next, {}, kPeer)->data(), theirs->data());
  }
  const UserMemory part = from_elsewhere(share_user_memory(base + 4096, 10, kHere).memory);
  EXPECT_EQ(map_user_memory(part, {}, kPeer)->data(), theirs->data() + 4096);
  EXPECT_EQ(cuda.openings(), 1);
  theirs.reset();
  EXPECT_EQ(cuda.opened(), 0U);
}

TEST(UserMemory, FreedAndAllocatedAgainAtTheSameAddressIsNotTakenForWhatItWas) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({.id = 77});
  const UserMemory shared = share_user_memory(base, 100, kHere).memory;
  const std::shared_ptr<Block> theirs = map_user_memory(from_elsewhere(shared), {}, kPeer);
  EXPECT_TRUE(still_there(shared));

  cuda.remove_memory(base);
  EXPECT_FALSE(still_there(shared));
  cuda.reuse_address(base, {.id = 78});
  EXPECT_FALSE(still_there(shared));

  const UserMemory anew = share_user_memory(base, 100, kHere).memory;
  EXPECT_TRUE(still_there(anew));
  EXPECT_NE(map_user_memory(from_elsewhere(anew), {}, kPeer)->data(), theirs->data());
  EXPECT_EQ(cuda.openings(), 2) << "another allocation is another opening";
}

TEST(UserMemory, WithoutAnIdIsNeverTakenForStillThere) {
  FakeCuda cuda;
  UserMemory shared = share_user_memory(cuda.add_memory({}), 100, kHere).memory;
  shared.place.allocation = 0;
  EXPECT_FALSE(still_there(shared));
}

TEST(UserMemory, OfVmmGoesByItsDescriptor) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({.vmm = true, .ipc = false});
  SharedUserMemory shared = share_user_memory(base + 4096, 100, kHere);
  EXPECT_TRUE(shared.memory.has_descriptor);
  ASSERT_TRUE(shared.descriptor);
  EXPECT_EQ(cuda.living(), 0U) << "what was retained to export it is released";
  {
    const std::shared_ptr<Block> theirs =
        map_user_memory(from_elsewhere(shared.memory), std::move(shared.descriptor), kPeer);
    EXPECT_EQ(theirs->bytes(), 100U);
    EXPECT_THAT(cuda.access(theirs->data() - 4096), UnorderedElementsAre(1));
    std::memset(theirs->data(), 1, theirs->bytes());
  }
  EXPECT_EQ(cuda.living(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(UserMemory, OfVmmIsGrantedToOtherRanksOfTheProcess) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({.vmm = true, .ipc = false});
  const UserMemory shared = share_user_memory(base + 10, 100, kHere).memory;
  EXPECT_EQ(map_user_memory(shared, {}, kPeer)->data(), base + 10);
  EXPECT_THAT(cuda.access(base), UnorderedElementsAre(1));
  cuda.remove_memory(base);
  EXPECT_THAT(error_of([&] { (void)map_user_memory(shared, {}, kPeer); }).message(),
              HasSubstr("not allocated any more"));
}

TEST(UserMemory, ThatCannotBeSharedSaysWhatItIsAndWhatToUseInstead) {
  FakeCuda cuda;
  int local = 0;
  const auto refusal = [&](const void* data, std::size_t bytes = 1) {
    const Error error = error_of([&] { (void)share_user_memory(data, bytes, kHere); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.message();
    return error.message();
  };
  EXPECT_THAT(refusal(&local), HasSubstr("which is host memory"));
  EXPECT_THAT(refusal(nullptr), HasSubstr("which is host memory"));
  EXPECT_THAT(refusal(cuda.add_memory({.managed = true})), HasSubstr("managed memory cannot be shared"));
  EXPECT_THAT(refusal(cuda.add_memory({.pool = true, .vmm = true, .ipc = false})),
              HasSubstr("instead of cudaMallocAsync"));
  EXPECT_THAT(refusal(cuda.add_memory({.ipc = false})), HasSubstr("which is other memory"));
  EXPECT_THAT(
      refusal(cuda.add_memory({.vmm = true, .exportable = false, .ipc = false})),
      AllOf(HasSubstr("without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"), HasSubstr("DeviceMemory")));
  EXPECT_THAT(refusal(cuda.add_memory({.device = 1})),
              HasSubstr("it is memory of device 1, and this rank's is device 0"));
  EXPECT_THAT(refusal(cuda.add_memory({.device = 1, .vmm = true, .ipc = false})),
              HasSubstr("it is memory of device 1"));
  EXPECT_THAT(refusal(cuda.add_memory({}), 0), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(cuda.add_memory({}) + 1, kBytes), HasSubstr("its allocation of 2097152 bytes ends"));
  EXPECT_THAT(refusal(cuda.add_memory({.vmm = true, .ipc = false}) + 1, kBytes),
              HasSubstr("its allocation of 2097152 bytes ends"));
  EXPECT_EQ(cuda.living(), 0U);
}

TEST(UserMemory, LeaksNothingWhicheverCallFails) {
  FakeCuda cuda;
  for (const bool vmm : {false, true}) {
    std::byte* const base = cuda.add_memory({.vmm = vmm, .ipc = !vmm});
    int errors = 0;
    for (int call = 1; call < 100; ++call) {
      cuda.fail_call(call);
      try {
        SharedUserMemory shared = share_user_memory(base, 100, kHere);
        (void)map_user_memory(from_elsewhere(shared.memory), std::move(shared.descriptor), kPeer);
        (void)map_user_memory(shared.memory, {}, kPeer);
      } catch (const Error&) {
        ++errors;
      }
      const std::string failed = cuda.failed();
      cuda.fail_call(0);
      EXPECT_EQ(cuda.living() + cuda.opened(), 0U) << "after " << failed << " failed";
      EXPECT_THAT(cuda.wrongs(), IsEmpty()) << "after " << failed << " failed";
      if (failed.empty()) break;
    }
    EXPECT_GT(errors, 10);
  }
}

}  // namespace
}  // namespace onehop
