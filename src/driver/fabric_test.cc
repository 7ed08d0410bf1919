// SPDX-License-Identifier: Apache-2.0
#include "driver/fabric.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "onehop/error.h"

#include "driver/driver_testing.h"
#include "driver/share_support.h"
#include "driver/share_trial.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr DeviceId kFirst{0};
constexpr DeviceId kLast{3};

/// A machine on which fabric handles work unless a test injects a failure.
class Fabric : public ::testing::Test {
 protected:
  void SetUp() override {
    make_h200x4(machine_);
    machine_.failing.clear();
  }

  /// Expects a negative, cached result with this reason, and all resources released.
  void expect_no(const std::string& reason) {
    const ScopedMachine scope(machine_);
    const ShareSupport support = fabric_support(kFirst);
    EXPECT_FALSE(support.usable);
    EXPECT_THAT(support.reason, HasSubstr(reason));
    EXPECT_EQ(support.reason.find('\n'), std::string::npos);
    EXPECT_TRUE(machine_.clean());
    const std::size_t calls = machine_.called("MemCreate") + machine_.called("DeviceGetAttribute");
    EXPECT_EQ(fabric_support(kFirst).reason, support.reason);
    EXPECT_EQ(machine_.called("MemCreate") + machine_.called("DeviceGetAttribute"), calls);
  }

  FakeMachine machine_;
};

TEST_F(Fabric, IsUsableWhenTheWholeCycleSucceeds) {
  machine_.gpus[3].fabric.clique_id = 7;
  machine_.gpus[3].fabric.cluster_uuid[15] = 0xab;
  const ScopedMachine scope(machine_);
  const ShareSupport support = fabric_support(kLast);
  EXPECT_TRUE(support.usable) << support.reason;
  EXPECT_EQ(support.reason, "clique 7 of cluster 00000000-0000-0000-0000-0000000000ab");
  EXPECT_EQ(machine_.called("MemCreate"), 1u);
  EXPECT_EQ(machine_.called("MemImportFromShareableHandle"), 1u);
  EXPECT_EQ(machine_.called("MemRelease"), 2u);
  EXPECT_TRUE(machine_.clean());
  EXPECT_EQ(machine_.called("DevicePrimaryCtxRetain"), 0u) << "a look takes no context";
  EXPECT_TRUE(fabric_support(kLast).usable);
  EXPECT_EQ(machine_.called("MemCreate"), 1u);
}

