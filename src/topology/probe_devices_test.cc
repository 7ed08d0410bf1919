// SPDX-License-Identifier: Apache-2.0
// The GPU half of a probe, on fake machines.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "driver/driver_testing.h"
#include "topology/probe.h"
#include "topology/topology_testing.h"

namespace onehop {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ProbeDevices : public ::testing::Test {
 protected:
  void SetUp() override { make_h200x4(machine_); }

  FakeMachine machine_;
};

TEST_F(ProbeDevices, AMachineWithFourH200BehindAnNvswitchIsWhatItsFileSays) {
  const ScopedMachine scope(machine_);
  const Machine pci = machine_from_xml("h200x4");
  ASSERT_NE(pci, nullptr);
  const Topology expected = shipped("h200x4");
  const Topology probed = assemble({.host = expected.host(), .notes = {}}, probe_devices(pci.get()));
  EXPECT_EQ(probed, expected) << probed.to_json();
  EXPECT_EQ(Topology::from_json(probed.to_json()), probed);
  EXPECT_EQ(probed.connectivity(), Connectivity::fully_connected);
  EXPECT_EQ(probed.to_svg(), expected.to_svg());
  const std::string text = probed.to_text();
  EXPECT_THAT(text, HasSubstr("GPU3  NV18  NV18  NV18     X  "));
  EXPECT_THAT(text, HasSubstr("fabric handles of GPU 0-3 do not work, and are not needed: cuMemCreate:\n    "
                              "CUDA_ERROR_NOT_PERMITTED (800)"));
  EXPECT_TRUE(machine_.clean());
}

TEST_F(ProbeDevices, FabricHandlesThatWorkAreListed) {
  machine_.failing.clear();
  machine_.gpus[2].fabric.state = kNvmlFabricInProgress;
  const ScopedMachine scope(machine_);
  const Topology probed = assemble({}, probe_devices(nullptr));
  EXPECT_TRUE(probed.device(DeviceId{1}).fabric_handles);
  EXPECT_EQ(probed.device(DeviceId{1}).fabric_note, "");
  EXPECT_FALSE(probed.device(DeviceId{2}).fabric_handles);
  EXPECT_EQ(probed.device(DeviceId{2}).fabric, FabricState::in_progress);
  EXPECT_EQ(Topology::from_json(probed.to_json()), probed);
  EXPECT_THAT(probed.to_text(), HasSubstr("fabric handles of GPU 0-1,3 work\n"));
  EXPECT_THAT(probed.to_text(), HasSubstr("fabric handles of GPU 2 do not work"));
}

TEST_F(ProbeDevices, WithoutNvmlLinksAreNotKnownAndThereIsOneNote) {
  const ScopedCudaDriver cuda(&machine_.cuda);
  const ScopedNvml none(nullptr, "NVML cannot be loaded: libnvidia-ml.so.1 not found");
  const Machine pci = machine_from_xml("h200x4");
  const DeviceProbe probe = probe_devices(pci.get());
  ASSERT_THAT(probe.devices, SizeIs(4));
  EXPECT_EQ(probe.devices[0].fabric, FabricState::unsupported);
  for (const PairInfo& pair : probe.pairs) {
    EXPECT_EQ(pair.nvlinks, pair.path == PciPath::self ? 0 : -1);
    EXPECT_TRUE(pair.peer_access);
  }
  EXPECT_EQ(probe.pairs[1].path, PciPath::node);
  EXPECT_THAT(probe.notes, ElementsAre(HasSubstr("libnvidia-ml.so.1 not found")));
  const Topology probed = assemble({}, probe);
  EXPECT_EQ(probed.explain_connectivity(),
            "unknown (NVLinks from GPU 0 to GPU 1, and 11 more directions, are not known)");
  EXPECT_EQ(Topology::from_json(probed.to_json()), probed);
}

TEST_F(ProbeDevices, WhatRanksTellEachOtherIsWhatTheWholeProbeSays) {
  const ScopedMachine scope(machine_);
  const Topology whole = assemble({}, probe_devices(nullptr));
  for (int i = 0; i < whole.device_count(); ++i) {
    const DeviceInfo own = probe_identity(DeviceId{i});
    const DeviceInfo& expected = whole.device(DeviceId{i});
    EXPECT_EQ(own.uuid, expected.uuid);
    EXPECT_EQ(own.name, expected.name);
    EXPECT_EQ(own.pci_bus_id, expected.pci_bus_id);
    EXPECT_EQ(own.compute_capability, expected.compute_capability);
  }
  (void)message_of([] { (void)probe_identity(DeviceId{4}); }, ErrorCode::invalid_argument);
  const std::vector<int> links =
      probe_nvlinks({whole.devices()[3].pci_bus_id, whole.devices()[1].pci_bus_id});
  EXPECT_THAT(links, ElementsAre(0, 18, 18, 0));
}

TEST_F(ProbeDevices, WithoutADriverThereIsItsReason) {
  const ScopedCudaDriver none(nullptr, "no NVIDIA driver on this machine: libcuda.so.1 not found");
  const DeviceProbe probe = probe_devices(nullptr);
  EXPECT_THAT(probe.devices, IsEmpty());
  EXPECT_THAT(probe.pairs, IsEmpty());
  EXPECT_THAT(probe.notes, ElementsAre("no NVIDIA driver on this machine: libcuda.so.1 not found"));
}

TEST_F(ProbeDevices, ADriverThatShowsNoDeviceIsNoted) {
  machine_.gpus.clear();
  const ScopedMachine scope(machine_);
  EXPECT_THAT(probe_devices(nullptr).notes, ElementsAre(HasSubstr("shows no GPU")));
}

TEST_F(ProbeDevices, PairsAreDirected) {
  machine_.no_access.insert({2, 1});
  const ScopedMachine scope(machine_);
  const Topology probed = assemble({}, probe_devices(nullptr));
  EXPECT_FALSE(probed.pair(DeviceId{2}, DeviceId{1}).peer_access);
  EXPECT_FALSE(probed.pair(DeviceId{2}, DeviceId{1}).native_atomics);
  EXPECT_TRUE(probed.pair(DeviceId{1}, DeviceId{2}).peer_access);
  EXPECT_TRUE(probed.pair(DeviceId{1}, DeviceId{2}).native_atomics);
}

TEST_F(ProbeDevices, ADeviceThatDoesNotAnswerKeepsItsNumber) {
  machine_.cuda.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    uuid->bytes[0] = static_cast<char>(device);
    return device == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
  };
  const ScopedMachine scope(machine_);
  const DeviceProbe probe = probe_devices(nullptr);
  ASSERT_THAT(probe.devices, SizeIs(4));
  EXPECT_EQ(probe.devices[1].uuid, "GPU-unknown-1");
  EXPECT_EQ(probe.devices[2].pci_bus_id, "00000000:9b:00.0");
  EXPECT_THAT(probe.notes, Contains(HasSubstr("GPU 1 does not answer: cuDeviceGetUuid")));
  const Topology probed = assemble({}, probe);
  EXPECT_EQ(Topology::from_json(probed.to_json()), probed);
}

