// SPDX-License-Identifier: Apache-2.0
// Topology, diagnosis and tuning tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "onehop/c_api.h"
#include "onehop/topology.h"
#include "onehop/tuning.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

/// Two GPUs with NVLinks from 0 to 1 only.
Topology half_linked() {
  HostInfo host{.hostname = "box",
                .cpu_model = "cpu",
                .cores = 4,
                .cpus = 8,
                .numa_nodes = {{.id = 1, .memory_bytes = 77, .cpus = {0, 5}}},
                .caches = {{.level = 3, .bytes = 1 << 20, .cpus = {0, 1, 2}}}};
  std::vector<DeviceInfo> devices(2);
  devices[0].uuid = "GPU-0";
  devices[1] = {.uuid = "GPU-1",
                .name = "H",
                .pci_bus_id = "00000000:19:00.0",
                .numa_node = 1,
                .compute_capability = 90,
                .memory_bytes = 5,
                .fabric = FabricState::completed,
                .fabric_cluster = "c",
                .fabric_clique = 3,
                .fabric_handles = true,
                .fabric_note = "",
                .multicast_supported = true};
  Topology topology(std::move(host), std::move(devices));
  topology.set_pair(DeviceId{0}, DeviceId{1},
                    {.nvlinks = 18,
                     .peer_access = true,
                     .native_atomics = true,
                     .array_access = true,
                     .performance_rank = 2,
                     .path = PciPath::node});
  topology.add_note("made by hand");
  return topology;
}

class CApiTopologyValue : public ::testing::Test {
 protected:
  CApiTopologyValue() { EXPECT_OK(onehop_topology_from_json(half_linked().to_json().c_str(), &topology_)); }
  ~CApiTopologyValue() override { onehop_topology_destroy(topology_); }

  onehop_topology_t* topology_ = nullptr;
};

TEST_F(CApiTopologyValue, HasTheHost) {
  onehop_host_info_t host;
  onehop_host_info_init(&host, sizeof host);
  ASSERT_OK(onehop_topology_host(topology_, &host));
  EXPECT_STREQ(host.hostname, "box");
  EXPECT_STREQ(host.cpu_model, "cpu");
  EXPECT_EQ(host.cores, 4);
  EXPECT_EQ(host.cpus, 8);
  ASSERT_EQ(host.numa_node_count, 1u);
  ASSERT_EQ(host.cache_count, 1u);
  onehop_numa_node_t node;
  onehop_numa_node_init(&node, sizeof node);
  ASSERT_OK(onehop_topology_numa_node(topology_, 0, &node));
  EXPECT_EQ(node.id, 1);
  EXPECT_EQ(node.memory_bytes, 77u);
  ASSERT_EQ(node.cpu_count, 2u);
  EXPECT_EQ(node.cpus[1], 5);
  onehop_cache_info_t cache;
  onehop_cache_info_init(&cache, sizeof cache);
  ASSERT_OK(onehop_topology_cache(topology_, 0, &cache));
  EXPECT_EQ(cache.level, 3);
  EXPECT_EQ(cache.bytes, 1u << 20);
  EXPECT_EQ(cache.cpu_count, 3u);
  EXPECT_EQ(onehop_topology_cache(topology_, 1, &cache), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("cache 1 does not exist: there are 1"));
  EXPECT_EQ(onehop_topology_numa_node(topology_, 9, &node), ONEHOP_ERROR_INVALID_ARGUMENT);
}

