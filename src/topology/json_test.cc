// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "topology/topology_testing.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return std::move(out).str();
}

std::string refusal(const std::string& json) {
  return message_of([&] { (void)Topology::from_json(json); }, ErrorCode::protocol);
}

/// A document with an additional member that does not belong to a device.
std::string document(const std::string& members) {
  return R"({"onehop_topology": 1, )" + members + "}";
}

/// A private directory that contains one file.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "onehop-topology-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    std::ofstream(path()) << text;
  }
  ~TempFile() { std::filesystem::remove_all(directory_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  [[nodiscard]] std::string path() const { return directory_ + "/topology.json"; }
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

TEST(TopologyJson, ShippedFilesAreWhatToJsonWritesOfThem) {
  for (const char* name : kShipped) {
    EXPECT_EQ(shipped(name).to_json(), contents(shipped_path(std::string(name) + ".json"))) << name;
  }
}

TEST(TopologyJson, EveryFieldSurvivesTheRoundTrip) {
  DeviceInfo first{.uuid = "GPU-1 \"quoted\" \\ <&>",
                   .name = "NVIDIA \u00dcber",
                   .pci_bus_id = "0000000f:ab:1f.7",
                   .numa_node = 3,
                   .compute_capability = 103,
                   .memory_bytes = ~std::uint64_t{0},
                   .fabric = FabricState::in_progress,
                   .fabric_cluster = "cluster",
                   .fabric_clique = ~std::uint32_t{0},
                   .fabric_handles = true,
                   .fabric_note = "a note",
                   .multicast_supported = true};
  DeviceInfo second = device_named("GPU-2");
  second.fabric = FabricState::not_started;
  HostInfo host{.hostname = "h", .cpu_model = "m", .cores = 1, .cpus = 2, .numa_nodes = {}, .caches = {}};
  host.numa_nodes.push_back({7, 1, {0, 8191}});
  host.caches.push_back({3, 9, {0}});
  Topology machine(host, {first, second});
  machine.set_pair(DeviceId{0}, DeviceId{1},
                   {.nvlinks = 18,
                    .peer_access = true,
                    .native_atomics = true,
                    .array_access = true,
                    .performance_rank = 2,
                    .path = PciPath::pxb});
  machine.add_note("a note");
  const Topology copy = Topology::from_json(machine.to_json());
  EXPECT_EQ(copy, machine);
  EXPECT_NE(copy.pair(DeviceId{1}, DeviceId{0}), copy.pair(DeviceId{0}, DeviceId{1})) << "pairs are directed";
}

TEST(TopologyJson, SixtyFourDevicesSurviveTheRoundTrip) {
  std::vector<DeviceInfo> devices(64);
  for (std::size_t i = 0; i < devices.size(); ++i) devices[i].uuid = "GPU-" + std::to_string(i);
  const Topology machine(HostInfo{}, devices);
  EXPECT_EQ(Topology::from_json(machine.to_json()), machine);
}

TEST(TopologyJson, ProbedTopologySurvivesTheRoundTrip) {
  const Topology machine = Topology::probe();
  EXPECT_EQ(Topology::from_json(machine.to_json()), machine);
}

TEST(TopologyJson, MissingFieldsDefaultAndUnknownOnesAreIgnored) {
  EXPECT_EQ(Topology::from_json(R"({"onehop_topology": 1})"), Topology());
  const Topology machine = Topology::from_json(
      document(R"("later": {"x": [1]}, "devices": [{"uuid": "a", "color": "red"}, {"uuid": "b"}])"));
  EXPECT_EQ(machine, Topology(HostInfo{}, {device_named("a"), device_named("b")}));
}

TEST(TopologyJson, WritesReplacementCharactersForBytesThatAreNotUtf8) {
  Topology machine;
  machine.add_note("bad \xff byte");
  EXPECT_EQ(Topology::from_json(machine.to_json()).notes().front(), "bad \uFFFD byte");
}

TEST(TopologyJson, EveryTruncationIsRefusedInOneLine) {
  const std::string whole = Topology(HostInfo{}, {device_named("a"), device_named("b")}).to_json();
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    EXPECT_THAT(refusal(whole.substr(0, size)), StartsWith("topology JSON: not valid JSON at line "));
  }
  EXPECT_EQ(refusal("{\n  \"onehop_topology\": 1,\n"),
            "topology JSON: not valid JSON at line 3, column 1: it ends too early");
}

TEST(TopologyJson, InvalidJsonIsRejectedWithItsPosition) {
  EXPECT_EQ(refusal(""), "topology JSON: not valid JSON at line 1, column 1: it ends too early");
  EXPECT_EQ(refusal("GPU0 GPU1"), "topology JSON: not valid JSON at line 1, column 1");
  EXPECT_EQ(refusal("{\"onehop_topology\": 1,\n  \x1b[31m}"),
            "topology JSON: not valid JSON at line 2, column 3");
  EXPECT_THAT(refusal(std::string("{\"\xff\": 1}")), HasSubstr("not valid JSON at line 1, column 3"));
  EXPECT_THAT(refusal(document("\"notes\": 1e999")), HasSubstr("number that no field can hold"));
}

TEST(TopologyJson, EveryComplaintNamesItsField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(7)", "top level: must be an object, got 7"},
      {R"([])", "top level: must be an object, got an array"},
      {R"({})", "top level: the field 'onehop_topology' is missing"},
      {R"({"onehop_topology": "1"})", "onehop_topology: must be an integer from 1 to 2147483647, got \"1\""},
      {R"({"onehop_topology": 2})",
       "onehop_topology: version 2 is not known to this build, which reads version 1"},
  };
  for (const auto& [json, expected] : cases)
    EXPECT_EQ(refusal(json), std::string("topology JSON: ") + expected);

  const std::pair<const char*, const char*> members[] = {
      {R"("host": [])", "host: must be an object, got an array"},
      {R"("host": {"hostname": 5})", "host.hostname: must be a string, got 5"},
      {R"("host": {"cores": -1})", "host.cores: must be an integer from 0 to 8192, got -1"},
      {R"("host": {"cpus": 1.5})", "host.cpus: must be an integer from 0 to 8192, got 1.5"},
      {R"("host": {"cpus": 18446744073709551615})",
       "host.cpus: must be an integer from 0 to 8192, got 18446744073709551615"},
      {R"("host": {"numa_nodes": [{}]})", "host.numa_nodes[0]: the field 'id' is missing"},
      {R"("host": {"numa_nodes": [{"id": 1}, {"id": 1}]})",
       "host.numa_nodes[1].id: 1 is already the id of another node"},
      {R"("host": {"numa_nodes": [{"id": 1, "memory_bytes": -5}]})",
       "host.numa_nodes[0].memory_bytes: must be a number of bytes, got -5"},
      {R"("host": {"caches": [{"level": 1}, {"level": 0}]})",
       "host.caches[1].level: must be an integer from 1 to 9, got 0"},
      {R"("host": {"caches": [{"level": 1, "cpus": [0, 2, 2]}]})",
       "host.caches[0].cpus[2]: must be above 2, the one before it, got 2"},
      {R"("devices": {})", "devices: must be an array, got an object"},
      {R"("devices": [5])", "devices[0]: must be an object, got 5"},
      {R"("devices": [{}])", "devices[0]: the field 'uuid' is missing"},
      {R"("devices": [{"uuid": ""}])", "devices[0].uuid: must not be empty: it is what identifies a device"},
      {R"("devices": [{"uuid": "a"}, {"uuid": "b"}, {"uuid": "a"}])",
       "devices[2].uuid: 'a' is already the uuid of devices[0]"},
      {R"("devices": [{"uuid": "a\u001b[31m"}])", "devices[0].uuid: holds a control character"},
      {R"("devices": [{"uuid": "a\u009b31m"}])", "devices[0].uuid: holds a control character"},
      {R"("devices": [{"uuid": "a", "pci_bus_id": "00000000:AB:00.0"}])",
       "devices[0].pci_bus_id: must look like 00000000:19:00.0 in lower case, got '00000000:AB:00.0'"},
      {R"("devices": [{"uuid": "a", "numa_node": -2}])",
       "devices[0].numa_node: must be an integer from -1 to 2147483647, got -2"},
      {R"("devices": [{"uuid": "a", "fabric": "done"}])",
       "devices[0].fabric: must be one of unsupported not_started in_progress completed, got \"done\""},
      {R"("devices": [{"uuid": "a", "fabric_clique": 4294967296}])",
       "devices[0].fabric_clique: must be an integer from 0 to 4294967295, got 4294967296"},
      {R"("devices": [{"uuid": "a", "fabric_handles": "no"}])",
       "devices[0].fabric_handles: must be true or false, got \"no\""},
      {R"("devices": [{"uuid": "a", "fabric_note": false}])",
       "devices[0].fabric_note: must be a string, got false"},
      {R"("devices": [{"uuid": "a", "multicast_supported": 1}])",
       "devices[0].multicast_supported: must be true or false, got 1"},
      {R"("pairs": [])", "pairs: must be an object, got an array"},
      {R"("pairs": {"nvlinks": [[0]]})", "pairs.nvlinks: has 1 elements but there are 0 devices"},
      {R"("devices": [{"uuid": "a"}, {"uuid": "b"}], "pairs": {"nvlinks": [[0, 1], [1]]})",
       "pairs.nvlinks[1]: has 1 elements but there are 2 devices"},
      {R"("devices": [{"uuid": "a"}, {"uuid": "b"}], "pairs": {"nvlinks": [[0, -4], [1, 0]]})",
       "pairs.nvlinks[0][1]: must be an integer from -1 to 1024, got -4"},
      {R"("devices": [{"uuid": "a"}, {"uuid": "b"}], "pairs": {"peer_access": [[true, true], [null, true]]})",
       "pairs.peer_access[1][0]: must be true or false, got null"},
      {R"("devices": [{"uuid": "a"}, {"uuid": "b"}], "pairs": {"path": [["self", "self"], ["pix", "self"]]})",
       "pairs.path[0][1]: must be \"self\" on the diagonal and only there, got \"self\""},
      {R"("devices": [{"uuid": "a"}], "pairs": {"path": [["sys"]]})",
       "pairs.path[0][0]: must be \"self\" on the diagonal and only there, got \"sys\""},
      {R"("devices": [{"uuid": "a"}], "pairs": {"performance_rank": [["fast"]]})",
       "pairs.performance_rank[0][0]: must be an integer from -1 to 2147483647, got \"fast\""},
      {R"("notes": "one")", "notes: must be an array, got \"one\""},
      {R"("notes": ["one", {}])", "notes[1]: must be a string, got an object"},
  };
  for (const auto& [json, expected] : members) {
    EXPECT_EQ(refusal(document(json)), std::string("topology JSON: ") + expected);
  }
}

TEST(TopologyJson, CapsAreEnforced) {
  std::string devices = "{}";
  for (int i = 0; i < kMaxTopologyDevices; ++i) devices += ", {}";
  EXPECT_EQ(refusal(document("\"devices\": [" + devices + "]")),
            "topology JSON: devices: has 65 elements, more than the limit of 64");
  EXPECT_EQ(refusal(document("\"devices\": [{\"uuid\": \"" + std::string(300, 'u') + "\"}]")),
            "topology JSON: devices[0].uuid: has 300 bytes, more than the limit of 256");
  EXPECT_EQ(refusal(std::string((4 << 20) + 1, ' ')),
            "topology JSON: 4194305 bytes, more than the limit of 4194304");
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), "topology JSON: nested deeper than 8 levels");
}

