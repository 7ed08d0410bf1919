// SPDX-License-Identifier: Apache-2.0
#include "onehop/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/scoped_variable.h"
#include "topology/topology_testing.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

std::vector<DeviceId> ids(std::initializer_list<int> numbers) {
  std::vector<DeviceId> devices;
  for (const int number : numbers) devices.emplace_back(number);
  return devices;
}

TEST(Topology, HostRanksAreFullyConnected) {
  const Topology none;
  EXPECT_EQ(none.connectivity(), Connectivity::fully_connected);
  EXPECT_EQ(none.connectivity({DeviceId::host, DeviceId::host}), Connectivity::fully_connected);
  EXPECT_EQ(shipped("pcie4").connectivity({}), Connectivity::fully_connected);
  EXPECT_EQ(none.explain_connectivity(), "fully connected (host ranks share memory)");
}

TEST(Topology, AHostRankAndADeviceHaveNoDirectLink) {
  const Topology machine = shipped("h200x4");
  EXPECT_EQ(machine.connectivity({DeviceId::host, DeviceId{0}}), Connectivity::unknown);
  EXPECT_EQ(machine.explain_connectivity({DeviceId::host, DeviceId{0}}),
            "not fully connected by NVLink (no link from the host to GPU 0, and 1 more direction)");
}

TEST(Topology, ASwitchFabricConnectsEverySubset) {
  const Topology machine = shipped("h100x8");
  EXPECT_EQ(machine.device_count(), 8);
  EXPECT_EQ(machine.connectivity(), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({7, 0})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({1, 3, 5})), Connectivity::fully_connected);
  EXPECT_EQ(shipped("h200x4").connectivity(), Connectivity::fully_connected);
}

TEST(Topology, PcieAloneIsNeverFullyConnectedNotEvenWithPeerAccess) {
  const Topology machine = shipped("pcie4");
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  EXPECT_TRUE(machine.pair(DeviceId{0}, DeviceId{1}).peer_access);
  EXPECT_EQ(machine.connectivity(ids({0, 1})), Connectivity::unknown);
  EXPECT_FALSE(machine.pair(DeviceId{1}, DeviceId{2}).peer_access);
}

TEST(Topology, AHybridCubeMeshIsConnectedWithinItsQuadsOnly) {
  const Topology machine = shipped("hybrid_cube_mesh");
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  EXPECT_EQ(machine.connectivity(ids({0, 1, 2, 3})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({7, 6, 5, 4})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({0, 4})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({0, 5})), Connectivity::unknown);
  EXPECT_EQ(machine.connectivity(ids({0, 1, 4, 5})), Connectivity::unknown);
  for (int i = 0; i < 8; ++i) {
    int links = 0;
    for (int j = 0; j < 8; ++j) {
      const PairInfo& pair = machine.pair(DeviceId{i}, DeviceId{j});
      links += pair.nvlinks;
      EXPECT_EQ(pair.nvlinks, machine.pair(DeviceId{j}, DeviceId{i}).nvlinks);
      EXPECT_EQ(pair.peer_access, i == j || pair.nvlinks > 0);
    }
    EXPECT_EQ(links, 6) << "a V100 has six NVLinks";
  }
}

TEST(Topology, TwoIslandsAreConnectedEachForItself) {
  const Topology machine = shipped("two_islands");
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  EXPECT_EQ(machine.connectivity(ids({0, 1})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({2, 3})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({1, 2})), Connectivity::unknown);
  EXPECT_EQ(machine.explain_connectivity(ids({2, 1, 0})),
            "not fully connected by NVLink (no link from GPU 2 to GPU 1, and 3 more directions)");
}

TEST(Topology, AMissingLinkInOneDirectionIsAHole) {
  Topology machine = shipped("h100x8");
  PairInfo pair = machine.pair(DeviceId{6}, DeviceId{2});
  pair.nvlinks = 0;
  machine.set_pair(DeviceId{6}, DeviceId{2}, pair);
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  EXPECT_EQ(machine.connectivity(ids({2, 6})), Connectivity::unknown);
  EXPECT_EQ(machine.connectivity(ids({0, 1, 3, 4, 5, 6, 7})), Connectivity::fully_connected);
  EXPECT_EQ(machine.explain_connectivity(), "not fully connected by NVLink (no link from GPU 6 to GPU 2)");
}

TEST(Topology, LinksThatAreNotKnownLeaveTheVerdictOpenUnlessOneIsKnownToBeMissing) {
  Topology machine = shipped("h100x8");
  const auto set_links = [&](int from, int to, int links) {
    PairInfo pair = machine.pair(DeviceId{from}, DeviceId{to});
    pair.nvlinks = links;
    machine.set_pair(DeviceId{from}, DeviceId{to}, pair);
  };
  set_links(1, 2, -1);
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  EXPECT_EQ(machine.explain_connectivity(), "unknown (NVLinks from GPU 1 to GPU 2 are not known)");
  EXPECT_EQ(Topology::from_json(machine.to_json()), machine);
  set_links(3, 4, 0);
  EXPECT_EQ(machine.explain_connectivity(),
            "not fully connected by NVLink (no link from GPU 3 to GPU 4, and 1 more direction)");
  EXPECT_EQ(machine.explain_connectivity(ids({0, 1, 2})),
            "unknown (NVLinks from GPU 1 to GPU 2 are not known)");
}