TEST_F(CApiTopologyValue, HasDevicesAndPairs) {
  EXPECT_EQ(onehop_topology_device_count(topology_), 2);
  onehop_device_info_t device;
  onehop_device_info_init(&device, sizeof device);
  ASSERT_OK(onehop_topology_device(topology_, 1, &device));
  EXPECT_STREQ(device.uuid, "GPU-1");
  EXPECT_STREQ(device.name, "H");
  EXPECT_STREQ(device.pci_bus_id, "00000000:19:00.0");
  EXPECT_EQ(device.numa_node, 1);
  EXPECT_EQ(device.compute_capability, 90);
  EXPECT_EQ(device.memory_bytes, 5u);
  EXPECT_EQ(device.fabric, ONEHOP_FABRIC_STATE_COMPLETED);
  EXPECT_STREQ(device.fabric_cluster, "c");
  EXPECT_EQ(device.fabric_clique, 3u);
  EXPECT_EQ(device.fabric_handles, 1);
  EXPECT_STREQ(device.fabric_note, "");
  EXPECT_EQ(device.multicast_supported, 1);
  EXPECT_EQ(onehop_topology_device(topology_, 2, &device), ONEHOP_ERROR_INVALID_ARGUMENT);
  onehop_pair_info_t pair;
  onehop_pair_info_init(&pair, sizeof pair);
  ASSERT_OK(onehop_topology_pair(topology_, 0, 1, &pair));
  EXPECT_EQ(pair.nvlinks, 18);
  EXPECT_EQ(pair.peer_access, 1);
  EXPECT_EQ(pair.native_atomics, 1);
  EXPECT_EQ(pair.array_access, 1);
  EXPECT_EQ(pair.performance_rank, 2);
  EXPECT_EQ(pair.path, ONEHOP_PCI_PATH_NODE);
  EXPECT_EQ(onehop_topology_pair(topology_, 0, -1, &pair), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(onehop_topology_note_count(topology_), 1u);
  EXPECT_STREQ(onehop_topology_note(topology_, 0), "made by hand");
  EXPECT_EQ(onehop_topology_note(topology_, 1), nullptr);
}

TEST_F(CApiTopologyValue, SaysWhetherDevicesAreConnectedAndWhy) {
  onehop_connectivity_t verdict = -1;
  ASSERT_OK(onehop_topology_connectivity(topology_, nullptr, 0, &verdict));
  EXPECT_EQ(verdict, ONEHOP_CONNECTIVITY_UNKNOWN);
  const int host = ONEHOP_DEVICE_HOST;
  ASSERT_OK(onehop_topology_connectivity(topology_, &host, 1, &verdict));
  EXPECT_EQ(verdict, ONEHOP_CONNECTIVITY_FULLY_CONNECTED);
  char* text = nullptr;
  ASSERT_OK(onehop_topology_explain_connectivity(topology_, nullptr, 0, &text));
  EXPECT_THAT(take_text(text), HasSubstr("from GPU 1 to GPU 0"));
  const int both[] = {0, 1};
  ASSERT_OK(onehop_topology_explain_connectivity(topology_, both, 2, &text));
  EXPECT_THAT(take_text(text), HasSubstr("from GPU 1 to GPU 0"));
}

TEST_F(CApiTopologyValue, IsWrittenAsJsonTextAndDrawing) {
  char* text = nullptr;
  ASSERT_OK(onehop_topology_to_json(topology_, &text));
  EXPECT_EQ(take_text(text), half_linked().to_json());
  ASSERT_OK(onehop_topology_to_text(topology_, &text));
  EXPECT_EQ(take_text(text), half_linked().to_text());
  ASSERT_OK(onehop_topology_to_svg(topology_, &text));
  EXPECT_THAT(take_text(text), HasSubstr("<svg"));
}

TEST(CApiTopology, IsProbedParsedAndLoaded) {
  onehop_topology_t* topology = nullptr;
  ASSERT_OK(onehop_topology_probe(&topology));
  onehop_topology_destroy(topology);
  topology = nullptr;
  EXPECT_EQ(onehop_topology_from_json("{", &topology), ONEHOP_ERROR_PROTOCOL);
  EXPECT_EQ(onehop_topology_load("/nonexistent/topology.json", &topology), ONEHOP_ERROR_NOT_FOUND);
  EXPECT_THAT(onehop_last_error(), HasSubstr("/nonexistent/topology.json"));
  EXPECT_EQ(topology, nullptr);
}

TEST(CApiTopology, NamesEveryNumberAndSurvivesUnknownOnes) {
  EXPECT_STREQ(onehop_fabric_state_name(ONEHOP_FABRIC_STATE_IN_PROGRESS), "in_progress");
  EXPECT_STREQ(onehop_pci_path_name(ONEHOP_PCI_PATH_PHB), "phb");
  EXPECT_STREQ(onehop_connectivity_name(ONEHOP_CONNECTIVITY_FULLY_CONNECTED), "fully_connected");
  EXPECT_STREQ(onehop_peer_test_name(ONEHOP_PEER_TEST_SHARED_ATOMICS), "shared-atomics");
  EXPECT_STREQ(onehop_peer_outcome_name(ONEHOP_PEER_OUTCOME_NOT_RUN), "not-run");
  EXPECT_STREQ(onehop_memory_kind_name(ONEHOP_MEMORY_KIND_PINNED_HOST), "pinned host");
  EXPECT_STREQ(onehop_collective_name(ONEHOP_COLLECTIVE_ALL_REDUCE), "all-reduce");
  EXPECT_STREQ(onehop_collective_name(ONEHOP_COLLECTIVE_ALL_TO_ALL_V), "all-to-all-v");
  EXPECT_STREQ(onehop_backend_name(ONEHOP_BACKEND_CUDA), "cuda");
  EXPECT_STREQ(onehop_type_class_name(ONEHOP_TYPE_CLASS_FLOATS), "float");
  EXPECT_STREQ(onehop_algorithm_name(ONEHOP_ALGORITHM_TWO_SHOT), "two-shot");
  for (const int odd : {-1, 4711}) {
    for (const char* const name :
         {onehop_fabric_state_name(odd), onehop_pci_path_name(odd), onehop_connectivity_name(odd),
          onehop_peer_test_name(odd), onehop_peer_outcome_name(odd), onehop_memory_kind_name(odd),
          onehop_collective_name(odd), onehop_backend_name(odd), onehop_type_class_name(odd),
          onehop_algorithm_name(odd)}) {
      EXPECT_STREQ(name, "unknown") << odd;
    }
  }
  onehop_algorithm_t algorithm = 77;
  EXPECT_OK(onehop_algorithm_parse("one-shot", &algorithm));
  EXPECT_EQ(algorithm, ONEHOP_ALGORITHM_ONE_SHOT);
  EXPECT_EQ(onehop_algorithm_parse("no-shot", &algorithm), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("no-shot"));
  EXPECT_EQ(algorithm, ONEHOP_ALGORITHM_ONE_SHOT);
  expect_null_refused(onehop_algorithm_parse(nullptr, &algorithm), "name");
  expect_null_refused(onehop_algorithm_parse("one-shot", nullptr), "algorithm");
}

TEST(CApiTopology, NullHandlesAreHarmless) {
  onehop_topology_destroy(nullptr);
  EXPECT_EQ(onehop_topology_device_count(nullptr), 0);
  EXPECT_EQ(onehop_topology_note_count(nullptr), 0u);
  EXPECT_EQ(onehop_topology_note(nullptr, 0), nullptr);
  onehop_topology_t* topology = nullptr;
  char* text = nullptr;
  onehop_connectivity_t verdict = 0;
  onehop_host_info_t host;
  onehop_host_info_init(&host, sizeof host);
  onehop_device_info_t device;
  onehop_device_info_init(&device, sizeof device);
  onehop_pair_info_t pair;
  onehop_pair_info_init(&pair, sizeof pair);
  expect_null_refused(onehop_topology_probe(nullptr), "topology");
  expect_null_refused(onehop_topology_from_json(nullptr, &topology), "json");
  expect_null_refused(onehop_topology_load(nullptr, &topology), "path");
  expect_null_refused(onehop_topology_load("/", nullptr), "topology");
  expect_null_refused(onehop_topology_to_json(nullptr, &text), "topology");
  expect_null_refused(onehop_topology_to_text(nullptr, nullptr), "text");
  expect_null_refused(onehop_topology_to_svg(nullptr, nullptr), "svg");
  expect_null_refused(onehop_topology_host(nullptr, &host), "topology");
  expect_null_refused(onehop_topology_device(nullptr, 0, &device), "topology");
  expect_null_refused(onehop_topology_pair(nullptr, 0, 0, &pair), "topology");
  expect_null_refused(onehop_topology_connectivity(nullptr, nullptr, 0, &verdict), "topology");
  ASSERT_OK(onehop_topology_probe(&topology));
  expect_null_refused(onehop_topology_host(topology, nullptr), "host");
  expect_null_refused(onehop_topology_connectivity(topology, nullptr, 0, nullptr), "connectivity");
  expect_null_refused(onehop_topology_explain_connectivity(topology, nullptr, 0, nullptr), "text");
  onehop_topology_destroy(topology);
}

TEST(CApiDiagnosis, SaysWhatOfTheGpusWorksHere) {
  onehop_diagnosis_t* diagnosis = nullptr;
  ASSERT_OK(onehop_diagnosis_of_gpus(&diagnosis));
  EXPECT_THAT(onehop_diagnosis_summary(diagnosis), HasSubstr("the GPU backend"));
  ASSERT_GT(onehop_diagnosis_finding_count(diagnosis), 0u);
  onehop_finding_t finding;
  onehop_finding_init(&finding, sizeof finding);
  for (std::size_t i = 0; i < onehop_diagnosis_finding_count(diagnosis); ++i) {
    ASSERT_OK(onehop_diagnosis_finding(diagnosis, i, &finding));
    EXPECT_STRNE(finding.section, "");
    EXPECT_STRNE(finding.name, "");
    EXPECT_TRUE(finding.health >= ONEHOP_HEALTH_WORKS && finding.health <= ONEHOP_HEALTH_NOT_APPLICABLE);
    ASSERT_NE(finding.detail, nullptr);
    ASSERT_NE(finding.remedy, nullptr);
  }
  EXPECT_EQ(onehop_diagnosis_finding(diagnosis, 4711, &finding), ONEHOP_ERROR_INVALID_ARGUMENT);
  expect_null_refused(onehop_diagnosis_finding(diagnosis, 0, nullptr), "finding");
  expect_null_refused(onehop_diagnosis_finding(nullptr, 0, &finding), "diagnosis");
  expect_null_refused(onehop_diagnosis_of_gpus(nullptr), "diagnosis");
  onehop_diagnosis_destroy(diagnosis);
  onehop_diagnosis_destroy(nullptr);
  EXPECT_EQ(onehop_diagnosis_usable(nullptr), 0);
  EXPECT_STREQ(onehop_diagnosis_summary(nullptr), "");
  EXPECT_EQ(onehop_diagnosis_finding_count(nullptr), 0u);
}

constexpr const char* kTable = R"({"onehop_tuning": 2, "device": "H", "rows": [
  {"collective": "reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": 4096,
   "algorithm": "two_shot", "chunk": 65536},
  {"collective": "all-reduce", "backend": "cuda", "ranks": 4, "types": "any", "buffers": "symmetric",
   "up_to": 8192, "algorithm": "default"},
  {"collective": "all-reduce", "backend": "cuda", "ranks": 4, "types": "float", "up_to": 16384,
   "algorithm": "ll_one_shot", "blocks": 64, "threads": 128, "derived": true}]})";

