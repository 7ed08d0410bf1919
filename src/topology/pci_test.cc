// SPDX-License-Identifier: Apache-2.0
#include "topology/pci.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "topology/topology_testing.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum PciPath;

std::vector<PciPath> row(const PciLocations& locations, std::size_t from) {
  const std::size_t count = locations.numa_nodes.size();
  const auto begin = locations.paths.begin() + static_cast<std::ptrdiff_t>(from * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

TEST(Pci, TellsTheClassesOfPathsApart) {
  const Machine machine = machine_from_xml("pci_paths");
  ASSERT_NE(machine, nullptr);
  // Two devices below one switch, one below a switch behind it, one at another port of the host bridge, one
  // at another host bridge of the same node, and one at the other node.
  const PciLocations locations =
      locate(machine.get(), {"00000000:02:00.0", "00000000:03:00.0", "00000000:06:00.0", "00000000:08:00.0",
                             "00000000:20:00.0", "00000000:80:00.0"});
  EXPECT_THAT(locations.numa_nodes, ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(row(locations, 0), ElementsAre(self, pix, pxb, phb, node, sys));
  EXPECT_THAT(row(locations, 1), ElementsAre(pix, self, pxb, phb, node, sys));
  EXPECT_THAT(row(locations, 2), ElementsAre(pxb, pxb, self, phb, node, sys));
  EXPECT_THAT(row(locations, 3), ElementsAre(phb, phb, phb, self, node, sys));
  EXPECT_THAT(row(locations, 4), ElementsAre(node, node, node, node, self, sys));
  EXPECT_THAT(row(locations, 5), ElementsAre(sys, sys, sys, sys, sys, self));
  EXPECT_THAT(locations.notes, IsEmpty());
}

TEST(Pci, DoesNotGuessWhereTheSystemNamesNoNode) {
  const Machine machine = machine_from_xml("pci_paths");
  ASSERT_NE(machine, nullptr);
  const PciLocations locations = locate(machine.get(), {"00000000:02:00.0", "00000000:f0:00.0"});
  EXPECT_THAT(locations.numa_nodes, ElementsAre(0, -1));
  EXPECT_THAT(row(locations, 0), ElementsAre(self, unknown));
}

TEST(Pci, NamesTheDevicesThatAreNotThere) {
  const Machine machine = machine_from_xml("pci_paths");
  ASSERT_NE(machine, nullptr);
  const PciLocations locations =
      locate(machine.get(), {"00000000:02:00.0", "00000000:aa:00.0", "00000000:ab:00.0"});
  EXPECT_THAT(locations.numa_nodes, ElementsAre(0, -1, -1));
  EXPECT_THAT(row(locations, 1), ElementsAre(unknown, self, unknown));
  ASSERT_THAT(locations.notes, SizeIs(1));
  EXPECT_THAT(locations.notes[0], HasSubstr("00000000:aa:00.0, 00000000:ab:00.0"));
}

TEST(Pci, NothingIsKnownWithoutAMachine) {
  const PciLocations locations = locate(nullptr, {"00000000:02:00.0", "00000000:03:00.0"});
  EXPECT_THAT(locations.numa_nodes, ElementsAre(-1, -1));
  EXPECT_THAT(locations.paths, ElementsAre(self, unknown, unknown, self));
  EXPECT_THAT(locations.notes, SizeIs(1));
  EXPECT_THAT(locate(nullptr, {}).notes, IsEmpty());
}

TEST(Pci, FindsTheDevicesOfThisMachine) {
  std::vector<std::string> bus_ids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", ignored)) {
    std::string device_class;
    std::ifstream(entry.path() / "class") >> device_class;
    // Storage, network and display devices, which hwloc always keeps.
    const bool kept = device_class.starts_with("0x01") || device_class.starts_with("0x02") ||
                      device_class.starts_with("0x03");
    if (kept) bus_ids.push_back("0000" + entry.path().filename().string());
  }
  const Machine machine = load_pci_machine();
  ASSERT_NE(machine, nullptr);
  EXPECT_THAT(locate(machine.get(), bus_ids).notes, IsEmpty());
}

}  // namespace
}  // namespace onehop
