// SPDX-License-Identifier: Apache-2.0
#include "topology/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "driver/driver_testing.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

DeviceFiles files_of(int gpus) {
  return {gpus, {kGpuSection, "device files", Health::works, "as many as there are", {}, false}};
}

/// Four H200 on which everything except fabric handles works, unless a test injects a failure.
class Diagnose : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    make_h200x4(machine_);
    machine_.failing.clear();
    for (FakeGpu& gpu : machine_.gpus) gpu.fabric.state = kNvmlFabricInProgress;
  }

  GpuDiagnosis diagnose() {
    const ScopedMachine scope(machine_);
    const GpuDiagnosis diagnosis = diagnose_gpus(files_of(4));
    EXPECT_TRUE(machine_.clean());
    check_form(diagnosis);
    return diagnosis;
  }
  static void check_form(const GpuDiagnosis& diagnosis) {
    EXPECT_EQ(diagnosis.summary.find('\n'), std::string::npos);
    EXPECT_THAT(diagnosis.summary, HasSubstr(diagnosis.usable ? "works here" : "does not work here"));
    for (const Finding& finding : diagnosis.findings) {
      EXPECT_EQ(finding.section, kGpuSection);
      EXPECT_FALSE(finding.essential) << "the host backend works without GPUs";
      EXPECT_NE(finding.detail, "") << finding.name;
      EXPECT_EQ(finding.health == Health::fails, !finding.remedy.empty()) << finding.name;
    }
  }
  static Finding finding(const GpuDiagnosis& diagnosis, const std::string& name) {
    const auto found = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                                    [&](const Finding& each) { return each.name == name; });
    if (found == diagnosis.findings.end()) return {};
    return *found;
  }
  /// Runs the diagnosis after a failure on GPU 2 only, and returns the finding that reports it.
  Finding broken_on_one(const std::string& name) {
    const GpuDiagnosis diagnosis = diagnose();
    EXPECT_TRUE(diagnosis.usable);
    EXPECT_EQ(diagnosis.summary, "the GPU backend works here: 3 of 4 GPUs");
    EXPECT_EQ(finding(diagnosis, name).health, Health::fails);
    EXPECT_THAT(finding(diagnosis, name).detail, AllOf(HasSubstr("GPU 2: "), Not(HasSubstr("GPU 3"))));
    EXPECT_THAT(finding(diagnosis, "peer access").detail, HasSubstr("all 6 directions"));
    return finding(diagnosis, name);
  }

  FakeMachine machine_;
};

TEST_F(Diagnose, AMachineWhereEverythingWorks) {
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_TRUE(diagnosis.usable);
  EXPECT_EQ(diagnosis.summary, "the GPU backend works here: 4 GPUs");
  EXPECT_EQ(finding(diagnosis, "CUDA driver").detail, "CUDA 12.8, driver 570.86.15");
  EXPECT_EQ(finding(diagnosis, "GPUs").detail, "4 x NVIDIA H200");
  EXPECT_THAT(finding(diagnosis, "peer access").detail, HasSubstr("all 12 directions"));
  EXPECT_THAT(finding(diagnosis, "NVLink").detail, HasSubstr("fully connected"));
  for (const Finding& each : diagnosis.findings) EXPECT_NE(each.health, Health::fails) << each.name;
  EXPECT_EQ(machine_.called("MemMap"), 4u);
  EXPECT_EQ(machine_.called("IpcGetMemHandle"), 4u);
}

TEST_F(Diagnose, FabricHandlesAndMulticastAreInformationOnly) {
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_EQ(finding(diagnosis, "fabric handles").health, Health::not_applicable);
  EXPECT_EQ(finding(diagnosis, "fabric handles").detail,
            "GPU 0,1,2,3: the device's registration with the NVLink fabric is still in progress (not needed "
            "inside one machine)");
  EXPECT_EQ(finding(diagnosis, "multicast").health, Health::not_applicable);
  EXPECT_THAT(finding(diagnosis, "multicast").detail, HasSubstr("4 of 4 GPUs; onehop never uses it"));

  for (FakeGpu& gpu : machine_.gpus) gpu.fabric.state = kNvmlFabricCompleted;
  machine_.gpus[1].attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 0;
  EXPECT_EQ(finding(diagnose(), "fabric handles").health, Health::works);
  EXPECT_THAT(finding(diagnose(), "multicast").detail, HasSubstr("3 of 4 GPUs"));
}