TEST(CApiTuning, ATableIsReadRowByRowAndWrittenAgain) {
  onehop_tuning_t* tuning = nullptr;
  ASSERT_OK(onehop_tuning_from_json(kTable, nullptr, &tuning));
  EXPECT_STREQ(onehop_tuning_device(tuning), "H");
  ASSERT_EQ(onehop_tuning_row_count(tuning), 3u);
  onehop_tuning_row_t row;
  onehop_tuning_row_init(&row, sizeof row);
  ASSERT_OK(onehop_tuning_row(tuning, 0, &row));
  EXPECT_EQ(row.collective, ONEHOP_COLLECTIVE_REDUCE);
  EXPECT_EQ(row.backend, ONEHOP_BACKEND_HOST);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.types, ONEHOP_TYPE_CLASS_ANY);
  EXPECT_EQ(row.buffers, ONEHOP_BUFFERS_ANY);
  EXPECT_EQ(row.derived, 0);
  EXPECT_EQ(row.up_to, 4096u);
  EXPECT_STREQ(row.algorithm, "two_shot");
  EXPECT_EQ(row.chunk, 65536u);
  EXPECT_EQ(row.blocks, 0u);
  EXPECT_EQ(row.threads, 0u);
  EXPECT_STREQ(row.text, "two_shot in chunks of 64K");
  ASSERT_OK(onehop_tuning_row(tuning, 1, &row));
  EXPECT_EQ(row.buffers, ONEHOP_BUFFERS_SYMMETRIC);
  EXPECT_STREQ(row.algorithm, "default");
  EXPECT_STREQ(row.text, "default");
  ASSERT_OK(onehop_tuning_row(tuning, 2, &row));
  EXPECT_STREQ(row.algorithm, "ll_one_shot");
  EXPECT_EQ(row.chunk, 0u);
  EXPECT_EQ(row.blocks, 64u);
  EXPECT_EQ(row.threads, 128u);
  EXPECT_EQ(row.derived, 1);
  EXPECT_STREQ(row.text, "ll_one_shot, 64 blocks of 128 threads");
  const auto find = [&](onehop_buffers_t buffers, std::uint64_t bytes, std::size_t& index) {
    return onehop_tuning_find(tuning, ONEHOP_COLLECTIVE_ALL_REDUCE, ONEHOP_BACKEND_CUDA, 4, ONEHOP_DTYPE_F32,
                              buffers, bytes, &index);
  };
  std::size_t index = 77;
  ASSERT_OK(find(ONEHOP_BUFFERS_ANY, 1, index));
  EXPECT_EQ(index, 2u);
  ASSERT_OK(find(ONEHOP_BUFFERS_SYMMETRIC, 1, index));
  EXPECT_EQ(index, 1u);
  index = 77;
  EXPECT_EQ(find(ONEHOP_BUFFERS_ANY, 16385, index), ONEHOP_ERROR_NOT_FOUND);
  EXPECT_THAT(onehop_last_error(),
              HasSubstr("all-reduce of 16385 f32 bytes on 4 cuda ranks with any buffers"));
  EXPECT_EQ(index, 77u);
  char* json = nullptr;
  ASSERT_OK(onehop_tuning_to_json(tuning, &json));
  EXPECT_EQ(take_text(json), Tuning::from_json(kTable).to_json());
  onehop_tuning_destroy(tuning);
}