TEST_F(ProbeDevices, DevicesBeyondTheLimitAreLeftOutAndCounted) {
  constexpr int kCount = kMaxTopologyDevices + 2;
  const FakeGpu model = machine_.gpus[0];
  for (int i = 4; i < kCount; ++i) {
    machine_.gpus.push_back(model);
    machine_.gpus.back().bus_id = fmt::format("0000{:04X}:01:00.0", i);
  }
  const ScopedMachine scope(machine_);
  const DeviceProbe probe = probe_devices(nullptr);
  ASSERT_EQ(probe.devices.size(), 64u);
  ASSERT_EQ(probe.pairs.size(), 64u * 64u);
  EXPECT_THAT(probe.notes, Contains("only the first 64 of 66 GPUs are listed"));
  EXPECT_EQ(probe.pairs.at(kMaxTopologyDevices - 1).nvlinks, 18) << "from the first to the last";
}

TEST_F(ProbeDevices, AttributesTheDriverRefusesAreUnknown) {
  machine_.failing["DeviceGetP2PAttribute"] = CUDA_ERROR_INVALID_VALUE;
  const ScopedMachine scope(machine_);
  const DeviceProbe probe = probe_devices(nullptr);
  EXPECT_EQ(probe.pairs[1].performance_rank, -1);
  EXPECT_FALSE(probe.pairs[1].native_atomics);
  EXPECT_TRUE(probe.pairs[1].peer_access);
}

TEST_F(ProbeDevices, NvmlAndFabricHandlesAreAskedOnce) {
  const ScopedMachine scope(machine_);
  const DeviceProbe first = probe_devices(nullptr);
  // A second query would crash.
  machine_.nvml.DeviceGetNvLinkState = nullptr;
  machine_.nvml.DeviceGetGpuFabricInfoV = nullptr;
  machine_.nvml.DeviceGetGpuFabricInfo = nullptr;
  machine_.cuda.MemCreate = nullptr;
  EXPECT_EQ(probe_devices(nullptr).devices, first.devices);
  EXPECT_EQ(probe_devices(nullptr).pairs, first.pairs);
}

TEST_F(ProbeDevices, ThreadsMayProbeTogether) {
  const ScopedMachine scope(machine_);
  std::vector<DeviceProbe> probes(8);
  std::vector<std::thread> threads;
  for (DeviceProbe& probe : probes) threads.emplace_back([&probe] { probe = probe_devices(nullptr); });
  for (std::thread& thread : threads) thread.join();
  for (const DeviceProbe& probe : probes) {
    EXPECT_EQ(probe.devices, probes[0].devices);
    EXPECT_EQ(probe.pairs, probes[0].pairs);
  }
  EXPECT_EQ(machine_.called("DeviceGetNvLinkState"), 4u * 18u) << "walked once";
  EXPECT_EQ(machine_.called("MemCreate"), 4u);
}

}  // namespace
}  // namespace onehop
