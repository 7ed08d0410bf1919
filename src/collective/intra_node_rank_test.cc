// SPDX-License-Identifier: Apache-2.0
#include "collective/intra_node_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/errors.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using Ranks = std::vector<IntraNodeRank>;

/// Puts rank r on GPU devices[r] of a machine, as ranks describe themselves with IntraNodeOptions::topology.
Ranks on(const Topology& topology, const std::vector<int>& devices) {
  Ranks ranks;
  for (const int device : devices) {
    ranks.push_back({.enabled = true, .buffer_bytes = 1, .device = DeviceId{device}});
    describe_device(topology, ranks.back());
  }
  const Ranks without_links = ranks;
  for (IntraNodeRank& each : ranks) each.nvlinks = nvlinks_to(without_links, each, topology);
  return ranks;
}

Topology shipped(const std::string& name) {
  return Topology::load(ONEHOP_TEST_TOPOLOGIES "/" + name + ".json");
}

Ranks on_host(std::size_t n) {
  return Ranks(n, {.enabled = true, .buffer_bytes = 1, .device = DeviceId::host});
}

void expect_refused(const Ranks& ranks, const std::vector<std::string>& named) {
  const std::string reason = intra_node_refusal(ranks).value_or("not refused");
  for (const std::string& each : named) EXPECT_THAT(reason, HasSubstr(each));
  EXPECT_THAT(reason, Not(HasSubstr("\n")));
}

constexpr std::optional<std::string> kAccepted = std::nullopt;

TEST(IntraNodeRefusal, TakesGpusThatAreFullyConnected) {
  EXPECT_EQ(intra_node_refusal(on(shipped("h100x8"), {0, 1, 2, 3, 4, 5, 6, 7})), kAccepted);
  EXPECT_EQ(intra_node_refusal(on(shipped("h200x4"), {3, 1})), kAccepted);
  EXPECT_EQ(intra_node_refusal(on(shipped("two_islands"), {0, 1})), kAccepted);
}

TEST(IntraNodeRefusal, NamesAPairWithoutALinkInOneDirection) {
  expect_refused(on(shipped("pcie4"), {0, 1, 2, 3}),
                 {"NVLink", "rank 0", "rank 1", "11 more", "TEST_INTRA_NODE_COMM"});
  expect_refused(on(shipped("two_islands"), {0, 1, 2, 3}), {"NVLink"});
  Ranks cube = on(shipped("hybrid_cube_mesh"), {0, 1, 2, 3, 4, 5, 6, 7});
  expect_refused(cube, {"compute capability 7.0"});
  for (IntraNodeRank& each : cube) each.compute_capability = 80;
  expect_refused(cube, {"NVLink", "more directions"});
  Topology one_way = shipped("h200x4");
  PairInfo pair = one_way.pair(DeviceId{2}, DeviceId{1});
  pair.nvlinks = 0;
  one_way.set_pair(DeviceId{2}, DeviceId{1}, pair);
  expect_refused(on(one_way, {1, 2}), {"no link from GPU 2", "of rank 1 to GPU 1", "of rank 0;"});
  Ranks not_asked = on(shipped("h200x4"), {0, 1});
  not_asked[1].nvlinks.clear();
  expect_refused(not_asked, {"of rank 1 to GPU 0"});
}

TEST(IntraNodeRefusal, ARankThatForcesItVouchesForTheLinksFromItsOwnGpu) {
  Ranks ranks = on(shipped("pcie4"), {0, 1});
  ranks[0].forced = true;
  expect_refused(ranks, {"of rank 1 to GPU 0"});
  ranks[1].forced = true;
  EXPECT_EQ(intra_node_refusal(ranks), kAccepted);
}

TEST(IntraNodeRefusal, NamesTheRanksThatAreNotEnabled) {
  Ranks ranks = on(shipped("h200x4"), {0, 1, 2});
  ranks[1].enabled = false;
  expect_refused(ranks, {"rank 1", "ENABLE_INTRA_NODE_COMM=1"});
  ranks[2].enabled = false;
  expect_refused(ranks, {"ranks 1, 2"});
}