TEST(CApiTuning, TheLibrarysOwnTableIsThatOfCpp) {
  for (const onehop_links_t links : {ONEHOP_LINKS_NVLINK, ONEHOP_LINKS_PCIE}) {
    onehop_tuning_t* own = nullptr;
    ASSERT_OK(onehop_tuning_default(ONEHOP_BACKEND_CUDA, 4, links, &own));
    char* json = nullptr;
    ASSERT_OK(onehop_tuning_to_json(own, &json));
    EXPECT_EQ(take_text(json), default_tuning(Backend::cuda, 4, static_cast<Links>(links)).to_json());
    onehop_tuning_destroy(own);
  }
  onehop_tuning_t* none = nullptr;
  for (const onehop_status_t status :
       {onehop_tuning_default(2, 2, ONEHOP_LINKS_NVLINK, &none),
        onehop_tuning_default(ONEHOP_BACKEND_CUDA, 9, ONEHOP_LINKS_NVLINK, &none),
        onehop_tuning_default(ONEHOP_BACKEND_HOST, 1, ONEHOP_LINKS_NVLINK, &none),
        onehop_tuning_default(ONEHOP_BACKEND_CUDA, 2, 2, &none)}) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(none, nullptr);
  expect_null_refused(onehop_tuning_default(ONEHOP_BACKEND_HOST, 2, ONEHOP_LINKS_NVLINK, nullptr), "tuning");
}