TEST_F(Diagnose, WithoutADriverThereIsOneLineThatSaysWhy) {
  const ScopedCudaDriver cuda(nullptr, "no NVIDIA driver on this machine: libcuda.so.1 not found");
  const ScopedNvml nvml(nullptr, "NVML cannot be loaded");
  const GpuDiagnosis none = diagnose_gpus(files_of(0));
  check_form(none);
  EXPECT_FALSE(none.usable);
  EXPECT_EQ(none.summary,
            "the GPU backend does not work here: no NVIDIA driver on this machine: libcuda.so.1 not found");
  for (const Finding& each : none.findings) EXPECT_NE(each.health, Health::fails) << each.name;

  const GpuDiagnosis hidden = diagnose_gpus(files_of(4));
  check_form(hidden);
  EXPECT_EQ(finding(hidden, "CUDA driver").health, Health::fails);
  EXPECT_EQ(finding(hidden, "NVML").health, Health::fails);
}

TEST_F(Diagnose, WithoutNvmlGpusWorkAndLinksAreNotKnown) {
  const ScopedCudaDriver cuda(&machine_.cuda);
  const ScopedNvml nvml(nullptr, "NVML cannot be loaded");
  const GpuDiagnosis diagnosis = diagnose_gpus(files_of(4));
  check_form(diagnosis);
  EXPECT_TRUE(diagnosis.usable);
  EXPECT_EQ(finding(diagnosis, "NVML").health, Health::fails);
  EXPECT_THAT(finding(diagnosis, "NVML").remedy, HasSubstr("utility"));
  EXPECT_EQ(finding(diagnosis, "NVLink").health, Health::not_applicable);
  EXPECT_EQ(finding(diagnosis, "CUDA driver").detail, "CUDA 12.8");
}

TEST_F(Diagnose, ADriverThatShowsNoGpuIsAFailure) {
  machine_.gpus.clear();
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_FALSE(diagnosis.usable);
  EXPECT_THAT(finding(diagnosis, "GPUs").remedy, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(diagnosis.summary, HasSubstr("GPUs: the driver shows none"));
}

TEST_F(Diagnose, AnOldGpuIsLeftOut) {
  machine_.gpus[2].name = "Tesla T4";
  machine_.gpus[2].compute_capability = 75;
  EXPECT_THAT(broken_on_one("compute capability").detail, HasSubstr("7.5"));
  EXPECT_THAT(finding(diagnose(), "GPUs").detail, HasSubstr("3 x NVIDIA H200, 1 x Tesla T4"));
}

TEST_F(Diagnose, AMigSliceIsExcludedHoweverItIsDetected) {
  machine_.gpus[2].mig_mode = 1;
  EXPECT_THAT(broken_on_one("MIG").remedy, HasSubstr("nvidia-smi -mig 0"));
  machine_.gpus[2].mig_mode = 0;
  machine_.gpus[2].name = "NVIDIA H200 MIG 1g.18gb";
  machine_.nvml.DeviceGetMigMode = nullptr;
  (void)broken_on_one("MIG");
}

TEST_F(Diagnose, ProhibitedGpusAreLeftOutAndExclusiveOnesNamed) {
  machine_.gpus[1].attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_MODE] = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  EXPECT_EQ(finding(diagnose(), "compute mode").health, Health::not_applicable);
  EXPECT_EQ(finding(diagnose(), "compute mode").detail, "GPU 1: for one process at a time");
  machine_.gpus[1].attributes.erase(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  machine_.gpus[2].attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_MODE] = CU_COMPUTEMODE_PROHIBITED;
  EXPECT_THAT(broken_on_one("compute mode").remedy, HasSubstr("nvidia-smi -c DEFAULT"));
}

TEST_F(Diagnose, VirtualMemoryIsNeeded) {
  auto& attributes = machine_.gpus[2].attributes;
  attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 0;
  EXPECT_THAT(broken_on_one("virtual memory").detail, HasSubstr("file descriptors"));
  attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  EXPECT_THAT(broken_on_one("virtual memory").detail, HasSubstr("no virtual memory management"));
}