TEST_F(Fabric, IsTriedWithPinnedMemoryOfTheDeviceThatIsAskedFor) {
  const ScopedMachine scope(machine_);
  ASSERT_TRUE(fabric_support(kLast).usable);
  const CUmemAllocationProp& request = machine_.last_request;
  EXPECT_EQ(request.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(request.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(request.location.id, kLast.value);
  EXPECT_EQ(request.requestedHandleTypes, CU_MEM_HANDLE_TYPE_FABRIC);
  EXPECT_EQ(machine_.last_request_bytes, std::size_t{2} << 20);
  EXPECT_EQ(machine_.last_granularity, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

TEST_F(Fabric, IsLoggedAtLevelDebugWhicheverWayItTurnsOut) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  machine_.gpus[0].fabric.state = kNvmlFabricNotStarted;
  EXPECT_EXIT(
      {
        (void)::setenv("ONEHOP_LOG", "debug", 1);
        const ScopedMachine scope(machine_);
        (void)fabric_support(kFirst);
        (void)fabric_support(kLast);
        machine_.failing["MemCreate"] = CUDA_ERROR_OUT_OF_MEMORY;
        (void)fabric_support(DeviceId{1});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      AllOf(HasSubstr("fabric handles of device 0: not usable: "),
            HasSubstr("fabric handles of device 3: usable: clique "),
            HasSubstr("fabric handles of device 1: not usable now: cuMemCreate: ")));
}

TEST_F(Fabric, ANoForWantOfMemoryIsNotKept) {
  machine_.failing["MemCreate"] = CUDA_ERROR_OUT_OF_MEMORY;
  const ScopedMachine scope(machine_);
  const ShareSupport short_of_memory = fabric_support(kFirst);
  EXPECT_FALSE(short_of_memory.usable);
  EXPECT_THAT(short_of_memory.reason, HasSubstr("cuMemCreate: "));
  EXPECT_TRUE(machine_.clean());
  machine_.failing.clear();
  EXPECT_TRUE(fabric_support(kFirst).usable) << fabric_support(kFirst).reason;
}

TEST_F(Fabric, IsAnsweredForTheDeviceThatIsAskedFor) {
  machine_.gpus[0].fabric.state = kNvmlFabricNotStarted;
  const ScopedMachine scope(machine_);
  EXPECT_FALSE(fabric_support(kFirst).usable);
  EXPECT_TRUE(fabric_support(kLast).usable);
  EXPECT_THROW((void)fabric_support(DeviceId{4}), Error);
  EXPECT_THROW((void)fabric_support(DeviceId::host), Error);
}

TEST_F(Fabric, NeedsTheDriversOffer) {
  machine_.gpus[0].attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED] = 0;
  expect_no("does not offer");
  EXPECT_EQ(machine_.called("DeviceGetGpuFabricInfoV"), 0u);
}

TEST_F(Fabric, AnAttributeTheDriverDoesNotKnowIsANo) {
  machine_.failing["DeviceGetAttribute"] = CUDA_ERROR_INVALID_VALUE;
  expect_no("does not offer");
}

TEST_F(Fabric, WithoutNvmlIsNotUsableAndSaysWhy) {
  const ScopedCudaDriver cuda(&machine_.cuda);
  const ScopedNvml none(nullptr, "NVML cannot be loaded: libnvidia-ml.so.1 not found");
  EXPECT_FALSE(fabric_support(kFirst).usable);
  EXPECT_THAT(fabric_support(kFirst).reason, HasSubstr("libnvidia-ml.so.1 not found"));
  EXPECT_EQ(machine_.called("MemCreate"), 0u);
}

TEST_F(Fabric, NeedsTheQuery) {
  machine_.nvml.DeviceGetGpuFabricInfoV = nullptr;
  machine_.nvml.DeviceGetGpuFabricInfo = nullptr;
  expect_no("has no fabric query");
}

TEST_F(Fabric, IsAskedForByTheNewQueryFirst) {
  {
    const ScopedMachine scope(machine_);
    EXPECT_TRUE(fabric_support(kFirst).usable);
  }
  EXPECT_EQ(machine_.called("DeviceGetGpuFabricInfoV"), 1u);
  EXPECT_EQ(machine_.called("DeviceGetGpuFabricInfo"), 0u);
  machine_.nvml.DeviceGetGpuFabricInfo = nullptr;
  const ScopedMachine scope(machine_);
  EXPECT_TRUE(fabric_support(kFirst).usable);
  EXPECT_EQ(machine_.called("DeviceGetGpuFabricInfoV"), 2u);
}

TEST_F(Fabric, FieldsThatTheNewQueryLeavesOutAreANo) {
  machine_.nvml.DeviceGetGpuFabricInfoV = [](NvmlDevice, NvmlFabricInfoV2*) { return kNvmlSuccess; };
  expect_no("the device has no NVLink fabric");
}

TEST_F(Fabric, OlderDriversAreAskedByTheOlderQuery) {
  machine_.nvml.DeviceGetGpuFabricInfoV = nullptr;
  {
    const ScopedMachine scope(machine_);
    EXPECT_TRUE(fabric_support(kFirst).usable);
  }
  machine_.gpus[0].fabric.state = kNvmlFabricInProgress;
  expect_no("still in progress");
}

TEST_F(Fabric, ANewQueryThatFailsIsRepeatedWithTheOldOne) {
  machine_.failing["DeviceGetGpuFabricInfoV"] = kNvmlInvalidArgument;
  {
    const ScopedMachine scope(machine_);
    EXPECT_TRUE(fabric_support(kFirst).usable);
  }
  machine_.failing["DeviceGetGpuFabricInfo"] = kNvmlUnknown;
  expect_no("fabric query fails: some text (NVML error 999)");
}

TEST_F(Fabric, ADeviceUnknownToNvmlIsANo) {
  machine_.gpus[0].nvml_knows = false;
  expect_no("NVML does not find device 00000000:19:00.0");
}

TEST_F(Fabric, ADeviceWithoutFabricIsANo) {
  machine_.gpus[0].fabric.state = kNvmlFabricNotSupported;
  expect_no("has no NVLink fabric");
  machine_.failing["DeviceGetGpuFabricInfo"] = machine_.failing["DeviceGetGpuFabricInfoV"] =
      kNvmlNotSupported;
  expect_no("has no NVLink fabric");
}

TEST_F(Fabric, ARegistrationThatIsNotCompletedIsANo) {
  machine_.gpus[0].fabric.state = kNvmlFabricNotStarted;
  expect_no("has not started");
  machine_.gpus[0].fabric.state = kNvmlFabricInProgress;
  expect_no("still in progress");
  machine_.gpus[0].fabric.state = 9;
  expect_no("fabric state 9");
  EXPECT_EQ(machine_.called("MemCreate"), 0u);
}

TEST_F(Fabric, ARegistrationThatFailedIsANoThatNamesTheClique) {
  machine_.gpus[0].fabric.status = kNvmlUnknown;
  machine_.gpus[0].fabric.clique_id = 5;
  expect_no("failed: some text (NVML error 999) (clique 5 of cluster 00000000-");
}

TEST_F(Fabric, HandlesThatAreNotPermittedAreAQuietExplainedNo) {
  machine_.failing["MemCreate"] = CUDA_ERROR_NOT_PERMITTED;
  ::testing::internal::CaptureStderr();
  expect_no(
      "cuMemCreate: CUDA_ERROR_NOT_PERMITTED (800): operation not permitted; fabric handles need an IMEX");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(machine_.called("MemRelease"), 0u);
}

TEST_F(Fabric, AnyStepThatFailsIsANoAndNothingIsKept) {
  constexpr std::pair<const char*, const char*> kSteps[] = {
      {"MemGetAllocationGranularity", "cuMemGetAllocationGranularity"},
      {"MemCreate", "cuMemCreate"},
      {"MemExportToShareableHandle", "cuMemExportToShareableHandle"},
      {"MemImportFromShareableHandle", "cuMemImportFromShareableHandle"},
      {"MemRelease", "cuMemRelease"},
  };
  for (const auto& [function, name] : kSteps) {
    SCOPED_TRACE(function);
    machine_.failing = {{function, CUDA_ERROR_UNKNOWN}};
    expect_no(name + std::string(": CUDA_ERROR_OTHER (999)"));
    expect_no("clique 0 of cluster 00000000-");
  }
}

TEST_F(Fabric, ADriverThatWantsAContextGetsOne) {
  machine_.needs_context = true;
  const ScopedMachine scope(machine_);
  EXPECT_TRUE(fabric_support(kFirst).usable) << fabric_support(kFirst).reason;
  EXPECT_EQ(machine_.called("MemCreate"), 2u);
  EXPECT_TRUE(machine_.clean());
}

TEST_F(Fabric, WithoutADriverEveryDeviceIsAnError) {
  const ScopedCudaDriver none(nullptr, "no NVIDIA driver on this machine");
  EXPECT_THROW((void)fabric_support(kFirst), Error);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  (void)::closedir(directory);
  return count;
}

TEST_F(Fabric, SharingByDescriptorsGivesEverythingBackWhereverItFails) {
  constexpr const char* kSteps[] = {
      "MemGetAllocationGranularity",
      "MemCreate",
      "MemExportToShareableHandle",
      "MemImportFromShareableHandle",
      "MemAddressReserve",
      "MemMap",
      "MemSetAccess",
      "MemUnmap",
      "MemAddressFree",
      "MemRelease",
  };
  const ScopedMachine scope(machine_);
  const std::size_t before = open_descriptors();
  const auto share = [&] {
    return try_sharing(machine_.cuda, kFirst, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, ShareTrial::map);
  };
  EXPECT_FALSE(share().has_value());
  EXPECT_TRUE(machine_.clean());
  for (const char* step : kSteps) {
    machine_.failing = {{step, CUDA_ERROR_OUT_OF_MEMORY}};
    const auto failure = share();
    ASSERT_TRUE(failure.has_value()) << step;
    EXPECT_EQ(failure->call, "cu" + std::string(step));
    EXPECT_EQ(failure->result, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(machine_.clean()) << step;
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace onehop