TEST(Topology, OneDeviceIsConnectedWithItself) {
  const Topology machine = shipped("pcie4");
  EXPECT_EQ(machine.connectivity(ids({2})), Connectivity::fully_connected);
  EXPECT_EQ(machine.connectivity(ids({2, 2})), Connectivity::fully_connected);
  EXPECT_EQ(machine.explain_connectivity(ids({2})), "fully connected (a single device)");
}

TEST(Topology, EitherEnvironmentNameForcesFullyConnectedAndTheNewOneOverrules) {
  const Topology machine = shipped("pcie4");
  {
    const testing::ScopedVariable force("ONEHOP_FORCE_FULLY_CONNECTED", "1");
    EXPECT_EQ(machine.connectivity(), Connectivity::fully_connected);
    EXPECT_EQ(machine.explain_connectivity(), "fully connected (forced by ONEHOP_FORCE_FULLY_CONNECTED)");
    EXPECT_THAT(message_of(
                    [&] {
                      (void)machine.connectivity(ids({0, 9}));
                    },
                    ErrorCode::invalid_argument),
                HasSubstr("device 9"));
  }
  {
    const testing::ScopedVariable legacy("TEST_INTRA_NODE_COMM", "1");
    EXPECT_EQ(machine.connectivity(), Connectivity::fully_connected);
    EXPECT_EQ(machine.explain_connectivity(), "fully connected (forced by TEST_INTRA_NODE_COMM)");
    const testing::ScopedVariable force("ONEHOP_FORCE_FULLY_CONNECTED", "0");
    EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
  }
  const testing::ScopedVariable nonsense("ONEHOP_FORCE_FULLY_CONNECTED", "perhaps");
  EXPECT_THAT(message_of([&] { (void)machine.connectivity(); }, ErrorCode::invalid_argument),
              HasSubstr("ONEHOP_FORCE_FULLY_CONNECTED='perhaps'"));
}

TEST(Topology, EveryAccessIsBoundsCheckedAndNamesIndexAndCount) {
  Topology machine = shipped("h200x4");
  const std::string expected = "device 4 is not in this topology, which has 4 devices (numbered from 0)";
  const auto refused = [](auto&& f) { return message_of(f, ErrorCode::invalid_argument); };
  EXPECT_EQ(refused([&] { (void)machine.device(DeviceId{4}); }), expected);
  EXPECT_EQ(refused([&] { (void)machine.pair(DeviceId{4}, DeviceId{0}); }), expected);
  EXPECT_EQ(refused([&] { (void)machine.pair(DeviceId{0}, DeviceId{4}); }), expected);
  EXPECT_EQ(refused([&] { machine.set_pair(DeviceId{0}, DeviceId{4}, {}); }), expected);
  EXPECT_EQ(refused([&] { (void)machine.connectivity(ids({0, 4})); }), expected);
  EXPECT_THAT(refused([&] { (void)machine.device(DeviceId::host); }), HasSubstr("device -1"));
}

TEST(Topology, StartsWithoutLinksExceptEachDeviceToItself) {
  const Topology machine(HostInfo{}, std::vector<DeviceInfo>(3));
  EXPECT_EQ(machine.pair(DeviceId{1}, DeviceId{1}).path, PciPath::self);
  EXPECT_TRUE(machine.pair(DeviceId{1}, DeviceId{1}).peer_access);
  EXPECT_EQ(machine.pair(DeviceId{1}, DeviceId{2}), PairInfo{});
  EXPECT_EQ(machine.connectivity(), Connectivity::unknown);
}

TEST(Topology, OnlyADeviceAndItselfHaveThePathSelf) {
  Topology machine(HostInfo{}, std::vector<DeviceInfo>(2));
  PairInfo pair;
  pair.path = PciPath::self;
  EXPECT_THAT(
      message_of([&] { machine.set_pair(DeviceId{0}, DeviceId{1}, pair); }, ErrorCode::invalid_argument),
      HasSubstr("from device 0 to device 1 cannot be 'self'"));
  pair.path = PciPath::sys;
  EXPECT_THAT(
      message_of([&] { machine.set_pair(DeviceId{1}, DeviceId{1}, pair); }, ErrorCode::invalid_argument),
      HasSubstr("from device 1 to device 1 cannot be 'sys'"));
}

TEST(Topology, HoldsMoreDevicesThanAGroupMayHaveUpToItsOwnLimit) {
  const Topology machine(HostInfo{}, std::vector<DeviceInfo>(kMaxTopologyDevices));
  EXPECT_EQ(machine.device_count(), kMaxTopologyDevices);
  EXPECT_EQ(message_of([] { Topology(HostInfo{}, std::vector<DeviceInfo>(kMaxTopologyDevices + 1)); },
                       ErrorCode::invalid_argument),
            "a topology holds at most 64 devices, got 65");
}

}  // namespace
}  // namespace onehop