TEST_F(Diagnose, SharingIsTriedForReal) {
  machine_.failing["MemSetAccess"] = CUDA_ERROR_UNKNOWN;
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_FALSE(diagnosis.usable);
  EXPECT_THAT(finding(diagnosis, "memory by descriptors").detail, HasSubstr("GPU 0,1,2,3: cuMemSetAccess"));
  EXPECT_THAT(diagnosis.summary, HasSubstr("memory by descriptors: GPU 0,1,2,3: cuMemSetAccess"));
}

TEST_F(Diagnose, AContextThatCannotBeHadIsAFailure) {
  machine_.failing["CtxSetCurrent"] = CUDA_ERROR_DEVICE_UNAVAILABLE;
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_FALSE(diagnosis.usable);
  EXPECT_THAT(finding(diagnosis, "memory by descriptors").detail, HasSubstr("cuCtxSetCurrent"));
}

TEST_F(Diagnose, CudaIpcIsAFailureButNotNeeded) {
  machine_.gpus[0].attributes[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 0;
  EXPECT_TRUE(diagnose().usable);
  EXPECT_THAT(finding(diagnose(), "CUDA IPC").detail, HasSubstr("GPU 0: the driver does not support it"));
  for (const char* step : {"MemAlloc", "IpcGetMemHandle", "MemFree"}) {
    machine_.failing = {{step, CUDA_ERROR_UNKNOWN}};
    const GpuDiagnosis diagnosis = diagnose();
    EXPECT_EQ(finding(diagnosis, "CUDA IPC").health, Health::fails);
    EXPECT_THAT(finding(diagnosis, "CUDA IPC").detail, HasSubstr(std::string("cu") + step));
    EXPECT_TRUE(diagnosis.usable);
  }
}

TEST_F(Diagnose, MissingPeerAccessIsNamedDirectionByDirection) {
  for (int peer = 1; peer < 4; ++peer) machine_.no_access.insert({{0, peer}, {peer, 0}});
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_EQ(finding(diagnosis, "peer access").health, Health::fails);
  EXPECT_EQ(
      finding(diagnosis, "peer access").detail,
      "missing in 6 of 12 directions: GPU 0 to GPU 1, GPU 0 to GPU 2, GPU 0 to GPU 3, GPU 1 to GPU 0 and 2 "
      "more");
  EXPECT_EQ(diagnosis.summary, "the GPU backend works here: 4 GPUs, but not all of them reach each other");
}

TEST_F(Diagnose, ASingleGpuHasNoPeersToMiss) {
  machine_.gpus.resize(1);
  const GpuDiagnosis diagnosis = diagnose();
  EXPECT_EQ(diagnosis.summary, "the GPU backend works here: 1 GPU");
  EXPECT_EQ(finding(diagnosis, "peer access").name, "");
}

TEST_F(Diagnose, MissingLinksAreInformation) {
  machine_.gpus[3].links.clear();
  const Finding nvlink = finding(diagnose(), "NVLink");
  EXPECT_EQ(nvlink.health, Health::not_applicable);
  EXPECT_THAT(nvlink.detail, HasSubstr("no link from GPU 0 to GPU 3"));
}

TEST_F(Diagnose, MpsIsNamed) {
  EXPECT_EQ(finding(diagnose(), "MPS").name, "");
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps", 1);
  EXPECT_THAT(finding(diagnose(), "MPS").detail,
              HasSubstr("set up, but not used (CUDA_MPS_PIPE_DIRECTORY=/tmp/mps)"));
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  machine_.gpus[0].attributes[CU_DEVICE_ATTRIBUTE_MPS_ENABLED] = 1;
  EXPECT_THAT(finding(diagnose(), "MPS").detail, HasSubstr("this process is its client"));
}

TEST(DiagnoseThisMachine, AnswersWhateverThereIs) {
  const GpuDiagnosis diagnosis = diagnose_gpus(files_of(0));
  EXPECT_NE(diagnosis.summary, "");
  EXPECT_GE(diagnosis.findings.size(), 3u);
}

}  // namespace
}  // namespace onehop