TEST(CApiTuning, AlgorithmsAreListedByIndex) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    const std::vector<Collective> tunable = tunable_collectives(backend);
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      EXPECT_EQ(onehop_tuning_has_choice(static_cast<int>(backend), i),
                std::count(tunable.begin(), tunable.end(), collective));
      const auto names = algorithm_names(backend, collective, TypeClass::any, Buffers::symmetric);
      const auto name = [&](std::size_t index) {
        return onehop_tuning_algorithm_name(static_cast<int>(backend), i, ONEHOP_TYPE_CLASS_ANY,
                                            ONEHOP_BUFFERS_SYMMETRIC, index);
      };
      for (std::size_t index = 0; index < names.size(); ++index) EXPECT_EQ(name(index), names[index]);
      EXPECT_EQ(name(names.size()), nullptr);
    }
  }
  EXPECT_EQ(onehop_tuning_has_choice(2, ONEHOP_COLLECTIVE_ALL_REDUCE), 0);
  EXPECT_EQ(onehop_tuning_algorithm_name(0, 0, 0, 2, 0), nullptr);
}

TEST(CApiTuning, CandidatesAreAListWithTheDefaultFirst) {
  onehop_tuning_t* list = nullptr;
  ASSERT_OK(onehop_tuning_candidates(ONEHOP_BACKEND_HOST, ONEHOP_COLLECTIVE_REDUCE, 2, ONEHOP_TYPE_CLASS_ANY,
                                     ONEHOP_BUFFERS_ANY, &list));
  const auto choices = candidate_choices(Backend::host, Collective::reduce, 2, TypeClass::any, Buffers::any);
  ASSERT_EQ(onehop_tuning_row_count(list), choices.size());
  onehop_tuning_row_t row;
  onehop_tuning_row_init(&row, sizeof row);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    ASSERT_OK(onehop_tuning_row(list, i, &row));
    EXPECT_EQ(row.collective, ONEHOP_COLLECTIVE_REDUCE);
    EXPECT_EQ(row.algorithm, choices[i] ? choices[i]->algorithm : "default");
    EXPECT_EQ(row.text, choices[i] ? to_string(*choices[i]) : "default");
    EXPECT_EQ(row.up_to, ONEHOP_TUNING_NO_LIMIT);
  }
  onehop_tuning_destroy(list);
  list = nullptr;
  ASSERT_OK(onehop_tuning_candidates(ONEHOP_BACKEND_CUDA, ONEHOP_COLLECTIVE_ALL_GATHER, 8,
                                     ONEHOP_TYPE_CLASS_FLOATS, ONEHOP_BUFFERS_SYMMETRIC, &list));
  EXPECT_GT(onehop_tuning_row_count(list), 1u);
  onehop_tuning_destroy(list);
  list = nullptr;
  const auto refused = [&](int backend, int collective, int ranks, int types, int buffers) {
    EXPECT_EQ(onehop_tuning_candidates(backend, collective, ranks, types, buffers, &list),
              ONEHOP_ERROR_INVALID_ARGUMENT);
  };
  refused(2, ONEHOP_COLLECTIVE_ALL_REDUCE, 2, ONEHOP_TYPE_CLASS_ANY, ONEHOP_BUFFERS_ANY);
  refused(ONEHOP_BACKEND_HOST, -1, 2, ONEHOP_TYPE_CLASS_ANY, ONEHOP_BUFFERS_ANY);
  refused(ONEHOP_BACKEND_HOST, ONEHOP_COLLECTIVE_ALL_REDUCE, 1, ONEHOP_TYPE_CLASS_ANY, ONEHOP_BUFFERS_ANY);
  refused(ONEHOP_BACKEND_CUDA, ONEHOP_COLLECTIVE_ALL_REDUCE, 9, ONEHOP_TYPE_CLASS_ANY, ONEHOP_BUFFERS_ANY);
  refused(ONEHOP_BACKEND_HOST, ONEHOP_COLLECTIVE_ALL_REDUCE, 2, -1, ONEHOP_BUFFERS_ANY);
  refused(ONEHOP_BACKEND_HOST, ONEHOP_COLLECTIVE_ALL_REDUCE, 2, ONEHOP_TYPE_CLASS_ANY, 2);
  EXPECT_EQ(list, nullptr);
}

