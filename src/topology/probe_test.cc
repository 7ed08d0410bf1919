// SPDX-License-Identifier: Apache-2.0
#include "topology/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <memory>

namespace onehop {
namespace {

HostInfo described(const char* synthetic) {
  hwloc_topology_t machine = nullptr;
  EXPECT_EQ(hwloc_topology_init(&machine), 0);
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(machine,
                                                                                 &hwloc_topology_destroy);
  EXPECT_EQ(hwloc_topology_set_synthetic(machine, synthetic), 0);
  EXPECT_EQ(hwloc_topology_load(machine), 0);
  return describe_host(machine);
}

TEST(ProbeHost, CountsWhatThisProcessMayUse) {
  const HostProbe probe = probe_host();
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(probe.host.cpus, CPU_COUNT(&allowed));
  EXPECT_GE(probe.host.cores, 1);
  EXPECT_LE(probe.host.cores, probe.host.cpus);
  EXPECT_FALSE(probe.host.hostname.empty());
  int in_nodes = 0;
  for (const NumaNode& node : probe.host.numa_nodes) {
    EXPECT_TRUE(std::is_sorted(node.cpus.begin(), node.cpus.end()));
    in_nodes += static_cast<int>(node.cpus.size());
  }
  EXPECT_EQ(in_nodes, probe.host.cpus);
}

TEST(ProbeHost, SeesOneProcessorWhenBoundToOne) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const HostInfo host = probe_host().host;
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(host.cpus, 1);
  EXPECT_EQ(host.cores, 1);
  ASSERT_EQ(host.numa_nodes.size(), 1u);
  EXPECT_EQ(host.numa_nodes[0].cpus, std::vector<int>{cpu});
  for (const CacheInfo& cache : host.caches) EXPECT_EQ(cache.cpus, std::vector<int>{cpu});
}

TEST(ProbeHost, DescribesCoresThreadsNodesAndCaches) {
  const HostInfo host = described("numa:2 l3:2 core:2 pu:2");
  EXPECT_EQ(host.cores, 8);
  EXPECT_EQ(host.cpus, 16);
  ASSERT_EQ(host.numa_nodes.size(), 2u);
  EXPECT_EQ(host.numa_nodes[1].id, 1);
  EXPECT_GT(host.numa_nodes[1].memory_bytes, 0u);
  EXPECT_EQ(host.numa_nodes[1].cpus, (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  ASSERT_EQ(host.caches.size(), 4u);
  EXPECT_EQ(host.caches[1].level, 3);
  EXPECT_GT(host.caches[1].bytes, 0u);
  EXPECT_EQ(host.caches[1].cpus, (std::vector<int>{4, 5, 6, 7}));
}

TEST(ProbeHost, CountsEveryThreadAsACoreWhereTheSystemNamesNoCores) {
  const HostInfo host = described("pu:6");
  EXPECT_EQ(host.cores, 6);
  EXPECT_EQ(host.cpus, 6);
  EXPECT_TRUE(host.caches.empty());
}

TEST(Probe, ExplainsAnEmptyListOfDevices) {
  const Topology machine = Topology::probe();
  EXPECT_EQ(machine.host(), probe_host().host);
  const DeviceProbe gpu = probe_devices();
  EXPECT_EQ(machine.devices(), gpu.devices);
  EXPECT_EQ(gpu.pairs.size(), gpu.devices.size() * gpu.devices.size());
  EXPECT_TRUE(!machine.devices().empty() || !machine.notes().empty());
}

}  // namespace
}  // namespace onehop