TEST(IntraNodeRefusal, TakesTwoToEightRanks) {
  EXPECT_EQ(intra_node_refusal(on_host(2)), kAccepted);
  EXPECT_EQ(intra_node_refusal(on_host(8)), kAccepted);
  expect_refused(on_host(1), {"2 to 8 ranks, got 1"});
  expect_refused(on_host(9), {"2 to 8 ranks, got 9"});
}

TEST(IntraNodeRefusal, TakesOneGpuTwiceOnlyWhereAllRanksAllowIt) {
  Ranks ranks = on(shipped("h200x4"), {2, 1, 2});
  expect_refused(ranks, {"ranks 0 and 2", ranks[0].uuid, "ONEHOP_ALLOW_OVERLAPPING_DEVICES"});
  ranks[0].allows_overlap = ranks[2].allows_overlap = true;
  expect_refused(ranks, {"ranks 0 and 2"});
  ranks[1].allows_overlap = true;
  EXPECT_EQ(intra_node_refusal(ranks), kAccepted);
}

TEST(IntraNodeRefusal, NamesAGpuThatIsTooOld) {
  Ranks ranks = on(shipped("h200x4"), {0, 1});
  ranks[1].compute_capability = 80;
  EXPECT_EQ(intra_node_refusal(ranks), kAccepted);
  ranks[1].compute_capability = 75;
  expect_refused(ranks, {"GPU 1 (" + ranks[1].name + ") of rank 1", "7.5", "8.0"});
}

TEST(IntraNodeRefusal, NamesWhatRanksDifferIn) {
  Ranks ranks = on_host(3);
  ranks[2].buffer_bytes = 77;
  expect_refused(ranks, {"ranks 0 and 2", "1 and 77 bytes"});
  ranks = on(shipped("h200x4"), {0, 1});
  ranks[1].device = DeviceId::host;
  expect_refused(ranks, {"ranks 0 and 1", "a GPU and the host"});
}

TEST(IntraNodeRank, FindsPeersByUuidWhateverTheirNumbers) {
  const Topology machine = shipped("h200x4");
  Ranks ranks = on(machine, {0, 3});
  ranks[1].device = DeviceId{0};  // as with a different CUDA_VISIBLE_DEVICES
  EXPECT_EQ(nvlinks_to(ranks, ranks[0], machine)[1], machine.pair(DeviceId{0}, DeviceId{3}).nvlinks);
  ranks[1].uuid = "GPU-of-another-machine";
  EXPECT_EQ(nvlinks_to(ranks, ranks[0], machine)[1], 0);
  EXPECT_THAT(message_of([&] { (void)on(machine, {4}); }, ErrorCode::invalid_argument),
              HasSubstr("device 4"));
}

TEST(IntraNodeRank, TravelsAsBytes) {
  const Ranks ranks = on(shipped("h200x4"), {0, 1, 2, 3});
  for (IntraNodeRank each : ranks) {
    EXPECT_EQ(parse_intra_node_rank(encode(each)), each);
    each.forced = each.allows_overlap = true;
    each.enabled = false;
    each.device = DeviceId::host;
    EXPECT_EQ(parse_intra_node_rank(encode(each)), each);
  }
}

TEST(IntraNodeRank, BytesThatAreCutOffOrOfAnotherKindAreRefused) {
  const std::string good = encode(on(shipped("h200x4"), {0, 1})[0]);
  for (std::size_t size = 0; size < good.size(); ++size) {
    (void)message_of([&] { (void)parse_intra_node_rank(good.substr(0, size)); }, ErrorCode::protocol);
  }
  const auto with = [&](std::size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return message_of([&] { (void)parse_intra_node_rank(bad); }, ErrorCode::protocol);
  };
  EXPECT_THAT(with(0, 'x'), HasSubstr("OHIN"));
  EXPECT_THAT(with(4, 9), HasSubstr("version 9"));
  EXPECT_THAT(with(6, 8), HasSubstr("flags"));
  EXPECT_THAT(message_of([&] { (void)parse_intra_node_rank(good + "x"); }, ErrorCode::protocol),
              AllOf(HasSubstr("1 unexpected")));
}

}  // namespace
}  // namespace onehop