TEST(CApiTuning, WhatIsWrongIsNamedWithItsSource) {
  onehop_tuning_t* tuning = nullptr;
  EXPECT_EQ(onehop_tuning_from_json("{}", "my table", &tuning), ONEHOP_ERROR_PROTOCOL);
  EXPECT_THAT(onehop_last_error(), HasSubstr("my table"));
  expect_null_refused(onehop_tuning_from_json(nullptr, nullptr, &tuning), "json");
  expect_null_refused(onehop_tuning_from_json(kTable, nullptr, nullptr), "tuning");
  ASSERT_OK(onehop_tuning_from_json(kTable, nullptr, &tuning));
  onehop_tuning_row_t row;
  onehop_tuning_row_init(&row, sizeof row);
  std::size_t index = 0;
  EXPECT_EQ(onehop_tuning_row(tuning, 3, &row), ONEHOP_ERROR_INVALID_ARGUMENT);
  expect_null_refused(onehop_tuning_row(nullptr, 0, &row), "tuning");
  expect_null_refused(onehop_tuning_row(tuning, 0, nullptr), "row");
  expect_null_refused(onehop_tuning_find(nullptr, 0, 0, 2, 0, 0, 1, &index), "tuning");
  expect_null_refused(onehop_tuning_find(tuning, 0, 0, 2, 0, 0, 1, nullptr), "index");
  for (const onehop_status_t status :
       {onehop_tuning_find(tuning, ONEHOP_COLLECTIVE_BARRIER + 1, 0, 2, 0, 0, 1, &index),
        onehop_tuning_find(tuning, 0, 2, 2, 0, 0, 1, &index),
        onehop_tuning_find(tuning, 0, 0, 2, 99, 0, 1, &index),
        onehop_tuning_find(tuning, 0, 0, 2, 0, 2, 1, &index)}) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
  }
  char* json = nullptr;
  expect_null_refused(onehop_tuning_to_json(nullptr, &json), "tuning");
  onehop_tuning_destroy(tuning);
  onehop_tuning_destroy(nullptr);
  EXPECT_STREQ(onehop_tuning_device(nullptr), "");
  EXPECT_EQ(onehop_tuning_row_count(nullptr), 0u);
  onehop_type_class_t types = -1;
  EXPECT_OK(onehop_type_class_of(ONEHOP_DTYPE_I64, &types));
  EXPECT_EQ(types, ONEHOP_TYPE_CLASS_ANY);
  EXPECT_EQ(onehop_type_class_of(99, &types), ONEHOP_ERROR_INVALID_ARGUMENT);
  expect_null_refused(onehop_type_class_of(ONEHOP_DTYPE_I64, nullptr), "types");
}

TEST(CApiTuning, EnumeratorsHaveTheNamesOfTables) {
  EXPECT_STREQ(onehop_collective_name(ONEHOP_COLLECTIVE_REDUCE_SCATTER), "reduce-scatter");
  EXPECT_STREQ(onehop_backend_name(ONEHOP_BACKEND_CUDA), "cuda");
  EXPECT_STREQ(onehop_type_class_name(ONEHOP_TYPE_CLASS_FLOATS), "float");
  EXPECT_STREQ(onehop_buffers_name(ONEHOP_BUFFERS_SYMMETRIC), "symmetric");
  EXPECT_STREQ(onehop_links_name(ONEHOP_LINKS_PCIE), "pcie");
  for (const int none : {-1, 2}) {
    EXPECT_STREQ(onehop_buffers_name(none), "unknown");
    EXPECT_STREQ(onehop_links_name(none), "unknown");
  }
}

}  // namespace
}  // namespace onehop
