// SPDX-License-Identifier: Apache-2.0
// The probe and the diagnosis on this machine's GPUs, if it has any.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "onehop/diagnose.h"

#include "driver/device.h"
#include "driver/nvml.h"
#include "driver/share_support.h"
#include "topology/probe.h"

namespace onehop {
namespace {

class RealDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (find_cuda_driver(&why) == nullptr) GTEST_SKIP() << "no GPU here: " << why;
    if (cuda_device_count() == 0) GTEST_SKIP() << "the driver shows no GPU";
  }
};

TEST_F(RealDevices, AreAllDescribed) {
  const Topology machine = Topology::probe();
  std::fputs(machine.to_text().c_str(), stdout);
  ASSERT_EQ(machine.device_count(), cuda_device_count());
  std::set<std::string> identities;
  for (const DeviceInfo& device : machine.devices()) {
    identities.insert(device.uuid);
    identities.insert(device.pci_bus_id);
    EXPECT_EQ(device.uuid.size(), 40u) << device.uuid;
    EXPECT_EQ(device.pci_bus_id.size(), 16u) << device.pci_bus_id;
    EXPECT_NE(device.name, "");
    EXPECT_GE(device.compute_capability, 50);
    EXPECT_GT(device.memory_bytes, std::uint64_t{1} << 30);
    EXPECT_NE(device.fabric_handles, !device.fabric_note.empty());
  }
  EXPECT_EQ(identities.size(), 2 * machine.devices().size());
  EXPECT_EQ(Topology::from_json(machine.to_json()), machine);
  EXPECT_EQ(Topology::probe(), machine);
}

TEST_F(RealDevices, HaveAsManyLinksInOneDirectionAsInTheOther) {
  if (find_nvml() == nullptr) GTEST_SKIP() << "no NVML here";
  const Topology machine = Topology::probe();
  for (int a = 0; a < machine.device_count(); ++a) {
    EXPECT_EQ(machine.pair(DeviceId{a}, DeviceId{a}).nvlinks, 0);
    for (int b = 0; b < machine.device_count(); ++b) {
      EXPECT_EQ(machine.pair(DeviceId{a}, DeviceId{b}).nvlinks,
                machine.pair(DeviceId{b}, DeviceId{a}).nvlinks);
    }
  }
}

TEST_F(RealDevices, AnswerAboutFabricHandlesWithoutLeavingAContextBehind) {
  for (int i = 0; i < cuda_device_count(); ++i) {
    const ShareSupport support = fabric_support(DeviceId{i});
    EXPECT_NE(support.reason, "");
    std::printf("GPU %d: fabric handles %s: %s\n", i, support.usable ? "work" : "do not work",
                support.reason.c_str());
  }
  CUcontext current = nullptr;
  ASSERT_EQ(cuda_driver().CtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
}

TEST_F(RealDevices, AreDiagnosed) {
  const GpuDiagnosis diagnosis = diagnose_gpus();
  std::printf("%s\n", diagnosis.summary.c_str());
  for (const Finding& finding : diagnosis.findings) {
    std::printf("  %-24s %s\n", finding.name.c_str(), finding.detail.c_str());
    EXPECT_EQ(finding.health == Health::fails, !finding.remedy.empty()) << finding.name;
  }
  EXPECT_TRUE(diagnosis.usable) << diagnosis.summary;
}

}  // namespace
}  // namespace onehop
