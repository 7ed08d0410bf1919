// SPDX-License-Identifier: Apache-2.0
#include "topology/render.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "topology/svg.h"
#include "topology/topology_testing.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Compares with tests/data/topology/NAME.txt; ONEHOP_UPDATE_GOLDEN=1 rewrites it instead.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = shipped_path(name + ".txt");
  if (std::getenv("ONEHOP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) widest = std::max(widest, line.size());
  return widest;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Checks that elements are properly nested and that text contains no characters that XML must escape.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  std::size_t at = 0;
  while ((at = svg.find('<', at)) != std::string::npos) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    ASSERT_EQ(count(tag, "\"") % 2, 0u) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(tag.substr(1), open.back());
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end;
  }
  EXPECT_TRUE(open.empty());
  for (at = 0; (at = svg.find('&', at)) != std::string::npos; ++at) {
    const std::string entity = svg.substr(at, svg.find(';', at) - at + 1);
    EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;") << entity;
  }
}

/// A machine whose names contain only text that is hostile to XML and to the table.
Topology awkward() {
  HostInfo host{
      .hostname = "<h&\"1\">", .cpu_model = "", .cores = 0, .cpus = 0, .numa_nodes = {}, .caches = {}};
  Topology machine(host, {device_named("<&>", "A very long name & with <tags> \"quoted\" at its end"),
                          device_named("x"), device_named("y")});
  machine.set_pair(DeviceId{0}, DeviceId{1}, {.nvlinks = 4, .peer_access = true});
  machine.add_note("</svg>");
  return machine;
}