TEST(TopologyFile, ErrorsNameThePathAndTheField) {
  const TempFile file(R"({"onehop_topology": 1, "devices": [{"uuid": 5}]})");
  EXPECT_EQ(message_of([&] { (void)Topology::load(file.path()); }, ErrorCode::protocol),
            "topology file '" + file.path() + "': devices[0].uuid: must be a string, got 5");
}

TEST(TopologyFile, MissingFilesDirectoriesPipesAndGiantsAreRefused) {
  const TempFile file(std::string((4 << 20) + 1, ' '));
  const auto load = [](const std::string& path) { return [path] { (void)Topology::load(path); }; };
  EXPECT_EQ(message_of(load(file.directory() + "/none.json"), ErrorCode::not_found),
            "topology file '" + file.directory() + "/none.json' does not exist");
  EXPECT_EQ(message_of(load(file.directory()), ErrorCode::invalid_argument),
            "topology file '" + file.directory() + "' is a directory");
  EXPECT_THAT(message_of(load(file.path() + "/below"), ErrorCode::system), HasSubstr("ENOTDIR"));
  EXPECT_THAT(message_of(load(file.path()), ErrorCode::protocol),
              HasSubstr("more than the limit of 4194304 bytes"));
  const std::string pipe = file.directory() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of(load(pipe), ErrorCode::invalid_argument),
            "topology file '" + pipe + "' is not a regular file");
  EXPECT_THAT(message_of(load("/dev/zero"), ErrorCode::invalid_argument), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace onehop