TEST(Render, WritesRangesAsLinuxDoes) {
  EXPECT_EQ(render::ranges({}), "");
  EXPECT_EQ(render::ranges({5}), "5");
  EXPECT_EQ(render::ranges({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(Render, LabelsLinksAsNvidiaSmiDoes) {
  EXPECT_EQ(render::link_label({.nvlinks = 18, .path = PciPath::sys}), "NV18");
  EXPECT_EQ(render::link_label({.path = PciPath::node}), "NODE");
  EXPECT_EQ(render::link_label({.path = PciPath::self}), "X");
  EXPECT_EQ(render::link_label({}), "?");
}

TEST(TopologyText, MatchesTheGoldenFiles) {
  for (const char* name : kShipped) expect_golden(name, shipped(name).to_text());
}

TEST(TopologyText, FitsInto80ColumnsForEightDevices) {
  for (const char* name : kShipped) {
    const std::string text = shipped(name).to_text();
    EXPECT_LE(widest_line(text.substr(0, text.find("\nNotes\n"))), 80u) << name;
  }
  HostInfo interleaved{
      .hostname = "h", .cpu_model = "", .cores = 128, .cpus = 128, .numa_nodes = {}, .caches = {}};
  interleaved.numa_nodes.resize(2);
  for (int cpu = 0; cpu < 128; ++cpu)
    interleaved.numa_nodes[static_cast<std::size_t>(cpu % 2)].cpus.push_back(cpu);
  std::vector<DeviceInfo> devices(8, device_named(std::string(256, 'u'), std::string(256, 'n')));
  for (DeviceInfo& device : devices) device.fabric = FabricState::in_progress;
  const std::string text = Topology(interleaved, devices).to_text();
  EXPECT_LE(widest_line(text), 80u) << text;
  EXPECT_THAT(text, HasSubstr("123,125,127\n"));
}

TEST(TopologyText, ShowsTheProcessorsNextToEachDeviceWhereKnown) {
  EXPECT_THAT(shipped("h100x8").to_text(),
              AllOf(HasSubstr("GPU7  CPU affinity\n"), HasSubstr("NV18  0-55,112-167\n"),
                    HasSubstr("NV18  56-111,168-223\n")));
  HostInfo host;
  host.numa_nodes.resize(2);
  host.numa_nodes[1].id = 1;
  for (int cpu = 0; cpu < 128; cpu += 2) host.numa_nodes[0].cpus.push_back(cpu);
  std::vector<DeviceInfo> devices(8, device_named("u"));
  EXPECT_THAT(Topology(host, devices).to_text(), Not(HasSubstr("affinity"))) << "no device's node is known";
  devices[0].numa_node = 0;
  devices[1].numa_node = 1;
  devices[2].numa_node = 7;
  const std::string text = Topology(host, devices).to_text();
  EXPECT_THAT(text, AllOf(HasSubstr("  0,2,4,6,8,10,...\n"), HasSubstr("cpus 0,2,4,6,8,10,12,14,")));
  EXPECT_EQ(count(text.substr(0, text.find("\n\n")), "  -\nGPU"), 6u)
      << "a node without processors, one that the host lacks, and unknown ones";
  EXPECT_LE(widest_line(text), 80u) << text;
}

TEST(TopologyText, CutsNamesBetweenCharacters) {
  DeviceInfo device;
  device.uuid = "GPU-1";
  for (const int letters : {12, 13, 14, 15}) {
    device.name = std::string(static_cast<std::size_t>(letters), 'x') + "\u00e9\u00e9\u00e9\u00e9\u00e9";
    const std::string text = Topology(HostInfo{}, {device}).to_text();
    EXPECT_EQ(printable(text).find("\\xc3"), std::string::npos) << text;
    EXPECT_NE(text.find("x\u00e9"), std::string::npos) << text;
  }
}

TEST(TopologyText, NamesThePciDomainWhereThereAreSeveral) {
  DeviceInfo first = device_named("a");
  DeviceInfo second = device_named("b");
  first.pci_bus_id = "00000000:19:00.0";
  second.pci_bus_id = "00000000:3b:00.0";
  EXPECT_THAT(Topology({}, {first, second}).to_text(), HasSubstr("  19:00.0  "));
  second.pci_bus_id = "00000001:3b:00.0";
  EXPECT_THAT(Topology({}, {first, second}).to_text(),
              AllOf(HasSubstr("  0000:19:00.0  "), HasSubstr("  0001:3b:00.0  ")));
  second.pci_bus_id = "10000001:3b:00.0";
  EXPECT_THAT(Topology({}, {first, second}).to_text(), HasSubstr("  10000001:3b:00.0  "));
}

TEST(TopologyText, MarksWhatIsUnknownAndWhoCannotReachWhom) {
  const std::string text = awkward().to_text();
  EXPECT_THAT(text, HasSubstr("GPU0     X   NV4    ?*\n"));
  EXPECT_THAT(text, HasSubstr("GPU1    ?*     X    ?*\n"));
  EXPECT_THAT(text, HasSubstr("?    not known\n"));
  EXPECT_THAT(text, Not(HasSubstr("SYS  "))) << "the legend explains only what occurs";
}

TEST(TopologyText, SaysNothingAboutAHostOfWhichNothingIsKnown) {
  EXPECT_EQ(Topology().to_text(), "Connectivity of host ranks: fully connected (host ranks share memory)\n");
  EXPECT_THAT(Topology().to_svg(), Not(HasSubstr("0 cores")));
}

TEST(TopologySvg, IsWellFormedForEveryMachine) {
  for (const char* name : kShipped) expect_well_formed(shipped(name).to_svg());
  expect_well_formed(awkward().to_svg());
  expect_well_formed(Topology().to_svg());
  expect_well_formed(Topology::probe().to_svg());
  for (const std::size_t devices : {1u, 2u, 3u, 9u, 64u}) {
    expect_well_formed(Topology(HostInfo{}, std::vector<DeviceInfo>(devices)).to_svg());
  }
}

TEST(TopologySvg, DrawsASwitchFabricAsOneNodeWithASpokePerDevice) {
  const std::string svg = shipped("h100x8").to_svg();
  EXPECT_THAT(svg, HasSubstr("NVSwitch fabric"));
  EXPECT_EQ(count(svg, ">NV18</text>"), 8u);
  EXPECT_EQ(count(svg, ">GPU "), 8u);
}

TEST(TopologySvg, DrawsEachLinkOfAMeshOnceAndOnlyThose) {
  const std::string cube = shipped("hybrid_cube_mesh").to_svg();
  EXPECT_THAT(cube, Not(HasSubstr("NVSwitch")));
  EXPECT_EQ(count(cube, ">NV1</text>") + count(cube, ">NV2</text>"), 16u);
  EXPECT_THAT(cube, HasSubstr("no line: no peer access"));
  EXPECT_EQ(count(shipped("pcie4").to_svg(), "class=\"pcie\""), 2u + 1u) << "two lines and the legend's";
}

TEST(TopologySvg, ShowsALinkInOneDirectionOnly) {
  const std::string svg = awkward().to_svg();
  EXPECT_THAT(svg, HasSubstr(">NV4/0</text>"));
  EXPECT_THAT(svg, HasSubstr("NVLink in one direction only"));
}

TEST(TopologyText, MarksDevicesThatAreTooOldAndSaysWhatIsNeeded) {
  const std::string text = shipped("hybrid_cube_mesh").to_text();
  EXPECT_EQ(count(text, "  7.0!  "), 8u);
  EXPECT_THAT(text, HasSubstr("!    too old: onehop needs compute capability 8.0 or newer\n"));
  EXPECT_THAT(shipped("two_islands").to_text(), AllOf(HasSubstr("  8.0  "), Not(HasSubstr("too old"))));
  EXPECT_THAT(awkward().to_text(), Not(HasSubstr("too old"))) << "not known is not too old";
}

TEST(TopologySvg, MarksDevicesThatAreTooOld) {
  EXPECT_EQ(count(shipped("hybrid_cube_mesh").to_svg(), " old\"/>"), 8u + 1u) << "and the legend's";
  EXPECT_THAT(shipped("two_islands").to_svg(), Not(HasSubstr("too old")));
}

TEST(TopologySvg, HasColorsForDarkPagesAndBreaksLongLines) {
  Topology machine = shipped("pcie4");
  std::string note = "a note";
  for (int i = 0; i < 40; ++i) note += " of many words";
  machine.add_note(note);
  const std::string svg = machine.to_svg();
  EXPECT_THAT(svg, HasSubstr("@media (prefers-color-scheme: dark)"));
  EXPECT_THAT(svg, Not(HasSubstr(" fill=\"#"))) << "a color that stays on dark pages";
  EXPECT_LE(std::stoi(svg.substr(svg.find("width=\"") + 7)), 700) << "pixels";
  EXPECT_EQ(count(svg, "words"), 40u);
}

TEST(TopologySvg, DrawsEveryProcessorInsideItsCachesAndNodes) {
  const std::string svg = shipped("host_only").to_svg();
  EXPECT_EQ(count(svg, "NUMA node "), 2u);
  EXPECT_EQ(count(svg, "L3: 16 MiB"), 8u);
  EXPECT_EQ(count(svg, "L1: 32 KiB"), 16u);
  for (int cpu = 0; cpu < 32; ++cpu) EXPECT_EQ(count(svg, fmt::format(">{}</text>", cpu)), 1u) << cpu;
}

}  // namespace
}  // namespace onehop
